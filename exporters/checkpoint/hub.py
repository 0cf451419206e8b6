"""Finds a checkpoint: a folder, or a name on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from quarry.engine.process.libraries import requiring
from quarry.formats.bundle.folder import MANIFEST_NAME
from quarry.formats.errors import InvalidSetting

__all__ = ["find_checkpoint_folder"]

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
