"""Damaged or malicious checkpoints are refused with an error that names the file, and no file is left."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.models.tiny_checkpoint import CONFIG, random_weights, tokenizer_object, write_checkpoint

from quarry.exporters.checkpoint.checkpoint import read_checkpoint
from quarry.exporters.checkpoint.files import find_data_paths
from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile, InvalidSetting

TEXTS = ("a cat sat", "the dog")


def refused(checkpoint: Path, match: str, path: Path, kind: type[Exception] = CorruptFile) -> None:
    out = checkpoint.parent / "out"
    with pytest.raises(kind, match=match) as caught:
        export(checkpoint, out, "fp32", texts=TEXTS, retrieval=False)
    assert caught.value.path == path  # type: ignore[attr-defined]
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


def tensors_file(tensors: dict[str, object], content: bytes) -> bytes:
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + content


def tensor(kind: str, first: int, stop: int, *shape: int) -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": [first, stop]}


WEIGHTS = {
    "a header longer than the file": (struct.pack("<Q", 2**60) + b"{}", "header too large"),
    "a header nested too deep": (struct.pack("<Q", 10**5) + b"[" * 10**5, "invalid JSON|recursion"),
    "tensors that overlap": (
        tensors_file({"a": tensor("F32", 0, 8, 2), "b": tensor("F32", 4, 12, 2)}, bytes(12)),
        "invalid offset",
    ),
    "a tensor beyond the end": (tensors_file({"a": tensor("F32", 0, 800, 200)}, bytes(12)), "safetensors file"),
    "a size that overflows": (tensors_file({"a": tensor("F32", 0, 0, 2**62, 4)}, b""), "overflow"),
    "a type that numpy lacks": (tensors_file({"a": tensor("F4", 0, 1, 2)}, b"\0"), "type that cannot be read"),
    "complex numbers": (tensors_file({"a": tensor("C64", 0, 8, 1)}, bytes(8)), "'a' has complex numbers"),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_weight_files_with_false_sizes_are_refused(checkpoint: Path, what: str) -> None:
    content, match = WEIGHTS[what]
    (checkpoint / "model.safetensors").write_bytes(content)
    refused(checkpoint, match, checkpoint / "model.safetensors")


def test_pickled_weights_are_not_read(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    trap = checkpoint.parent / "trap"
    (checkpoint / "pytorch_model.bin").write_bytes(b"cos\nmkdir\n(V" + str(trap).encode() + b"\ntR.")
    refused(checkpoint, "lacks a file; expected model.safetensors", checkpoint, InvalidSetting)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    weights = random_weights()
    weights["embeddings.word_embeddings.weight"][:] = value
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    refused(checkpoint, r"the checkpoint gives a bundle.*model\.onnx.*not finite", checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 10**12},
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 10**9},
        {"max_position_embeddings": 10**18},
        {"model_type": "roberta", "pad_token_id": 10**18},
        {"model_type": "mpnet", "relative_attention_num_buckets": 10**12},
    ],
)
def test_sizes_beyond_measure_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", config={**CONFIG, **change})
    refused(checkpoint, "config.json|the weights lack|wrong shape", checkpoint)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json"])
def test_json_without_end_is_refused(checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(b'{"model": ' + b"[" * 200_000)
    refused(checkpoint, "not JSON.*recursion", checkpoint / name)


@pytest.mark.parametrize(("name", "limit"), [("config.json", 2**24), ("tokenizer.json", 2**27)])
def test_json_beyond_measure_is_not_read(checkpoint: Path, name: str, limit: int) -> None:
    with (checkpoint / name).open("r+b") as file:
        file.truncate(limit + 1)  # a sparse file
    refused(checkpoint, f"too large; expected at most {limit} bytes; found {limit + 1}", checkpoint / name)


TOKENIZERS = {
    "no text": (b'{"model": "\\ud800"}', "not a tokenizer: .*surrogates"),
    "another model": (json.dumps({**tokenizer_object(), "model": {"type": "Magic"}}).encode(), "cannot be read"),
    "words beyond the weights": (
        json.dumps(tokenizer_object()).replace('"a": 5', '"a": 5000').encode(),
        "model.onnx: the graph cannot be run",
    ),
}


@pytest.mark.parametrize("what", TOKENIZERS)
def test_tokenizers_that_cannot_be_used_are_refused(checkpoint: Path, what: str) -> None:
    content, match = TOKENIZERS[what]
    (checkpoint / "tokenizer.json").write_bytes(content)
    refused(checkpoint, match, checkpoint / "tokenizer.json" if what == "no text" else checkpoint)


@pytest.mark.parametrize("value", [-5, 0, 2, "x", 16.0, True])
def test_a_window_that_is_none_is_refused(checkpoint: Path, value: object) -> None:
    (checkpoint / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": value}), "utf-8")
    refused(checkpoint, "bad 'max_seq_length'", checkpoint / "sentence_bert_config.json")


@pytest.mark.parametrize("value", [10**30, None])
def test_a_window_beyond_the_positions_is_that_of_the_positions(checkpoint: Path, value: object) -> None:
    (checkpoint / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": value}), "utf-8")
    assert read_checkpoint(checkpoint).window == CONFIG["max_position_embeddings"]


@pytest.mark.parametrize("prompt", ["x" * 1025, "\ud800"])
def test_prompts_that_no_bundle_can_hold_are_refused(checkpoint: Path, prompt: str) -> None:
    path = checkpoint / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"query": prompt}}), "utf-8")
    refused(checkpoint, "bad prompt", path)
    path.write_text(json.dumps({"prompts": {"of another task": prompt}}), "utf-8")
    assert read_checkpoint(checkpoint).encoder_use.query_prefix == ""


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_licence_from_elsewhere_is_not_given_away(checkpoint: Path, tmp_path: Path) -> None:
    secret = tmp_path / "checkpoint" / ".." / "secret"
    secret.write_text("a key", "utf-8")
    (checkpoint / "LICENSE").unlink()
    (checkpoint / "LICENSE").symlink_to(secret.resolve())
    with pytest.raises(CorruptFile, match="a symbolic link leads out of the checkpoint's folder") as caught:
        export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS)
    assert caught.value.path == checkpoint / "LICENSE"


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    snapshot = write_checkpoint(tmp_path / "models--a--b" / "snapshots" / "0123")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for path in [each for each in snapshot.iterdir() if each.is_file()]:
        path.rename(blobs / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    bundle = export(snapshot, tmp_path / "out", "fp32", texts=TEXTS)
    assert (bundle.path / "LICENSE").read_text("utf-8") == "Do what you like.\n"
    assert not (bundle.path / "LICENSE").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
@pytest.mark.parametrize(
    ("target", "out"),
    [("../../../blobs/b", False), ("beside", False), ("../../../elsewhere", True), ("../../../blobs/c", True)],
)
def test_a_graphs_weights_may_lie_where_the_hubs_cache_puts_them(tmp_path: Path, target: str, out: bool) -> None:
    cache = tmp_path / "models--a--b"
    folder = cache / "snapshots" / "0123" / "onnx"
    folder.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for path in (cache / "blobs" / "b", cache / "elsewhere", folder / "beside"):
        path.write_bytes(bytes(8))
    (cache / "blobs" / "c").symlink_to(cache / "elsewhere")
    (folder / "weights").symlink_to(target)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights")
    graph = helper.make_graph([], "g", [], [], [tensor])
    (folder / "model.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    if out:
        with pytest.raises(CorruptFile, match="outside the checkpoint's folder"):
            find_data_paths(folder / "model.onnx")
    else:
        assert find_data_paths(folder / "model.onnx") == [folder / "weights"]


def test_a_licence_beyond_measure_is_refused(checkpoint: Path) -> None:
    with (checkpoint / "LICENSE").open("r+b") as file:
        file.truncate(2**20 + 1)
    refused(checkpoint, "too large for a license", checkpoint / "LICENSE")


@pytest.mark.parametrize(
    "text", ["---\nlicense: " + "x" * 1000 + "\n---\n", "---\n" + "\n" * 2**17 + "license: mit\n"]
)
def test_a_licence_that_is_no_name_is_unknown(checkpoint: Path, text: str) -> None:
    (checkpoint / "README.md").write_text(text, "utf-8")
    assert read_checkpoint(checkpoint).license_name == "unknown"
