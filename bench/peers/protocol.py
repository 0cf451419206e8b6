"""What an adapter of a peer offers. Its module imports the peer inside functions: it may not be installed here.

An adapter's module has

- ``REQUIREMENTS``: what to install for it;
- ``IMPORTS``: the modules it imports, so that the time to import them is measured separately; and
- ``Index``: a class with the methods of `PeerIndex`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Corpus", "Found", "PeerIndex", "Vector"]

Vector = npt.NDArray[np.float32]
"""(dim,) float32, L2 norm 1; for late interaction (n_tokens, dim), all of length 1."""

Found = list[tuple[str, float]]
"""Document ids and scores, larger is better, best first."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """What a peer is to index.

    Attributes:
        ids: of the documents.
        texts: of the documents; None where a peer shall keep vectors and ids alone.
        vectors: (n_rows, dim) float32, L2 norm 1.
        offsets: (n + 1,) int64: each document's first row; as a rule it has one.
    """

    ids: list[str]
    texts: list[str] | None
    vectors: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]


class PeerIndex(Protocol):
    """One peer's index in a folder.

    Args:
        folder: of the index.
        settings: of the variant that is measured, from `bench.peers.registry`.
    """

    def __init__(self, folder: Path, settings: dict[str, object]) -> None: ...

    def build(self, corpus: Corpus) -> None:
        """Make the index and write it to disk, durably as the peer does it."""
        ...

    def open(self) -> None:
        """Open what `build` wrote, in another process."""
        ...

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Answer one query, by its text or its vector; stored texts are read with the hits."""
        ...
