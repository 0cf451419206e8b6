"""Reads ONNX graphs whose weights are in separate files (external data)."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

from quarry.exporters.checkpoint.files import is_outside, require_file
from quarry.formats.bundle.onnx_check import check_graph
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["find_data_paths", "read_model"]

_MOST_BYTES = 2**31 - 2**20  # of a graph with its weights inside


def find_data_paths(path: Path) -> list[Path]:
    """Return the files with the weights of a graph, sorted by name.

    Raises:
        CorruptFile: the file is not a graph, or a name or symbolic link leads out of the folder.
        InvalidSetting: a file is missing.
    """
    model = _parse(path)
    names = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in names:
        if Path(name).name != name or "\\" in name or is_outside(path.parent / name):
            raise CorruptFile("weights are outside the checkpoint's folder", path=path, actual=repr(name)[:200])
    return [require_file(path.parent, name) for name in sorted(names)]


def read_model(path: Path) -> onnx.ModelProto:
    """Read an untrusted graph and move external weights into it.

    Raises:
        CorruptFile: the file is not a graph, `quarry.formats.bundle.onnx_check.check_graph` refuses it, or weights
            are outside its folder.
        InvalidSetting: graph and weights are too large to be one file.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise InvalidSetting("the graph is too large", path=path, expected=f"at most {_MOST_BYTES} bytes")
    paths = find_data_paths(path)
    n_bytes = sum(each.stat().st_size for each in (path, *paths))
    if n_bytes > _MOST_BYTES:
        raise InvalidSetting(
            "the graph is too large", path=path, expected=f"at most {_MOST_BYTES} bytes", actual=n_bytes
        )
    check_graph(path, {each.name: each.stat().st_size for each in paths})
    model = _parse(path)
    contents = {each.name: each.read_bytes() for each in paths}
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            _embed(tensor, contents)
    return model


def _parse(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's error; protobuf is not a direct dependency
        raise CorruptFile(f"not an ONNX model: {error}", path=path) from error


def _embed(tensor: onnx.TensorProto, contents: dict[str, bytes]) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    content = contents[entries["location"]]
    offset = int(entries.get("offset", 0))
    length = int(entries.get("length", len(content) - offset))
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = content[offset : offset + length]
