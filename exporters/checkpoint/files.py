"""Reads single files of a checkpoint's folder, and ONNX graphs whose weights are in further files."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from quarry.engine.process.libraries import requiring
from quarry.formats.bundle.folder import MANIFEST_NAME
from quarry.formats.bundle.onnx_check import check_graph
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "count_tensors",
    "find_checkpoint_folder",
    "find_data_paths",
    "find_license_files",
    "is_outside",
    "optional_object",
    "plain_tokenizer",
    "read_card_field",
    "read_json",
    "read_model",
    "read_object",
    "read_tensors",
    "require_file",
    "subfolder",
]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LICENSE_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt")
_MAX_LICENSE_BYTES = 1 << 20
_MAX_NAME = 200  # characters of the name of a license or model
_MAX_FRONT_BYTES = 1 << 16  # of README.md
_MAX_JSON_BYTES = 1 << 24
_MAX_TOKENIZER_BYTES = 1 << 27


def require_file(folder: Path, name: str) -> Path:
    """Return the path of a required file.

    Raises:
        InvalidSetting: the file is missing.
    """
    path = folder / name
    if not path.is_file():
        raise InvalidSetting("the checkpoint lacks a file", path=folder, expected=name)
    return path


def subfolder(folder: Path, name: str) -> Path:
    """Return a subfolder, or the folder itself if the name is empty.

    Raises:
        CorruptFile: the name could lead out of the folder.
    """
    if name and not _PLAIN_NAME.fullmatch(name):
        raise CorruptFile("not the name of a folder within the checkpoint", path=folder, actual=name)
    return folder / name


def read_json(path: Path, max_bytes: int = _MAX_JSON_BYTES) -> object:
    """Parse a JSON file.

    Raises:
        CorruptFile: the file is not valid JSON, or larger than ``max_bytes``.
    """
    n_bytes = path.stat().st_size
    if n_bytes > max_bytes:
        raise CorruptFile(
            "the file is too large", path=path, expected=f"at most {max_bytes} bytes", actual=n_bytes
        )
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"not JSON: {error}", path=path) from None


def read_object(folder: Path, name: str) -> dict[str, object]:
    """Parse a required file with a JSON object.

    Raises:
        InvalidSetting: the file is missing.
        CorruptFile: it is not a JSON object.
    """
    path = require_file(folder, name)
    value = read_json(path)
    if not isinstance(value, dict):
        raise CorruptFile("not a JSON object", path=path, actual=type(value).__name__)
    return value


def optional_object(folder: Path, name: str) -> dict[str, object]:
    """Parse an optional file with a JSON object; return an empty one if the file is missing.

    Raises:
        CorruptFile: the file is not a JSON object.
    """
    return read_object(folder, name) if (folder / name).is_file() else {}


def read_tensors(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read a safetensors file, every tensor as float32.

    Raises:
        CorruptFile: it is not a safetensors file, or has tensors of a type that numpy does not have.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None
    except AttributeError as error:  # raised if numpy does not have the type
        raise CorruptFile(f"tensors of a type that cannot be read: {error}", path=path) from None
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "c":
            raise CorruptFile(f"{name!r} has complex numbers", path=path, actual=tensor.dtype)
    return {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}


def count_tensors(path: Path) -> int:
    """Return the number of tensors in a safetensors file, from its header.

    Raises:
        CorruptFile: it is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return len(file.keys())
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None


def plain_tokenizer(path: Path, lower_case: bool = False) -> bytes:
    """Return the contents of tokenizer.json without padding and truncation.

    Args:
        path: the file.
        lower_case: whether texts are changed to lower case before anything else is done with them.

    Raises:
        CorruptFile: it is not a tokenizer.
    """
    tokenizer = read_json(path, _MAX_TOKENIZER_BYTES)
    if not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise CorruptFile("not a tokenizer", path=path)
    tokenizer["padding"] = tokenizer["truncation"] = None
    if lower_case:
        normalizer = tokenizer.get("normalizer")
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, normalizer]}
        if normalizer is None:
            tokenizer["normalizer"] = {"type": "Lowercase"}
    try:
        return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CorruptFile(f"not a tokenizer: {error}", path=path) from None


def read_card_field(folder: Path, name: str) -> str | None:
    """Return a field of the front matter of README.md, such as ``license``; None: it is not there, or too long."""
    readme = folder / "README.md"
    lines = _read_beginning(readme).splitlines() if readme.is_file() else []
    if lines[:1] == ["---"]:
        for line in takewhile("---".__ne__, lines[1:]):
            key, _, value = line.partition(":")
            if key == name and 0 < len(plain := value.strip().strip("\"'")) <= _MAX_NAME:
                return plain
    return None


def find_license_files(folder: Path) -> dict[str, bytes | Path]:
    """Return the license files, which a bundle copies unchanged, by name.

    Raises:
        CorruptFile: a file is too large for a license, or is a symbolic link out of the folder (and of the hub's
            cache that it is a snapshot of): its target may be private.
    """
    licenses: dict[str, bytes | Path] = {
        name: folder / name for name in _LICENSE_NAMES if (folder / name).is_file()
    }
    for path in map(Path, licenses.values()):  # type: ignore[arg-type]
        if is_outside(path):
            raise CorruptFile(
                "a symbolic link leads out of the checkpoint's folder", path=path, actual=path.resolve()
            )
        if path.stat().st_size > _MAX_LICENSE_BYTES:
            raise CorruptFile("too large for a license", path=path, expected=f"at most {_MAX_LICENSE_BYTES} bytes")
    return licenses


def is_outside(path: Path) -> bool:
    """Return whether a file is a link out of its folder and out of the hub's cache (whose snapshots are links)."""
    folder = path.parent.resolve()
    cached = [each.parent / "blobs" for each in folder.parents if each.name == "snapshots"]
    return not any(path.resolve().is_relative_to(place) for place in (folder, *cached))


def _read_beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FRONT_BYTES).decode("utf-8", "replace")


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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+")
_PATTERNS = ["*.json", "*.safetensors", "*.md", "LICENSE*", "NOTICE*", "onnx/model.onnx*"]


def find_checkpoint_folder(source: str | Path) -> Path:
    """Return the folder of a checkpoint; ``owner/name`` is downloaded from the hub if there is no such folder.

    Raises:
        InvalidSetting: there is no such folder and no such name, the hub cannot be reached, or the path is a file
            or a bundle.
        BackendUnavailable: the name is one of the hub, and huggingface_hub is not installed.
    """
    folder = Path(source)
    if folder.exists():
        _check_folder(folder)
        return folder
    name = Path(source).as_posix()
    if not _NAME.fullmatch(name):
        raise InvalidSetting("there is no checkpoint", path=folder, expected="a folder, or owner/name on the hub")
    needed = f"there is no folder {name!r}, and a name on the Hugging Face hub needs its library"
    with requiring(needed, "huggingface_hub"):
        from huggingface_hub import snapshot_download
    try:
        return Path(snapshot_download(name, allow_patterns=_PATTERNS))
    except Exception as error:  # the library raises exceptions of many kinds
        raise InvalidSetting(
            f"there is no folder {name!r}, and the Hugging Face hub did not provide it: {error}",
            expected="a folder, or access to the hub",
        ) from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidSetting("a checkpoint is a folder", path=folder, actual="a file")
    if (folder / MANIFEST_NAME).is_file():
        raise InvalidSetting(
            "this is a bundle; other precisions are exported from its checkpoint",
            path=folder,
            expected="a checkpoint",
            actual=MANIFEST_NAME,
        )
