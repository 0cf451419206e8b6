"""Reads the files of a checkpoint's folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "existing",
    "licence",
    "optional_object",
    "plain_tokenizer",
    "read_json",
    "read_object",
    "read_tensors",
    "sha256_of",
    "subfolder",
]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


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


def read_json(path: Path) -> object:
    """Parse a file.

    Raises:
        CorruptFile: it is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
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
        CorruptFile: it is no such file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None
    return {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}


def plain_tokenizer(path: Path) -> bytes:
    """Return the contents of tokenizer.json, with neither padding nor truncation.

    Raises:
        CorruptFile: it is no tokenizer.
    """
    tokenizer = read_json(path)
    if not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise CorruptFile("not a tokenizer", path=path)
    tokenizer["padding"] = tokenizer["truncation"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def licence(folder: Path) -> str:
    """Return what the front matter of README.md, between two lines of dashes, calls ``license``."""
    readme = folder / "README.md"
    lines = readme.read_text("utf-8", errors="replace").splitlines() if readme.is_file() else []
    if lines[:1] == ["---"]:
        for line in takewhile("---".__ne__, lines[1:]):
            key, _, value = line.partition(":")
            if key == "license" and value.strip():
                return value.strip()
    return "unknown"


def sha256_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of one or more files, one behind the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
