"""Interface of an adapter, which calls one library. Its module imports the library only inside functions.

An adapter's module has

- ``REQUIREMENTS``: what to install for it;
- ``IMPORTS``: the modules it imports, whose import time is measured separately;
- ``Index``: a class with the methods of `PeerIndex`, usually derived from `FolderIndex`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Corpus", "FolderIndex", "PeerIndex", "Ranking", "Vector"]

Vector = npt.NDArray[np.float32]
"""(dim,) float32, L2 norm 1."""

Ranking = list[tuple[str, float]]
"""Document ids and scores, larger is better, best first."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The documents to index.

    Attributes:
        ids: the ids of the documents.
        texts: the texts of the documents; None: only vectors and ids are indexed.
        vectors: (n_rows, dim) float32, L2 norm 1.
        offsets: (n + 1,) int64, first row of each document; usually it has one.
    """

    ids: list[str]
    texts: list[str] | None
    vectors: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]

    def batches(self, size: int) -> list[slice]:
        """Return slices of at most `size` documents."""
        return [slice(low, low + size) for low in range(0, len(self.ids), size)]


class PeerIndex(Protocol):
    """The index of one library in a folder.

    Args:
        folder: the folder of the index.
        settings: the settings of the measured variant, from `bench.peers.registry`.
    """

    def __init__(self, folder: Path, settings: dict[str, object]) -> None: ...

    def build(self, corpus: Corpus) -> None:
        """Build the index and write it to disk, as durably as the library does it by default."""
        ...

    def open(self) -> None:
        """Open the index in another process."""
        ...

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by text or vector; stored texts are read with the hits."""
        ...


class FolderIndex:
    """Base class of adapters: folder, settings, and document ids for libraries that store only row numbers.

    Args:
        folder: see `PeerIndex`.
        settings: see `PeerIndex`.
    """

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self._folder = folder
        self._settings = settings
        self._ids: list[str] = []

    def _write_ids(self, ids: list[str]) -> None:
        (self._folder / "ids.json").write_text(json.dumps(ids), encoding="utf-8")

    def _read_ids(self) -> None:
        self._ids = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))

    def _to_hits(self, rows: Sequence[int], scores: Sequence[float]) -> Ranking:
        """Return ids and scores of rows; negative rows are skipped."""
        return [(self._ids[row], score) for row, score in zip(rows, scores, strict=True) if row >= 0]
