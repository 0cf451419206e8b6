"""Reading of checkpoints, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.models.tiny_checkpoint import (
    CONFIG,
    DIM,
    edit_json,
    random_weights,
    write_checkpoint,
)

from quarry.exporters.checkpoint.checkpoint import read_checkpoint, read_network
from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile, InvalidSetting


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
    edit_json(checkpoint / "config.json", **{key: value})
    with pytest.raises(InvalidSetting, match=f"{key}.*expected .*found {value}" if value else key):
        export(checkpoint, tmp_path / "out", graph_source="direct")


@pytest.mark.parametrize("value", [0, "12", None, 2.0, True])
def test_a_bad_size_is_refused(checkpoint: Path, tmp_path: Path, value: object) -> None:
    edit_json(checkpoint / "config.json", num_hidden_layers=value)
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


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_attention_heads", 5), ("layer_norm_eps", "small"), ("layer_norm_eps", 2), ("layer_norm_eps", True)],
)
def test_sizes_that_contradict_each_other_are_refused(
    checkpoint: Path, tmp_path: Path, key: str, value: object
) -> None:
    edit_json(checkpoint / "config.json", **{key: value})
    with pytest.raises(CorruptFile, match=r"config\.json"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize("padding_id", [None, -1, "1", True])
def test_a_bad_padding_token_is_refused(checkpoint: Path, tmp_path: Path, padding_id: object) -> None:
    edit_json(checkpoint / "config.json", model_type="roberta", pad_token_id=padding_id)
    with pytest.raises(CorruptFile, match="pad_token_id"):
        export(checkpoint, tmp_path / "out", "fp32")
