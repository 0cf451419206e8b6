"""What a stage-1 backend is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Backend", "Candidates", "Wanted"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The documents of one segment that stage 2 shall rescore for one query.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, all of them allowed, in any order.
        ceiling: no other allowed document can have a score above this: -inf when all are in, +inf when
            nothing is known.
    """

    docs: npt.NDArray[np.int64]
    ceiling: float


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a search asks of stage 1.

    Attributes:
        k: hits wanted in the end.
        n: candidates wanted for each query, at least k.
        nprobe: inverted lists to read, where there are lists; None: the backend's default.
        threads: how many the backend may use.
        allowed: (n_docs,) bool, the documents of this segment that may be found, none of them deleted; None: all
            that are not deleted.
    """

    k: int
    n: int
    nprobe: int | None
    threads: int
    allowed: npt.NDArray[np.bool_] | None = None


class Backend(Protocol):
    """Stage 1 over one segment: finds the documents whose best centroid has the largest score.

    A backend is made for one open segment and never changes; it may be used from several threads at once.
    """

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """Find candidates for each of (n_queries, dim) float32 queries, all finite.

        There are about `wanted.n` for each query, and never fewer than the smaller of `wanted.k` and the number
        of documents that may be found, by any means.
        """
        ...
