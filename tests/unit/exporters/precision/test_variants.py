"""Precisions of one encoder: what they record, and that they are interchangeable."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.models.tiny_checkpoint import CONFIG, DIM, random_weights, write_checkpoint, write_reranker_checkpoint

from quarry import engine
from quarry.engine.bundled import BUNDLED, INSTALLABLE, bundled_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.exporters import command
from quarry.exporters.export import PRECISIONS, export, export_reranker
from quarry.exporters.parity.encoder import LEAST_MEAN_COSINES, check_bundle, check_parity, measure_retrieval
from quarry.exporters.parity.sample_texts import sample_questions
from quarry.exporters.precision.int8 import pack_tables, quantize_weights
from quarry.exporters.precision.variants import convert_to_fp16
from quarry.formats.bundle.encoder import LEAST_MEAN_COSINE, EncoderBundle, ParityRecord, load_bundle, write_bundle
from quarry.formats.errors import ChecksumMismatch, CorruptFile, EncoderMismatch, InvalidSetting

TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz", "some more words!", "z"]
PAIRS = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl mno pqr stu vwx yz"), ("z", "ddd")]


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EncoderBundle]:
    root = tmp_path_factory.mktemp("variants")
    checkpoint = write_checkpoint(root / "checkpoint")
    return {
        precision: export(checkpoint, root / precision, precision, texts=TEXTS, retrieval=precision == "int8")
        for precision in PRECISIONS
    }


def test_all_have_one_identity_and_say_how_close_they_are(variants: dict[str, EncoderBundle]) -> None:
    assert len({bundle.identity for bundle in variants.values()}) == 1
    assert len({bundle.vector_identity for bundle in variants.values()}) == 1
    for precision, bundle in variants.items():
        parity = bundle.settings.parity
        if precision == "fp32":
            assert parity is None
            continue
        assert parity is not None
        assert parity.n_texts == len(TEXTS)
        assert min(parity.token_mean, parity.pooled_mean) >= LEAST_MEAN_COSINES.get(precision, 0.98)


def with_large_vocabulary(folder: Path) -> Path:
    rng, table = np.random.default_rng(3), "embeddings.word_embeddings.weight"
    weights = random_weights()
    more = rng.normal(size=(2**14 - len(weights[table]), DIM)).astype(np.float32)
    weights[table] = np.concatenate([weights[table], more])
    return write_checkpoint(folder, weights=weights, config={**CONFIG, "vocab_size": 2**14})


@pytest.mark.parametrize("precision", ["int8", "int8-weights"])
def test_vectors_of_tokens_in_4_bits(precision: str, tmp_path: Path) -> None:
    checkpoint = with_large_vocabulary(tmp_path / "checkpoint")
    packed = export(checkpoint, tmp_path / "packed", precision, texts=TEXTS, retrieval=False, packed_tables=True)
    n_types = 2 * DIM if precision == "int8" else 0  # the other table of bytes
    assert packed.files["model.onnx.data"].n_bytes == 2**14 * DIM // 2 + n_types
    assert packed.identity == export(checkpoint, tmp_path / "exact", "fp32", texts=TEXTS).identity
    assert packed.settings.parity is not None
    check_bundle(packed.path)
    if precision == "int8" and find_spec("torch"):  # which has no products of int8-weights
        in_onnx, in_torch = (open_encoder(packed.path, runtime=each) for each in ("onnx-cpu", "torch"))
        assert in_torch.encode_query(TEXTS[0]) @ in_onnx.encode_query(TEXTS[0]) > 0.99


def test_a_table_that_was_rounded_to_4_bits_is_packed_as_it_is() -> None:
    rng = np.random.default_rng(1)
    codes, scales = rng.integers(0, 16, (2**14, 2, 32)), rng.uniform(-1, 1, (2**14, 2, 1)).astype(np.float16)
    codes[:, :, 0] = 0  # the largest absolute value has this code
    table = ((codes - 8).astype(np.float32) * scales).reshape(2**14, 64)
    table[5] = 0
    gather = helper.make_node("Gather", ["table", "input_ids"], ["vectors"])
    value, result = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("input_ids", TensorProto.INT64, ["length"]),
            ("vectors", TensorProto.FLOAT, ["length", 64]),
        )
    )
    graph = helper.make_graph([gather], "graph", [value], [result], [numpy_helper.from_array(table, "table")])
    model = pack_tables(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    session = import_onnxruntime().InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"input_ids": np.arange(2**14)})
    np.testing.assert_allclose(found, table, rtol=2**-10)  # of float16


def test_they_get_smaller(variants: dict[str, EncoderBundle]) -> None:
    sizes = {precision: bundle.files["model.onnx"].n_bytes for precision, bundle in variants.items()}
    assert sizes["fp16"] < 0.7 * sizes["fp32"]
    assert sizes["int8-weights"] < 0.7 * sizes["fp32"]


def test_the_effect_on_a_ranking_is_recorded(variants: dict[str, EncoderBundle]) -> None:
    effect = variants["int8"].settings.retrieval
    assert effect is not None
    assert effect.collection == "docstrings"
    assert effect.n_queries == len(sample_questions()) == 80
    assert 0 < effect.ndcg_10 < 1
    exact, variant = (open_encoder(variants[precision].path) for precision in ("fp32", "int8"))
    assert measure_retrieval(exact, variant) == effect
    assert measure_retrieval(variant, exact).ndcg_10 == effect.ndcg_10_exact


def test_an_index_of_one_variant_opens_with_the_others_only(
    variants: dict[str, EncoderBundle], tmp_path: Path
) -> None:
    engine.build(TEXTS, tmp_path / "index", encoder=variants["int8"].path, language="none")
    expected = None
    for bundle in variants.values():
        with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as index:
            found = index.search("the cat sat.", k=1)[0].id
            expected = expected or found
            assert found == expected
    other = write_checkpoint(tmp_path / "checkpoint", weights=random_weights(1))
    other_bundle = export(other, tmp_path / "other", "fp32").path
    far = replace(variants["int8"].settings, parity=ParityRecord(1, 0.5, 0.5, 0.5, 0.5))
    bundle = variants["int8"]
    far_off = write_bundle(tmp_path / "far", far, {name: bundle.path / name for name in bundle.files}).path
    for path in (other_bundle, far_off):
        with pytest.raises(EncoderMismatch):
            engine.Engine.open(tmp_path / "index", encoder=path)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rerankers_have_variants_too(tmp_path: Path, precision: str) -> None:
    checkpoint = write_reranker_checkpoint(tmp_path / "checkpoint")
    bundle = export_reranker(checkpoint, tmp_path / "out", precision, pairs=PAIRS)
    assert (bundle.settings.parity is None) == (precision == "fp32")


def test_vectors_do_not_depend_on_batch_mates_but_in_int8(variants: dict[str, EncoderBundle]) -> None:
    """Vectors depend on the other texts of a batch only in int8, whose graphs therefore run one text at a time."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 60, (6, 9))
    mates = np.concatenate([ids[:1], rng.integers(5, 60, (5, 9))])
    for precision in ("fp32", "fp16", "int8-weights"):
        session = import_onnxruntime().InferenceSession(variants[precision].model_path)
        one, other = (
            session.run(
                ["pooled"],
                {"input_ids": rows, "attention_mask": np.ones_like(rows), "token_type_ids": np.zeros_like(rows)},
            )[0][0]
            for rows in (ids, mates)
        )
        np.testing.assert_allclose(one, other, atol=2e-6 if precision != "fp16" else 2e-3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bundle_can_be_checked_alone(variants: dict[str, EncoderBundle], precision: str) -> None:
    record = check_bundle(variants[precision].path)
    assert record.n_texts == len(TEXTS)
    assert record.pooled_mean >= 0.98


def rewritten(bundle: EncoderBundle, folder: Path, **files: bytes) -> Path:
    contents = {name: bundle.path / name for name in bundle.files}
    named = {name.replace("_", "."): content for name, content in files.items()}
    return write_bundle(folder, bundle.settings, {**contents, **named}).path


def test_a_graph_with_other_vectors_is_found(variants: dict[str, EncoderBundle], tmp_path: Path) -> None:
    weights = random_weights()
    weights["encoder.layer.1.output.dense.weight"] *= -1
    other = export(write_checkpoint(tmp_path / "checkpoint", weights=weights), tmp_path / "other", "fp32")
    path = rewritten(variants["fp32"], tmp_path / "bundle", model_onnx=other.model_path.read_bytes())
    with pytest.raises(InvalidSetting, match=r"differs too much from fp32, .* in a token of .*at least 0\.9999"):
        check_bundle(path)


def test_a_damaged_bundle_is_not_checked(variants: dict[str, EncoderBundle], tmp_path: Path) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle")
    content = (path / "reference.json").read_bytes()
    (path / "reference.json").write_bytes(content[:-1] + b" ")
    with pytest.raises(ChecksumMismatch, match="reference"):
        check_bundle(path)


RECORDS = [
    b"3", b"[3]", b"{}", b'[{"text": "a"}]', b'[{"text": "a", "query": "AAAA", "windows": []}]',
    b'[{"text": "a", "query": "", "windows": 3}]', b"[",
]  # fmt: skip


@pytest.mark.parametrize("content", RECORDS)
def test_a_bad_record_is_refused(variants: dict[str, EncoderBundle], tmp_path: Path, content: bytes) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle", reference_json=content)
    with pytest.raises((CorruptFile, InvalidSetting)):
        check_bundle(path)


def test_a_record_of_other_texts_is_refused(variants: dict[str, EncoderBundle], tmp_path: Path) -> None:
    entries = json.loads((variants["fp32"].path / "reference.json").read_bytes())
    entries[0]["text"] += " and more"
    path = rewritten(variants["fp32"], tmp_path / "bundle", reference_json=json.dumps(entries).encode())
    with pytest.raises(CorruptFile, match="do not match their texts"):
        check_bundle(path)


def test_a_bundle_without_a_record_is_reported(variants: dict[str, EncoderBundle], tmp_path: Path) -> None:
    bundle = variants["fp32"]
    files: dict[str, bytes | Path] = {
        name: bundle.path / name for name in bundle.files if name != "reference.json"
    }
    with pytest.raises(InvalidSetting, match=r"no recorded vectors.*expected reference\.json"):
        check_bundle(write_bundle(tmp_path / "bundle", bundle.settings, files).path)


@pytest.mark.parametrize("name", [*BUNDLED, *INSTALLABLE])
def test_a_bundled_encoder_can_be_checked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_bundle(bundled_path(name)).files["reference.json"].n_bytes < 100_000
    assert command.run(arguments(bundled_path(name), "--check")) == 0
    found = re.search(r"as recorded \(n_texts 2, token_mean (0\.\d+)", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) >= LEAST_MEAN_COSINE


def test_the_number_of_recorded_texts_may_be_chosen(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    bundle = export(checkpoint, tmp_path / "out", "fp32", texts=["", *TEXTS], n_recorded=2)
    assert [entry["text"] for entry in json.loads((bundle.path / "reference.json").read_bytes())] == TEXTS[:2]


def arguments(*words: object):
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_the_command_checks(
    variants: dict[str, EncoderBundle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = variants["fp16"].path
    assert command.run(arguments(path, "--check")) == 0
    assert f"{path}: as recorded (n_texts {len(TEXTS)}, token_mean" in capsys.readouterr().out
    with pytest.raises(InvalidSetting, match="one folder"):
        command.run(arguments(path, tmp_path / "out", "--check"))
    with pytest.raises(InvalidSetting, match="OUT is missing"):
        command.run(arguments(path))
    with pytest.raises(InvalidSetting, match="not an option for rerankers; found --head"):
        command.run(arguments(write_reranker_checkpoint(tmp_path / "r"), tmp_path / "out", "--head", "cls"))


@pytest.mark.parametrize(("precision", "least"), [*LEAST_MEAN_COSINES.items(), ("int8", 0.98)])
def test_every_precision_has_its_tolerance(precision: str, least: float) -> None:
    check_parity(ParityRecord(1, least, 0.0, least, 0.0), "text", precision)
    with pytest.raises(InvalidSetting, match="differs too much"):
        check_parity(ParityRecord(1, least - 1e-5, 0.0, 1.0, 0.0), "text", precision)


def product_model(weights: np.ndarray, name: str = "product") -> onnx.ModelProto:
    n_in, n_out = weights.shape
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name=name)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", n_in])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", n_out])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("shape", [(32, 16), (45, 7), (1, 1), (96, 33)])
def test_quantized_products_are_near_the_exact_ones(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[0])
    weights = rng.standard_normal(shape).astype(np.float32)
    weights[:, 0] = 0  # a block without a largest value
    x = rng.standard_normal((5, shape[0])).astype(np.float32)
    model = quantize_weights(product_model(weights), "head.")
    assert [node.op_type for node in model.graph.node] == ["MatMulNBits"]
    (found,) = import_onnxruntime().InferenceSession(model.SerializeToString()).run(["y"], {"x": x})
    bound = np.abs(x).max() * np.abs(weights).max() * shape[0] / 100  # two roundings to 1/254 of the largest
    np.testing.assert_allclose(found, x @ weights, atol=bound)
    assert np.abs(found - x @ weights).max() <= bound


def test_products_of_a_head_stay_exact() -> None:
    model = product_model(np.ones((32, 8), np.float32), "head.projection")
    assert [node.op_type for node in quantize_weights(model, "head.").graph.node] == ["MatMul"]


def test_large_tables_are_quantized_row_by_row() -> None:
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((1100, 64)) * rng.uniform(0.01, 10, (1100, 1))).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "x"], ["y"], name="look_up")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m", 64])],
        [numpy_helper.from_array(table, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    small = quantize_weights(model, "head.")
    assert len(small.SerializeToString()) < 0.3 * table.nbytes
    ids = rng.integers(0, 1100, (3, 5))
    (found,) = import_onnxruntime().InferenceSession(small.SerializeToString()).run(["y"], {"x": ids})
    error = np.abs(found - table[ids]).max(axis=-1)
    assert (error <= np.abs(table[ids]).max(axis=-1) / 253).all()


def test_half_graphs_are_half_inside_and_whole_outside(variants: dict[str, EncoderBundle]) -> None:
    model = onnx.load(variants["fp16"].model_path)
    assert {output.type.tensor_type.elem_type for output in model.graph.output} == {TensorProto.FLOAT}
    large = [tensor for tensor in model.graph.initializer if np.prod(tensor.dims) > DIM]
    assert {tensor.data_type for tensor in large} == {TensorProto.FLOAT16}
    onnx.checker.check_model(model, full_check=True)


def test_numbers_too_large_for_half_become_its_largest() -> None:
    weights = np.array([[1e30, -1e30, 3.0]], np.float32)
    half = convert_to_fp16(product_model(weights))
    (tensor,) = half.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.array([[65504, -65504, 3]], np.float16))


def test_a_graph_with_graphs_inside_has_no_half() -> None:
    inner = product_model(np.ones((1, 1), np.float32)).graph
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner)
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    with pytest.raises(InvalidSetting, match=r"subgraphs .*found If 'choice'"):
        convert_to_fp16(model)
