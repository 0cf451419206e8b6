"""Sources of networks and of their weights."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.models.split_weights import with_weights_apart
from support.models.tiny_checkpoint import DIM, write_checkpoint

from quarry.engine.encoding.opening import open_encoder
from quarry.exporters.checkpoint.checkpoint import checkpoint_kind
from quarry.exporters.checkpoint.files import find_checkpoint_folder
from quarry.exporters.export import PRECISIONS, export
from quarry.exporters.parity.encoder import check_bundle
from quarry.formats.bundle.encoder import EncoderBundle, load_bundle, write_bundle
from quarry.formats.errors import BackendUnavailable, ChecksumMismatch, CorruptFile, InvalidSetting

TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz", "some more words!", "z"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def exact(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> EncoderBundle:
    return export(checkpoint, tmp_path_factory.mktemp("exact") / "bundle", "fp32", texts=TEXTS)


def vectors(path: Path) -> np.ndarray:
    encoder = open_encoder(path)
    return np.concatenate([encoder.encode_query(TEXTS[0])[np.newaxis], next(encoder.windows(TEXTS[0])).values])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_in_a_file_of_their_own(
    checkpoint: Path, exact: EncoderBundle, tmp_path: Path, precision: str
) -> None:
    inside = export(checkpoint, tmp_path / "inside", precision, texts=TEXTS, retrieval=False)
    bundle = with_weights_apart(inside.path, tmp_path / "out")
    assert bundle.files["model.onnx.data"].n_bytes > bundle.files["model.onnx"].n_bytes / 4
    assert bundle.identity == exact.identity
    np.testing.assert_allclose(vectors(bundle.path), vectors(inside.path), atol=1e-6)
    assert check_bundle(bundle.path).n_texts == len(TEXTS)


def test_a_changed_file_of_weights_is_not_run(exact: EncoderBundle, tmp_path: Path) -> None:
    bundle = with_weights_apart(exact.path, tmp_path / "out")
    path = bundle.path / "model.onnx.data"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChecksumMismatch, match=r"model\.onnx\.data"):
        open_encoder(bundle.path).encode_query("cat")


def rewritten(bundle: EncoderBundle, folder: Path, model: onnx.ModelProto) -> Path:
    contents: dict[str, bytes | Path] = {name: bundle.path / name for name in bundle.files}
    return write_bundle(folder, bundle.settings, {**contents, "model.onnx": model.SerializeToString()}).path


def test_weights_outside_the_bundle_are_not_read(exact: EncoderBundle, tmp_path: Path) -> None:
    model = onnx.load(exact.model_path)
    onnx.save(model, tmp_path / "big.onnx", save_as_external_data=True, location="secret", size_threshold=0)
    model = onnx.load(tmp_path / "big.onnx", load_external_data=False)
    for location in ("../secret", str(tmp_path / "secret"), "secret"):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = location if entry.key == "location" else entry.value
        path = rewritten(exact, tmp_path / f"bundle{len(location)}", model)
        (path / "secret").write_bytes((tmp_path / "secret").read_bytes())
        with pytest.raises(CorruptFile, match="a tensor is in another file"):
            open_encoder(path).encode_query("cat")


def test_operators_of_other_domains_are_not_run(exact: EncoderBundle, tmp_path: Path) -> None:
    model = onnx.load(exact.model_path)
    model.graph.node.append(helper.make_node("Steal", ["pooled"], ["loot"], domain="evil"))
    with pytest.raises(CorruptFile, match=r"found evil\.Steal"):
        open_encoder(rewritten(exact, tmp_path / "bundle", model)).encode_query("cat")


def graph_folder(exact: EncoderBundle, checkpoint: Path, folder: Path, name: str = "onnx/model.onnx") -> Path:
    """Copy the checkpoint with a graph instead of weights, whose outputs have the names that other tools use."""
    shutil.copytree(checkpoint, folder)
    (folder / "model.safetensors").unlink()
    model = onnx.load(exact.model_path)
    del model.graph.output[1]
    model.graph.output[0].name = "last_hidden_state"
    model.graph.node.append(helper.make_node("Identity", ["token_vectors"], ["last_hidden_state"]))
    (folder / name).parent.mkdir(exist_ok=True)
    onnx.save(model, folder / name)
    return folder


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_folder_that_holds_a_graph(
    exact: EncoderBundle, checkpoint: Path, tmp_path: Path, name: str, precision: str
) -> None:
    folder = graph_folder(exact, checkpoint, tmp_path / "folder", name)
    bundle = export(folder, tmp_path / "out", precision, texts=TEXTS, retrieval=False)
    assert (bundle.settings.source.file, bundle.settings.dim) == ("model.onnx", DIM)
    assert (bundle.settings.pooling, bundle.settings.normalize, bundle.settings.window) == ("mean", True, 16)
    assert bundle.identity != exact.identity
    if precision == "fp32":
        np.testing.assert_allclose(vectors(bundle.path), vectors(exact.path), atol=1e-5)


def test_a_folder_with_nothing_but_graph_and_tokenizer(
    exact: EncoderBundle, checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(checkpoint / "tokenizer.json", folder)
    shutil.copy(exact.model_path, folder)
    assert checkpoint_kind(folder) == "encoder"
    settings = export(folder, tmp_path / "out", "fp32", texts=TEXTS).settings
    assert (settings.pooling, settings.normalize, settings.window) == ("mean", False, 512)


def test_weights_beside_the_graph_are_brought_into_the_bundle(
    exact: EncoderBundle, checkpoint: Path, tmp_path: Path
) -> None:
    folder = graph_folder(exact, checkpoint, tmp_path / "folder", "model.onnx")
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    bundle = export(folder, tmp_path / "out", "fp32", texts=TEXTS)
    np.testing.assert_allclose(vectors(bundle.path), vectors(exact.path), atol=1e-5)
    assert set(bundle.files) == set(exact.files)
    before = bundle.settings.source
    content = bytearray((folder / "weights").read_bytes())
    content[1] ^= 1  # a bit of the first value's fraction
    (folder / "weights").write_bytes(content)
    assert export(folder, tmp_path / "other", "fp32", texts=["cat"]).settings.source.sha256 != before.sha256


@pytest.mark.parametrize("how", ["../weights", "link", "missing"])
def test_weights_elsewhere_are_refused(exact: EncoderBundle, checkpoint: Path, tmp_path: Path, how: str) -> None:
    folder = graph_folder(exact, checkpoint, tmp_path / "folder", "model.onnx")
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    shutil.move(folder / "weights", tmp_path / "weights")
    if how == "link":
        if sys.platform == "win32":
            pytest.skip("symbolic links need a privilege on Windows")
        (folder / "weights").symlink_to(tmp_path / "weights")
    if how == "../weights":
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = how
        (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises((CorruptFile, InvalidSetting), match=r"outside the checkpoint|lacks a file.*weights"):
        export(folder, tmp_path / "out", "fp32", texts=TEXTS)


def small_graph(
    inputs: list[str], outputs: dict[str, tuple[int, list[object]]], opset: int = 20
) -> onnx.ModelProto:
    """Return a graph whose outputs are the ids, multiplied by a row of values if an output has three axes."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in inputs]
    made = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()]
    nodes = [helper.make_node("Unsqueeze", [inputs[0], "axes"], ["column"])]
    tensors = [onnx.numpy_helper.from_array(np.array([2]), "axes")]
    for name, (kind, shape) in outputs.items():
        if len(shape) == 2:
            nodes.append(helper.make_node("Cast", [inputs[0]], [name], to=kind))
            continue
        row = np.linspace(-1, 1, DIM).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensors.append(onnx.numpy_helper.from_array(row, f"{name}_row"))
        nodes.append(helper.make_node("Cast", ["column"], [f"{name}_column"], to=kind))
        nodes.append(helper.make_node("Mul", [f"{name}_column", f"{name}_row"], [name]))
    graph = helper.make_graph(nodes, "g", values, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


F = TensorProto.FLOAT
REFUSED = {
    "a graph with other inputs": small_graph(["input_ids", "pixels"], {"last_hidden_state": (F, ["b", "l", DIM])}),
    "no hidden states": small_graph(["input_ids"], {"logits": (F, ["b", "l"])}),
    "hidden states in half precision": small_graph(["input_ids"], {"x": (TensorProto.FLOAT16, ["b", "l", DIM])}),
    "hidden states of any length": small_graph(["input_ids"], {"last_hidden_state": (F, ["b", "l", "d"])}),
    "two that may be meant": small_graph(["input_ids"], {"a": (F, ["b", "l", DIM]), "b": (F, ["b", "l", DIM])}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_graphs_that_do_not_fit_are_refused(checkpoint: Path, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(checkpoint / "tokenizer.json", folder)
    (folder / "model.onnx").write_bytes(REFUSED[what].SerializeToString())
    with pytest.raises(InvalidSetting, match=r"inputs are not those|no output of the graph"):
        export(folder, tmp_path / "out", "fp32", texts=TEXTS)


@pytest.mark.parametrize("content", [b"", b"not this", b"\x08\x0a"])
def test_a_file_that_is_not_a_graph_is_refused(checkpoint: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(checkpoint / "tokenizer.json", folder)
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(CorruptFile, match=r"model\.onnx"):
        export(folder, tmp_path / "out", "fp32", texts=TEXTS)


def test_an_old_graph_is_brought_to_a_later_opset(exact: EncoderBundle, checkpoint: Path, tmp_path: Path) -> None:
    """Graphs of older tools have opset 11 to 17, without operators for normalization and GELU."""
    folder = graph_folder(exact, checkpoint, tmp_path / "folder", "model.onnx")
    old = small_graph(["input_ids"], {"last_hidden_state": (F, ["b", "l", DIM])}, opset=13)
    (folder / "model.onnx").write_bytes(old.SerializeToString())
    bundle = export(folder, tmp_path / "out", "fp32", texts=TEXTS)
    (window,) = open_encoder(bundle.path).windows("cat")
    np.testing.assert_allclose(window.values, window.values[:, -1:] * np.linspace(-1, 1, DIM), atol=1e-4)


def test_paths_that_are_neither_folder_nor_name_are_reported(tmp_path: Path) -> None:
    for source in (tmp_path / "nowhere", "no such thing", "a/b/c"):
        with pytest.raises(InvalidSetting, match="there is no checkpoint"):
            find_checkpoint_folder(source)


def test_names_of_the_hub_need_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BackendUnavailable, match="pip install huggingface_hub"):
        find_checkpoint_folder("owner/name")


@pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed")
def test_without_a_network_the_hub_gives_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InvalidSetting, match="the Hugging Face hub did not provide it"):
        export("owner/name-that-is-not-there", tmp_path / "out")


def test_a_folder_comes_before_the_hub(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent.parent)
    name = f"{checkpoint.parent.name}/{checkpoint.name}"
    assert find_checkpoint_folder(name) == Path(name)


def test_the_manifest_of_a_given_graph_can_be_read(exact: EncoderBundle, checkpoint: Path, tmp_path: Path) -> None:
    folder = graph_folder(exact, checkpoint, tmp_path / "folder")
    export(folder, tmp_path / "out", "fp32", texts=TEXTS)
    manifest = json.loads((tmp_path / "out" / "bundle.json").read_bytes())
    assert manifest["source"]["file"] == "model.onnx"
    assert load_bundle(tmp_path / "out").settings.is_interchangeable
