"""Weights are mapped from a bundle's files, and a session keeps no second copy of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support.models.split_weights import with_weights_apart
from support.models.tiny_checkpoint import DIM, random_weights, write_checkpoint

from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.onnx_session import open_session
from quarry.exporters.export import PRECISIONS, export
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.onnx_outline import MAPPED_BYTES, outline
from quarry.formats.errors import CorruptFile, InvalidSetting

TEXTS = ["the cat sat.", "abc def ghi jkl mno pqr stu", "z"]
NONE = 1 << 40  # no tensor is as large


def mapped_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights with a table of words that is large enough to be mapped in every precision."""
    table = np.random.default_rng(seed).random((2200, DIM), np.float32)
    return {**random_weights(seed), "embeddings.word_embeddings.weight": table}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", weights=mapped_weights())


@pytest.fixture(scope="module")
def variants(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, EncoderBundle]:
    root = tmp_path_factory.mktemp("variants")
    return {name: export(checkpoint, root / name, name, texts=TEXTS, retrieval=False) for name in PRECISIONS}


def outputs(path: Path, mapped_bytes: int, lean: bool = False) -> list[np.ndarray]:
    """Return all outputs of a graph for one text."""
    session = open_session(path, lean, mapped_bytes)
    ids = np.arange(1, 12)[np.newaxis]
    values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return session.run(None, {each.name: values[each.name] for each in session.get_inputs()})


def vectors(path: Path, lean: bool = False) -> np.ndarray:
    encoder = open_encoder(path, lean=lean)
    windows = [window.values for text in TEXTS for window in encoder.windows(text)]
    return np.concatenate([*windows, *(encoder.encode_query(text)[np.newaxis] for text in TEXTS)])


def restored(model: onnx.ModelProto, content: bytes) -> int:
    """Read external tensors back from the file; return their number."""
    n_tensors = 0
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            assert entries.pop("location") == "model.onnx"
            offset, length = (int(entries.pop(key)) for key in ("offset", "length"))
            assert not entries
            tensor.raw_data = content[offset : offset + length]
            tensor.ClearField("data_location")
            del tensor.external_data[:]
            n_tensors += 1
    return n_tensors


def test_an_outline_and_the_file_are_the_graph() -> None:
    path = default_bundle_path() / "model.onnx"
    whole, model = onnx.load(path), onnx.load_model_from_string(outline(path))
    large = [tensor for tensor in whole.graph.initializer if len(tensor.raw_data) > 2**16]
    assert len(large) > 20
    assert restored(model, path.read_bytes()) == len(large)
    for tensor in whole.graph.initializer:
        tensor.ClearField("data_location")  # the default location is also serialized
    for tensor in model.graph.initializer:
        tensor.ClearField("data_location")
    assert model == whole
    assert len(outline(path)) < 300_000


