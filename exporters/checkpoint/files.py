"""Reads the files of a checkpoint's folder."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "count_tensors",
    "existing",
    "leads_out",
    "licence",
    "licence_files",
    "optional_object",
    "plain_tokenizer",
    "read_json",
    "read_object",
    "read_tensors",
    "subfolder",
]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LICENCE_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt")
_MAX_LICENCE_BYTES = 1 << 20
_MAX_NAME = 200  # characters of a licence's name
_MAX_FRONT_BYTES = 1 << 16  # of README.md
_MAX_JSON_BYTES = 1 << 24
_MAX_TOKENIZER_BYTES = 1 << 27


def existing(folder: Path, name: str) -> Path:
    """Return the path of a file that has to be there.

    Raises:
        InvalidSetting: it is not.
    """
    path = folder / name
    if not path.is_file():
        raise InvalidSetting("the checkpoint lacks a file", path=folder, expected=name)
    return path


def subfolder(folder: Path, name: str) -> Path:
    """Return a folder within, or the folder itself for an empty name.

    Raises:
        CorruptFile: the name is no plain one: it may lead elsewhere.
    """
    if name and not _PLAIN_NAME.fullmatch(name):
        raise CorruptFile("not the name of a folder within the checkpoint", path=folder, actual=name)
    return folder / name


def read_json(path: Path, max_bytes: int = _MAX_JSON_BYTES) -> object:
    """Parse a file.

    Raises:
        CorruptFile: it is no JSON, or longer than ``max_bytes``.
    """
    n_bytes = path.stat().st_size
    if n_bytes > max_bytes:
        raise CorruptFile("the file is too long", path=path, expected=f"at most {max_bytes} bytes", actual=n_bytes)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"not JSON: {error}", path=path) from None


def read_object(folder: Path, name: str) -> dict[str, object]:
    """Parse a JSON object that has to be there.

    Raises:
        InvalidSetting: there is no such file.
        CorruptFile: it is no JSON object.
    """
    path = existing(folder, name)
    value = read_json(path)
    if not isinstance(value, dict):
        raise CorruptFile("not a JSON object", path=path, actual=type(value).__name__)
    return value


def optional_object(folder: Path, name: str) -> dict[str, object]:
    """Parse a JSON object, an empty one where there is no file.

    Raises:
        CorruptFile: it is no JSON object.
    """
    return read_object(folder, name) if (folder / name).is_file() else {}


def read_tensors(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read a safetensors file, every tensor as float32.

    Raises:
        CorruptFile: it is no such file, or has tensors of a type that numpy lacks.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None
    except AttributeError as error:  # what asking numpy for a type that it lacks ends in
        raise CorruptFile(f"tensors of a type that cannot be read: {error}", path=path) from None
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "c":
            raise CorruptFile(f"{name!r} is of complex numbers", path=path, actual=tensor.dtype)
    return {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}


def count_tensors(path: Path) -> int:
    """Return how many tensors a safetensors file has, by its header alone.

    Raises:
        CorruptFile: it is no such file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return len(file.keys())
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None


def plain_tokenizer(path: Path) -> bytes:
    """Return the contents of tokenizer.json, with neither padding nor truncation.

    Raises:
        CorruptFile: it is no tokenizer.
    """
    tokenizer = read_json(path, _MAX_TOKENIZER_BYTES)
    if not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise CorruptFile("not a tokenizer", path=path)
    tokenizer["padding"] = tokenizer["truncation"] = None
    try:
        return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CorruptFile(f"not a tokenizer: {error}", path=path) from None


def licence(folder: Path) -> str:
    """Return what the front matter of README.md, between two lines of dashes, calls ``license``."""
    readme = folder / "README.md"
    lines = _beginning(readme).splitlines() if readme.is_file() else []
    if lines[:1] == ["---"]:
        for line in takewhile("---".__ne__, lines[1:]):
            key, _, value = line.partition(":")
            if key == "license" and 0 < len(value.strip()) <= _MAX_NAME:
                return value.strip()
    return "unknown"


def licence_files(folder: Path) -> dict[str, bytes | Path]:
    """Return the files that a bundle takes over as they are, by name.

    Raises:
        CorruptFile: one is too long for a licence, or a link that leads out of the folder and of the cache that it
            is a snapshot of: what it leads to is not the checkpoint's to give away.
    """
    found: dict[str, bytes | Path] = {name: folder / name for name in _LICENCE_NAMES if (folder / name).is_file()}
    for path in map(Path, found.values()):  # type: ignore[arg-type]
        if leads_out(path):
            raise CorruptFile("a link out of the checkpoint's folder", path=path, actual=path.resolve())
        if path.stat().st_size > _MAX_LICENCE_BYTES:
            raise CorruptFile("too long for a licence", path=path, expected=f"at most {_MAX_LICENCE_BYTES} bytes")
    return found


def leads_out(path: Path) -> bool:
    """Whether a file is a link out of its folder, and out of the hub's cache, whose snapshots are all links."""
    folder = path.parent.resolve()
    cached = [each.parent / "blobs" for each in folder.parents if each.name == "snapshots"]
    return not any(path.resolve().is_relative_to(place) for place in (folder, *cached))


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FRONT_BYTES).decode("utf-8", "replace")
