"""Rounds of mining: negatives of the current checkpoint, kept so that a resumed run finds them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from quarry.training.data.batches import BatchSource
from quarry.training.data.negatives import NegativeSettings, mine_negatives
from quarry.training.loop.trainer import Student
from quarry.training.model.torch_encoder import TorchEncoder

__all__ = ["Miner"]


class Miner:
    """Mines negatives at the first step and every so many steps (ANCE, Xiong et al. 2021).

    Args:
        settings: how to mine.
        sources: whose negatives.
        student: the network that searches, in dense and hybrid mode.
        seed: of every draw.
        folder: of the negatives of each round.
    """

    def __init__(
        self, settings: NegativeSettings, sources: list[BatchSource], student: Student, seed: int, folder: Path
    ) -> None:
        self._settings, self._sources, self._student = settings, sources, student
        self._seed, self._folder = seed, folder
        self._round = -1

    def before_step(self, step: int) -> None:
        """Give the sources the negatives of the step's round, mined now unless they were mined before."""
        number = step // self._settings.every if self._settings.every else 0
        if number == self._round:
            return
        folder = self._folder / f"round-{number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        self._student.network.model.eval()
        student = self._student
        is_pooled = student.files.representation == "pooled"
        pool = student.objective.represent_queries if is_pooled else None
        encoder = TorchEncoder(student.network, student.files, f"round {number}", pool)
        for source in self._sources:
            path = folder / f"{source.name}.npy"
            if not path.is_file():
                partial = path.with_suffix(".partial.npy")
                np.save(partial, mine_negatives(source.store, encoder, self._settings, self._seed + number))
                partial.rename(path)
            source.use_negatives(np.load(path))
        self._round = number