def test_only_plain_numbers_are_left_out(tmp_path: Path) -> None:
    many = np.arange(20_000, dtype=np.float32)
    typed = onnx.helper.make_tensor("typed", TensorProto.FLOAT, [20_000], many)
    plain = numpy_helper.from_array(many, "plain")
    elsewhere = onnx.TensorProto(name="elsewhere", data_location=TensorProto.EXTERNAL, doc_string="x" * 2**17)
    model = onnx.ModelProto(graph=onnx.GraphProto(initializer=[typed, plain, elsewhere]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    left = onnx.load_model_from_string(outline(tmp_path / "model.onnx"))
    assert [len(tensor.external_data) for tensor in left.graph.initializer] == [0, 3, 0]
    assert left.graph.initializer[0] == typed
    assert left.graph.initializer[2] == elsewhere
    twice = plain.SerializeToString() + b"\x4a\x04abcd"  # raw_data a second time
    model.graph.ClearField("initializer")
    graph = b"\x2a" + varint(len(twice)) + twice
    (tmp_path / "model.onnx").write_bytes(b"\x3a" + varint(len(graph)) + graph)
    assert outline(tmp_path / "model.onnx") == (tmp_path / "model.onnx").read_bytes()


def varint(value: int) -> bytes:
    return varint_parts(value) if value >= 0x80 else bytes([value])


def varint_parts(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7)


@pytest.mark.parametrize("content", [b"\x3a\x05\x2a\x90", b"\x3a\xff", b"\xff" * 12, b"\x3b\x00", b"\x07\x00"])
def test_a_file_that_is_not_a_graph_has_no_outline(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(CorruptFile, match="the file is not an ONNX model") as caught:
        outline(tmp_path / "model.onnx")
    assert caught.value.path == tmp_path / "model.onnx"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_mapped_weights_give_the_same_vectors(variants: dict[str, EncoderBundle], precision: str) -> None:
    path = variants[precision].model_path
    assert len(outline(path, 64)) < len(outline(path)) < len(outline(path, NONE)) == path.stat().st_size
    expected = outputs(path, NONE)
    for mapped_bytes in (64, MAPPED_BYTES):  # all weights, and the largest
        for found, wanted in zip(outputs(path, mapped_bytes), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_two_graphs_are_mapped_each_from_its_file(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", weights=mapped_weights(seed=1))
    both = export(checkpoint, tmp_path / "both", "fp32", texts=TEXTS, query_checkpoint=other).path
    documents, queries = (
        export(each, tmp_path / f"{n}", "fp32", texts=TEXTS).path for n, each in enumerate((checkpoint, other))
    )
    np.testing.assert_array_equal(
        open_encoder(both).encode_query("cat"), open_encoder(queries).encode_query("cat")
    )
    found, wanted = (next(open_encoder(path).windows("cat")).values for path in (both, documents))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("how", ["unicode", "link", "relative"])
def test_the_folder_may_be_anywhere(
    variants: dict[str, EncoderBundle],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    wanted, path = vectors(variants["fp32"].path), tmp_path / ("ключ 鍵" if how == "unicode" else "moved")
    with_weights_apart(variants["fp32"].path, tmp_path / "split").path.rename(path)
    for each in (path, variants["fp32"].path):
        if how == "link":
            if sys.platform == "win32":
                pytest.skip("symbolic links need a privilege on Windows")
            (tmp_path / f"to {each.name}").symlink_to(each, target_is_directory=True)
            each = tmp_path / f"to {each.name}"  # noqa: PLW2901
        if how == "relative":
            monkeypatch.chdir(each)
            each = Path()  # noqa: PLW2901
        np.testing.assert_array_equal(vectors(each), wanted)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_lean_sessions_give_the_same_vectors(variants: dict[str, EncoderBundle], precision: str) -> None:
    path = variants[precision].model_path
    for found, wanted in zip(outputs(path, 64, lean=True), outputs(path, 64), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    path = variants[precision].path
    np.testing.assert_allclose(vectors(path, lean=True), vectors(path), atol=1e-5)


def test_the_bundled_encoder_may_be_lean() -> None:
    np.testing.assert_allclose(
        open_encoder(lean=True).encode_query("a lean cat"), open_encoder().encode_query("a lean cat"), atol=1e-5
    )


@pytest.mark.parametrize("precision", ["int8-weights", "fp16"])
def test_other_precisions_are_not_lean(variants: dict[str, EncoderBundle], precision: str) -> None:
    with pytest.raises(InvalidSetting, match=f"expected int8 or fp32; found {precision}"):
        open_encoder(variants[precision].path, lean=True)


def test_only_the_cpu_is_lean(variants: dict[str, EncoderBundle]) -> None:
    with pytest.raises(InvalidSetting, match="expected runtime onnx-cpu; found onnx-cuda"):
        open_encoder(variants["fp32"].path, runtime="onnx-cuda", lean=True)


def test_a_lean_session_packs_nothing(variants: dict[str, EncoderBundle]) -> None:
    options = open_session(variants["fp32"].model_path, lean=True).get_session_options()
    assert options.get_session_config_entry("session.disable_prepacking") == "1"


@pytest.fixture(scope="module")
def with_a_large_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    table = np.random.default_rng(0).random((200_000, DIM), np.float32)
    folder = write_checkpoint(
        root / "checkpoint", weights={**random_weights(), "embeddings.word_embeddings.weight": table}
    )
    return export(folder, root / "out", "fp32", texts=["cat"]).path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_mapped_weights_take_no_memory_of_their_own(with_a_large_table: Path, repository: Path) -> None:
    assert private_kib(repository, with_a_large_table) < 10_000, "the table alone has 25,600 KiB"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_lean_sessions_take_less_memory_of_their_own(repository: Path) -> None:
    usual, lean = (private_kib(repository, default_bundle_path(), lean=lean) for lean in (False, True))
    assert lean < usual - 7_000, "its products have 10,600 KiB"


def private_kib(repository: Path, path: Path, lean: bool = False) -> int:
    """Return the private memory (KiB) that an encoder's first query takes."""
    done = subprocess.run(
        [sys.executable, "-c", _PRIVATE, str(path), "lean" if lean else ""],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


_PRIVATE = """
import sys
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
import numpy, tokenizers

def private():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

import_onnxruntime()
before = private()
open_encoder(sys.argv[1], lean=bool(sys.argv[2])).encode_query("cat")
print(private() - before)
"""
