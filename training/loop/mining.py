"""Rounds of mining: negatives that an index finds, kept so that a resumed run finds them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.formats.errors import CorruptFile
from quarry.training.data.batches import BatchSource
from quarry.training.data.example_store import ExampleStore
from quarry.training.data.negatives import NegativeSettings, mine_negatives
from quarry.training.loop.encoder_learner import Student
from quarry.training.model.torch_encoder import TorchEncoder

__all__ = ["Miner"]


def _student_encoder(student: Student, name: str) -> Encoder:
    """The network under training as an encoder, which the index of a round is built with.

    Args:
        student: as it is now.
        name: another one whenever the weights have changed.
    """
    student.network.model.eval()
    is_pooled = student.files.representation == "pooled"
    pool = student.objective.represent_queries if is_pooled else None
    return TorchEncoder(student.network, student.files, name, pool)


class Miner:
    """Mines negatives at the first step and every so many steps (ANCE, Xiong et al. 2021).

    Args:
        settings: how to mine.
        sources: whose negatives.
        encoder: makes the vectors of indexes and queries; a student, as it is when a round begins.
        seed: the seed of every draw.
        folder: the folder of the negatives of each round.
    """

    def __init__(
        self,
        settings: NegativeSettings,
        sources: list[BatchSource],
        encoder: Encoder | Student,
        seed: int,
        folder: Path,
    ) -> None:
        self._settings, self._sources, self._encoder = settings, sources, encoder
        self._seed, self._folder = seed, folder
        self._round = -1

    def before_step(self, step: int) -> None:
        """Give the sources the negatives of the step's round, mined now unless they were mined before."""
        number = step // self._settings.every if self._settings.every else 0
        if number == self._round:
            return
        folder = self._folder / f"round-{number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        encoder = self._encoder
        if isinstance(encoder, Student):
            with encoder.weights_in_use():
                self._mine(number, folder, _student_encoder(encoder, f"round {number}"))
        else:
            self._mine(number, folder, encoder)
        self._round = number

    def _mine(self, number: int, folder: Path, encoder: Encoder) -> None:
        """Give the sources the negatives of a round; those in its folder are kept."""
        for source in self._sources:
            path = folder / f"{source.name}.npy"
            if not path.is_file():
                partial = path.with_suffix(".partial.npy")
                np.save(partial, mine_negatives(source.store, encoder, self._settings, self._seed + number))
                partial.rename(path)
            source.use_negatives(_load(path, source.store, self._settings.count))


def _load(path: Path, store: ExampleStore, count: int) -> npt.NDArray[np.int64]:
    """The negatives of a round; see `mine_negatives`.

    Raises:
        CorruptFile: they cannot be read, or are not those of the store.
    """
    try:
        negatives: npt.NDArray[np.int64] = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptFile(
            f"the negatives cannot be read: {error}", path=path, expected="a whole file, or none: it is made again"
        ) from error
    shape = store.n_examples, count
    fits = negatives.shape == shape and negatives.dtype == np.int64
    if not fits or negatives.min() < -1 or negatives.max() >= store.n_documents:
        raise CorruptFile(
            "the negatives are not those of the source",
            path=path,
            expected=f"{shape} int64 numbers of {store.n_documents} documents",
            actual=f"{negatives.shape} {negatives.dtype}",
        )
    return negatives
