"""Export of checkpoints: the bundle, and the command."""

from __future__ import annotations

import argparse
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.models.tiny_checkpoint import (
    DIM,
    edit_json,
    random_weights,
    write_checkpoint,
)

from quarry.engine.encoding.opening import open_encoder
from quarry.exporters import command
from quarry.exporters.export import PRECISIONS, export, export_reranker
from quarry.exporters.parity.encoder import check_bundle
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.reranker import load_reranker_bundle
from quarry.formats.errors import InvalidSetting

PAIRS = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl mno pqr stu vwx yz"), ("z", "ddd")]


TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz"]


def test_the_bundle_has_the_settings_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    edit_json(checkpoint / "config_sentence_transformers.json", prompts={"query": "q: ", "document": "d: "})
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


def test_a_model_card_names_the_bundle(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "README.md").write_text("---\nlicense: mit\nmodel_name: 'tiny: one'\n---\n# Tiny\n", "utf-8")
    assert export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS, retrieval=False).settings.name == "tiny: one"


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


def test_it_may_be_for_texts_of_many_languages(checkpoint: Path, tmp_path: Path) -> None:
    usual = export(checkpoint, tmp_path / "usual", "fp32", texts=TEXTS)
    chosen = export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS, multilingual=True)
    assert chosen.identity == usual.identity
    assert [load_bundle(each.path).settings.multilingual for each in (usual, chosen)] == [False, True]


def test_documents_and_queries_may_have_networks_of_their_own(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "query", weights=random_weights(1), prompts={"query": "q: "})
    edit_json(checkpoint / "config_sentence_transformers.json", prompts={"document": "d: "})
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
    edit_json(other / "tokenizer.json", version="1.1")
    with pytest.raises(InvalidSetting, match="different tokenizers"):
        export(checkpoint, tmp_path / "out", query_checkpoint=other)


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


def test_a_reranker_bundle_has_the_settings_of_its_checkpoint(cross_encoder: Path, tmp_path: Path) -> None:
    bundle = export_reranker(cross_encoder, tmp_path / "out", "fp32", name="tiny")
    settings = bundle.settings
    assert (settings.name, settings.precision, settings.window, settings.license) == ("tiny", "fp32", 24, "mit")
    assert settings.parity is None
    assert settings.source.sha256 == sha256((cross_encoder / "model.safetensors").read_bytes()).hexdigest()
    assert (bundle.path / "LICENSE").read_text() == "Do what you like.\n"
    assert bundle.verify_files() > 0
    assert json.loads(bundle.tokenizer_path.read_bytes())["padding"] is None


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


def test_the_command_knows_a_reranker(
    cross_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args([str(cross_encoder), str(tmp_path / "out"), "--precision", "fp32"])) == 0
    bundle = load_reranker_bundle(tmp_path / "out")
    assert f"reranker cross, fp32, {bundle.identity}" in capsys.readouterr().out
