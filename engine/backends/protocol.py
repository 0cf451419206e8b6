"""What a stage-1 backend is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from formats.snapshot import OpenSegment

__all__ = ["Backend", "BackendFactory", "Candidates"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The documents of one segment that stage 2 shall rescore for one query.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, none deleted, in any order.
        ceiling: no document that is not in `docs` can have a score above this: -inf when all are in, +inf when
            nothing is known.
    """

    docs: npt.NDArray[np.int64]
    ceiling: float


class Backend(Protocol):
    """Stage 1 over one segment: finds the documents whose best centroid has the largest score.

    A backend is made for one open segment and never changes; it may be used from several threads at once. It
    returns at least min(n, live documents) candidates, by any means.
    """

    def candidates(
        self, queries: npt.NDArray[np.float32], n: int, nprobe: int | None, threads: int
    ) -> list[Candidates]:
        """Find candidates.

        Args:
            queries: (n_queries, dim) float32, finite.
            n: how many documents are wanted for each query.
            nprobe: inverted lists to read, where the backend has lists; None: its default.
            threads: how many it may use.
        """
        ...


BackendFactory = Callable[[OpenSegment], Backend]
