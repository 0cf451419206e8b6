"""The state of a run on disk: complete or not there."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from quarry.formats.container.directory import sync_folder, sync_tree
from quarry.formats.errors import CorruptFile

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-(\d{8})")
_STATE_NAME = "state.pt"
_N_KEPT = 2  # of the latest checkpoints


class Checkpoints:
    """The checkpoints of a run: folders ``step-00000100`` that are written aside and renamed when complete.

    Args:
        folder: of the checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> tuple[int, Path] | None:
        """The number of finished steps and the folder of the latest checkpoint; None when there is none."""
        found = self._complete()
        return found[-1] if found else None

    def save(self, step: int, state: dict[str, Any], write_model: Callable[[Path], None]) -> Path:
        """Write a checkpoint after `step` steps; after a power loss it is whole or not there.

        Args:
            step: number of finished steps.
            state: tensors and plain values.
            write_model: writes the model's files into a folder, which it makes.
        """
        target = self._folder / f"step-{step:08d}"
        partial = self._folder / f".{target.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_model(partial)
        torch.save(state, partial / _STATE_NAME)
        sync_tree(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        sync_folder(self._folder)
        for _, old in self._complete()[:-_N_KEPT]:
            shutil.rmtree(old)
        return target

    def load(self, folder: Path) -> dict[str, Any]:
        """Read the state of a checkpoint; nothing in it is executed.

        Raises:
            CorruptFile: it cannot be read.
        """
        try:
            state: dict[str, Any] = torch.load(folder / _STATE_NAME, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
            raise CorruptFile(
                f"the state of the run cannot be read: {error}", path=folder / _STATE_NAME
            ) from error
        return state

    def _complete(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return sorted((int(match[1]), path) for match, path in named if match)
