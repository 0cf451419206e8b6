"""The quantizer of a checkpoint: a quantizer file beside the weights, as an index has it."""

from __future__ import annotations

import json
from pathlib import Path

from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile
from quarry.formats.vectors.quantizer import Quantizer, open_quantizer, write_quantizer

__all__ = ["read_checkpoint_quantizer", "write_checkpoint_quantizer"]


def write_checkpoint_quantizer(folder: Path, quantizer: Quantizer) -> str:
    """Write a quantizer into the folder of a checkpoint and return its name, that of its content."""
    return write_quantizer(Directory(folder), quantizer).name


def read_checkpoint_quantizer(folder: Path) -> Quantizer | None:
    """Read the quantizer that a checkpoint was trained with, None if it names none.

    Raises:
        CorruptFile: quarry.json or the quantizer cannot be read.
        FormatError: the quantizer is damaged.
    """
    path = folder / "quarry.json"
    if not path.is_file():
        return None
    try:
        name = json.loads(path.read_text("utf-8")).get("quantizer")
    except (ValueError, AttributeError) as error:
        raise CorruptFile(f"the settings of the checkpoint cannot be read: {error}", path=path) from error
    if name is None:
        return None
    if not isinstance(name, str):
        raise CorruptFile("bad 'quantizer'", path=path, expected="the name of a file", actual=repr(name))
    return open_quantizer(Directory(folder), name).quantizer
