"""The quantizer that a checkpoint was trained with, as a file of its bundle."""

from __future__ import annotations

from pathlib import Path

from quarry.exporters.checkpoint.checkpoint import Checkpoint
from quarry.exporters.checkpoint.files import require_file
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile
from quarry.formats.vectors.quantizer import open_quantizer

__all__ = ["quantizer_file"]


def quantizer_file(checkpoint: Checkpoint) -> dict[str, Path]:
    """The file by its name in the bundle, which is the same; nothing if the checkpoint names no quantizer.

    Raises:
        InvalidSetting: the file is missing.
        FormatError: it is damaged.
        CorruptFile: it is for vectors of another length than the checkpoint's.
    """
    name = checkpoint.encoder_use.quantizer
    if name is None:
        return {}
    path = require_file(checkpoint.path, name)
    dim = checkpoint.head.dim(checkpoint.n_hidden)
    quantizer = open_quantizer(Directory(checkpoint.path), name).quantizer
    if quantizer.input_dim != dim:
        raise CorruptFile(
            "the quantizer is for vectors of another length", path=path, expected=dim, actual=quantizer.input_dim
        )
    return {name: path}
