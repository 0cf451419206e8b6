"""SIMD scan of all centroids of a segment, for segments too small to gain from inverted lists.

Stage-1 scores are approximate (the query is rounded to int8 or float16) with a known error, so the upper bound of
the other documents lets the searcher prove that its answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import cast

import numpy as np

from quarry.engine.backends.protocol import (
    BoundedCandidates,
    Resources,
    SearchParameters,
    UnscoredCandidates,
)
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.scoring.stored_vectors import Float16Query, int8_query
from quarry.formats.arrays import BoolArray, Float32Array, Int8Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.snapshot import OpenSegment

__all__ = ["ScanBackend"]

_BATCH_ROWS = 65536  # compared at a time
_GATHER_FACTOR = 4  # rows read in sequence in the time that it takes to read one row of a selected document
_FLOAT_ROUNDING = 1e-6  # of float32 numbers that are computed from exact sums, relative to the norms


class ScanBackend:
    """Reads all stored centroids; requires "int8" or "float16" centroids."""

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.device_bytes = 0
        self.resident_bytes = self.needed_bytes(segment)
        self._table = segment.reader.centroids
        self._distance_dim = segment.distance_dim
        self._deleted = segment.deleted_passages

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """Return the size of the norms of all rows for Euclidean distances, otherwise 0: the file is mapped."""
        return 0 if segment.distance_dim is None else 4 * segment.reader.n_rows

    def candidates(
        self, queries: Float32Array, parameters: SearchParameters
    ) -> list[BoundedCandidates] | list[UnscoredCandidates]:
        """See `quarry.engine.backends.protocol.Backend`; returns `parameters.n`, or all if there are fewer.

        If a filter allows only few documents, all of them are candidates.
        """
        allowed = parameters.allowed
        if allowed is not None and np.count_nonzero(allowed) * _GATHER_FACTOR < len(allowed):
            return [UnscoredCandidates(np.flatnonzero(allowed), Exactness.EXACT)] * len(queries)
        excluded = self._deleted if allowed is None else ~allowed
        return [self._scan(query, parameters.n, excluded) for query in queries]

    def _scan(self, query: Float32Array, n: int, excluded: BoolArray | None) -> BoundedCandidates:
        if self._distance_dim is not None:
            query = np.where(np.arange(len(query)) < self._distance_dim, query, np.float32(0))
        is_int8 = self._table.kind == "int8"
        scores, rounding = self._int8_scores(query) if is_int8 else self._float16_scores(query)
        slack = rounding * self._table.largest_norm
        if self._distance_dim is not None:
            scores, slack = self._distance_bounds(query, scores, rounding), 0.0
        best = np.maximum.reduceat(scores, self._table.offsets[:-1])
        if excluded is not None:
            best[excluded] = -np.inf
        return BoundedCandidates.of_best(best, n, slack=slack)

    def _distance_bounds(self, query: Float32Array, products: Float32Array, rounding: float) -> Float32Array:
        """Return upper bounds of minus half of the squared distances of all rows: (n_rows,) float32.

        Norms may differ by orders of magnitude, so each row has a bound by its own.

        Args:
            query: (dim,) float32, with zeros for the numbers that are not compared.
            products: (n_rows,) float32 approximate inner products with it.
            rounding: their maximum error for a row of length 1.
        """
        norms = self._norms.astype(np.float64)
        squares = norms**2 + float(np.linalg.norm(query.astype(np.float64))) ** 2
        bounds = np.minimum(products + rounding * norms - (0.5 - _FLOAT_ROUNDING) * squares, 0)
        return np.maximum(bounds, np.finfo(np.float32).min).astype(np.float32)

    @cached_property
    def _norms(self) -> Float32Array:
        """(n_rows,) float32 norms of the vectors whose distances are compared."""
        norms = np.empty(self._table.n_rows, np.float32)
        for low, high in self._batches():
            values, scales = self._table.stored_slice(low, high)
            vectors = values[:, : self._distance_dim].astype(np.float32)
            norms[low:high] = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * scales
        return norms

    def _int8_scores(self, query: Float32Array) -> tuple[Float32Array, float]:
        """Return (n_rows,) float32 approximate scores, and their maximum error for a centroid of length 1."""
        rounded, scores = int8_query(query), np.empty(self._table.n_rows, np.float32)
        for low, high in self._batches():
            values, scales = self._table.stored_slice(low, high)
            scores[low:high] = rounded.approximate_scores(cast(Int8Array, values), scales)
        return scores, rounded.rounding + _FLOAT_ROUNDING * float(np.linalg.norm(query))

    def _float16_scores(self, query: Float32Array) -> tuple[Float32Array, float]:
        """Return the same for float16 centroids."""
        rounded, scores = Float16Query(query), np.empty(self._table.n_rows, np.float32)
        for low, high in self._batches():
            scores[low:high] = rounded.approximate_scores(self._table.stored_slice(low, high)[0])
        return scores, rounded.rounding

    def _batches(self) -> Iterator[tuple[int, int]]:
        for low in range(0, self._table.n_rows, _BATCH_ROWS):
            stop_if_cancelled()
            yield low, min(low + _BATCH_ROWS, self._table.n_rows)
