"""What a stage-1 backend is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quarry.engine.gpu.device import Device
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.scoring.query_vectors import Queries
from quarry.formats.snapshot import OpenSegment

__all__ = ["Backend", "BackendType", "Candidates", "DeviceBackend", "Resources", "Wanted"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The documents of one segment that stage 2 shall rescore for one query.

    Attributes:
        docs: (n,) int64 document ordinals, distinct, all of them allowed, in any order; ascending with `rows`.
        ceiling: no other allowed document can have a score above this: -inf when all are in, +inf when
            nothing is known.
        scores: (n,) float32, the final score of each, where the backend has computed them; None: stage 2 does.
            Final is the query in full precision against the centroids as stored, aggregated with `Wanted.beta`.
        whole_lists: whether every document with a centroid in the inverted lists that were read is among `docs`.
        bounds: (n,) float64, no document of `docs` has a score above its own; None: nothing is known, as where
            codes or a graph stand for the centroids. Stage 2 need not rescore what cannot be among the best.
        rows: (m,) int64, ascending: the centroids by which the documents were found, one of each at least; None:
            not known. Stage 2 may score these first, and rescore in full only the documents with the best of them.
    """

    docs: npt.NDArray[np.int64]
    ceiling: float
    scores: npt.NDArray[np.float32] | None = None
    whole_lists: bool = False
    bounds: npt.NDArray[np.float64] | None = None
    rows: npt.NDArray[np.int64] | None = None


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
        beta: inverse temperature of the softmax aggregation that final scores have, None: the maximum. A backend
            that gives no final scores may rank by the maximum all the same: a final score is never above it.
    """

    k: int
    n: int
    nprobe: int | None
    threads: int
    allowed: npt.NDArray[np.bool_] | None = None
    beta: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """What a backend may use.

    Attributes:
        threads: for building an index in memory.
        device: of backend "gpu", with the account of its memory.
    """

    threads: int = 1
    device: Device = field(default_factory=Device)


class Backend(Protocol):
    """Stage 1 over one segment: finds the documents whose best centroid has the largest score.

    One that holds the centroids where it works may give the final scores of stage 2 too (`Candidates.scores`).

    A backend is made for one open segment and never changes; it may be used from several threads at once. All
    that it holds goes when the last reference to it does: a search that is under way keeps its own.
    """

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """Find candidates for each of (n_queries, dim) float32 queries, all finite.

        There are about `wanted.n` for each query, and never fewer than the smaller of `wanted.k` and the number
        of documents that may be found, by any means.

        Raises:
            BackendUnavailable: a device failed; another backend may do.
        """
        ...

    @property
    def resident_bytes(self) -> int:
        """Main memory of its own, in bytes: copies and tables; not the mapped files, nor what a search needs."""
        ...

    @property
    def device_bytes(self) -> int:
        """Memory of an accelerator, in bytes; 0 without one."""
        ...


@runtime_checkable
class DeviceBackend(Protocol):
    """A `Backend` that may take queries from a device as they are, instead of out of main memory."""

    def takes(self, queries: DeviceVectors) -> bool:
        """Whether it takes these."""
        ...

    def candidates(self, queries: Queries, wanted: Wanted) -> list[Candidates]:
        """See `Backend.candidates`; queries from a device are checked here, or when they are fetched from it.

        Raises:
            InvalidQuery: a number of a query is not finite, or above 1e18.
        """
        ...


class BackendType(Protocol):
    """What the registry finds: makes backends, and says beforehand what one needs."""

    def __call__(self, segment: OpenSegment, resources: Resources) -> Backend:
        """Open a backend for a segment."""
        ...

    def needed_bytes(self, segment: OpenSegment) -> int:
        """About the `resident_bytes` that the backend of this segment will have, without opening it."""
        ...
