"""The oracle: every centroid of a segment against every query in plain numpy, no shortcut."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.protocol import Candidates, Resources, Wanted
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.snapshot import OpenSegment

__all__ = ["ExactBackend"]

_BATCH_ROWS = 16384
_BATCH_SCORES = 1 << 23  # scores in memory at a time, over all queries
_FLOAT_ROUNDING = 1e-5  # of float32 sums, relative to the norms


class ExactBackend:
    """Returns the documents with the largest maximum, computed in float32 from the dequantised centroids."""

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.resident_bytes = self.device_bytes = 0
        self._vectors = StoredVectors(segment)
        self._table = segment.reader.centroids
        self._deleted = segment.deleted

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `quarry.engine.backends.protocol.BackendType`: nothing, all is read from the mapped file."""
        return 0

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.Backend`; exactly `wanted.n` where there are as many."""
        batch = max(1, _BATCH_SCORES // self._table.n_rows)
        found: list[Candidates] = []
        for low in range(0, len(queries), batch):
            found += self._candidates(queries[low : low + batch], wanted)
        return found

    def _candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        best = np.maximum.reduceat(self._scores(queries), self._table.offsets[:-1], axis=1)
        hidden = self._deleted if wanted.allowed is None else ~wanted.allowed
        if hidden is not None:
            best[:, hidden] = -np.inf
        rounding = _FLOAT_ROUNDING * self._table.largest_norm * np.linalg.norm(queries, axis=1)
        return [top_candidates(row, wanted.n, slack) for row, slack in zip(best, rounding.tolist(), strict=True)]

    def _scores(self, queries: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """(n_queries, n_rows) float32."""
        scores = np.empty((len(queries), self._table.n_rows), np.float32)
        for low in range(0, self._table.n_rows, _BATCH_ROWS):
            rows = np.arange(low, min(low + _BATCH_ROWS, self._table.n_rows))
            scores[:, rows] = queries @ self._vectors.vectors(rows).T
        return scores


def top_candidates(best: npt.NDArray[np.float32], n: int, slack: float = 0.0) -> Candidates:
    """The n documents with the largest scores among (n_docs,) `best`, -inf where a document may not be found.

    Args:
        best: scores, each at most `slack` below the true one.
        n: how many are wanted.
        slack: see above.
    """
    if n >= len(best):
        docs, ceiling = np.arange(len(best)), -np.inf
    else:
        order = np.argpartition(best, len(best) - n - 1)
        docs, ceiling = order[-n:], float(best[order[-n - 1]]) + slack
    docs = docs[best[docs] > -np.inf].astype(np.int64)
    return Candidates(docs, ceiling, bounds=best[docs].astype(np.float64) + slack)
