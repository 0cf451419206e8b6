"""The interface of stage 1: a backend, its search parameters, and the candidates that it returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from quarry.engine.scoring.query_vectors import Queries, VectorsOnDevice
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "Accelerator",
    "Backend",
    "BackendType",
    "BoundedCandidates",
    "Candidates",
    "DeviceBackend",
    "Resources",
    "RowCandidates",
    "ScoredCandidates",
    "SearchParameters",
    "UnscoredCandidates",
]


@dataclass(frozen=True, eq=False)
class UnscoredCandidates:
    """Documents whose scores are unknown; stage 2 scores them all.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, all of them allowed, in any order.
        exactness: EXACT if these are all allowed documents, PROBED_LISTS if they are all documents with a centroid
            in the inverted lists that were read, otherwise APPROXIMATE.
    """

    docs: Int64Array
    exactness: Exactness

    @property
    def upper_bound(self) -> float:
        """The upper bound of the score of every other document: -inf without others, else +inf."""
        return -math.inf if self.exactness is Exactness.EXACT else math.inf


@dataclass(frozen=True, eq=False)
class RowCandidates:
    """Documents found by some of their centroids, by an approximate method.

    Stage 2 may score these centroids first, and then only the documents with the best of them.

    Attributes:
        docs: (n,) int64 document ordinals, ascending, distinct, all of them allowed.
        rows: (m,) int64, ascending: the centroids that were found, at least one of each document.
    """

    upper_bound: ClassVar[float] = math.inf
    exactness: ClassVar[Exactness] = Exactness.APPROXIMATE
    docs: Int64Array
    rows: Int64Array


@dataclass(frozen=True, eq=False)
class BoundedCandidates:
    """Documents with upper bounds of their scores; stage 2 skips those that cannot be among the best.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, all of them allowed, in any order.
        bounds: (n,) float64, upper bound of the score of each.
        upper_bound: upper bound of the score of every other allowed document; -inf without others.
    """

    exactness: ClassVar[Exactness] = Exactness.EXACT
    docs: Int64Array
    bounds: Float64Array
    upper_bound: float

    @classmethod
    def of_best(cls, scores: Float32Array, n: int, slack: float = 0.0, margin: float = 0.0) -> BoundedCandidates:
        """Return the n documents with the largest scores, and all that tie with the last of them.

        Args:
            scores: (n_docs,) approximate scores, each at most `slack` below the exact one; -inf if a document is
                not allowed.
            n: number of documents, at least 1.
            slack: see `scores`.
            margin: how far below the n-th score a document is returned too; twice the largest error in either
                direction includes the n best by exact score, and what ties with them.
        """
        least = -math.inf if n >= len(scores) else float(np.partition(scores, len(scores) - n)[-n]) - margin
        is_best = scores >= least
        docs = np.flatnonzero(is_best & (scores > -np.inf))
        rest = float(scores[~is_best].max(initial=-np.inf)) + slack
        return cls(docs, scores[docs].astype(np.float64) + slack, rest)


@dataclass(frozen=True, eq=False)
class ScoredCandidates:
    """Documents with their final scores, from a backend that does stage 2 too.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, all of them allowed, in any order.
        scores: (n,) float32: the query in full precision against the centroids as stored, aggregated with
            `SearchParameters.beta`.
        upper_bound: upper bound of the score of every other allowed document: -inf without others, +inf if
            unknown.
    """

    docs: Int64Array
    scores: Float32Array
    upper_bound: float

    @property
    def exactness(self) -> Exactness:
        """EXACT if an upper bound is known."""
        return Exactness.EXACT if self.upper_bound < math.inf else Exactness.APPROXIMATE


Candidates: TypeAlias = UnscoredCandidates | RowCandidates | BoundedCandidates | ScoredCandidates
"""The documents of one segment that stage 1 found for one query, by what is known about their scores.

All have `docs`, `upper_bound` and `exactness`: what holds for the answer once its k-th score is above
`upper_bound`.
"""


@dataclass(frozen=True, slots=True, eq=False)
class SearchParameters:
    """Parameters of stage 1.

    Attributes:
        k: number of hits.
        n: number of candidates for each query, at least k.
        nprobe: number of inverted lists to read, if there are lists; None: the backend's default.
        threads: number of threads that the backend may use.
        allowed: (n_docs,) bool, the documents of this segment that may be found, none of them deleted; None: all
            that are not deleted.
        beta: inverse temperature of the softmax aggregation of final scores, None: the maximum. A backend that
            returns no final scores may rank by the maximum anyway, since a final score never exceeds it.
    """

    k: int
    n: int
    nprobe: int | None
    threads: int
    allowed: BoolArray | None = None
    beta: float | None = None


class Accelerator(Protocol):
    """The device of backend "gpu" with its memory budget, see `quarry.engine.gpu.device.Device`."""

    @property
    def place(self) -> Any: ...  # noqa: ANN401, D102  # a torch device; raises if there is none
    def trim(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """Resources that a backend may use.

    Attributes:
        threads: number of threads for building an index in memory.
        device: the device of backend "gpu"; None: the first CUDA device, for a single segment.
        graph_step_rows: see `quarry.engine.thresholds.Thresholds`.
    """

    threads: int = 1
    device: Accelerator | None = None
    graph_step_rows: int = Thresholds.graph_step_rows


class Backend(Protocol):
    """Stage 1 over one segment: finds the documents whose best centroid has the largest score.

    A backend is made for one open segment and never changes; it may be used from several threads at once. Its
    memory is freed with the last reference to it, and a search in progress keeps one.
    """

    def candidates(self, queries: Float32Array, parameters: SearchParameters) -> Sequence[Candidates]:
        """Find candidates for each of (n_queries, dim) float32 queries, all finite.

        There are about `parameters.n` for each query, and at least the smaller of `parameters.k` and the number
        of documents that may be found.

        Raises:
            BackendUnavailable: a device failed; another backend may work.
        """
        ...

    @property
    def resident_bytes(self) -> int:
        """Main memory of copies and tables, in bytes, without mapped files and temporary memory of a search."""
        ...

    @property
    def device_bytes(self) -> int:
        """Memory of an accelerator, in bytes; 0 without one."""
        ...


@runtime_checkable
class DeviceBackend(Protocol):
    """A `Backend` that can use queries on a device without a copy to main memory."""

    def accepts(self, queries: VectorsOnDevice) -> bool:
        """Return whether `candidates` can be called with these."""
        ...

    def candidates(self, queries: Queries, parameters: SearchParameters) -> Sequence[Candidates]:
        """Find candidates, see `Backend.candidates`; queries on a device are validated together with the answer.

        Raises:
            InvalidQuery: a number of a query is not finite, or above 1e18.
        """
        ...


class BackendType(Protocol):
    """A class of backends: opens them, and estimates their memory before."""

    __name__: str

    def __call__(self, segment: OpenSegment, resources: Resources) -> Backend:
        """Open a backend for a segment."""
        ...

    def needed_bytes(self, segment: OpenSegment) -> int:
        """Estimate the `resident_bytes` of the backend of this segment, without opening it."""
        ...
