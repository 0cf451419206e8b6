"""Exact backend in plain numpy: all centroids of a segment against all queries. The oracle of the tests."""

from __future__ import annotations

import numpy as np

from quarry.engine.backends.protocol import BoundedCandidates, Resources, SearchParameters
from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.scoring.stored_vectors import StoredVectors, mean_share
from quarry.formats.arrays import Float32Array, Float64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.snapshot import OpenSegment

__all__ = ["ExactBackend"]

_BATCH_ROWS = 16384  # compared at a time
_BATCH_SCORES = 1 << 23  # scores in memory at a time, over all queries
_FLOAT_ROUNDING = 1e-5  # of float32 sums, relative to the norms
_FLOAT64_ROUNDING = 1e-14  # of float64 sums, relative to the squared norms


class ExactBackend:
    """Returns the documents with the largest scores, computed in float32 from the dequantized centroids.

    With softmax aggregation they are those with the largest maximum.
    """

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.resident_bytes = self.device_bytes = 0
        self._vectors = StoredVectors(segment)
        self._table = segment.reader.centroids
        self._distance_dim = segment.distance_dim
        self._mean_share = mean_share(segment)
        self._deleted = segment.deleted_passages

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """Return 0: everything is read from the mapped file."""
        return 0

    def candidates(self, queries: Float32Array, parameters: SearchParameters) -> list[BoundedCandidates]:
        """See `quarry.engine.backends.protocol.Backend`; the best `parameters.n` by final score are among them."""
        batch = max(1, _BATCH_SCORES // self._table.n_rows)
        candidates: list[BoundedCandidates] = []
        for low in range(0, len(queries), batch):
            candidates += self._search_batch(queries[low : low + batch], parameters)
        return candidates

    def _search_batch(self, queries: Float32Array, parameters: SearchParameters) -> list[BoundedCandidates]:
        offsets, share = self._table.offsets, self._mean_share
        best = np.stack([aggregate(scores, offsets, None, share) for scores in self._scores(queries)])
        excluded = self._deleted if parameters.allowed is None else ~parameters.allowed
        if excluded is not None:
            best[:, excluded] = -np.inf
        if self._distance_dim is not None:  # each score has an error by its own
            best *= np.float32(1 - _FLOAT_ROUNDING)
            return [BoundedCandidates.of_best(bounds, parameters.n) for bounds in best]
        rounding = _FLOAT_ROUNDING * self._vectors.largest_norm * np.linalg.norm(queries, axis=1)
        pairs = zip(best, rounding.tolist(), strict=True)
        return [BoundedCandidates.of_best(scores, parameters.n, slack, 2 * slack) for scores, slack in pairs]

    def _scores(self, queries: Float32Array) -> Float32Array:
        """Return the scores of all centroids: (n_queries, n_rows) float32."""
        scores = np.empty((len(queries), self._table.n_rows), np.float32)
        for low in range(0, self._table.n_rows, _BATCH_ROWS):
            stop_if_cancelled()
            rows = np.arange(low, min(low + _BATCH_ROWS, self._table.n_rows))
            vectors = self._vectors.vectors(rows)
            if self._distance_dim is None:
                scores[:, rows] = queries @ vectors.T
            else:
                scores[:, rows] = _half_squares(queries[:, : self._distance_dim], vectors)
        return scores


def _half_squares(queries: Float32Array, vectors: Float32Array) -> Float64Array:
    """Return upper bounds of minus half of the squared distances of (n, dim) queries and (m, ...) rows: (n, m)."""
    q, x = queries.astype(np.float64), vectors[:, : queries.shape[1]].astype(np.float64)
    squares = np.einsum("ij,ij->i", q, q)[:, None] + np.einsum("ij,ij->i", x, x)
    bounds: Float64Array = np.clip(q @ x.T - (0.5 - _FLOAT64_ROUNDING) * squares, np.finfo(np.float32).min, 0)
    return bounds
