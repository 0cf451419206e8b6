"""Stage 1 without an index: SIMD over all centroids of a segment, exact in the end.

For segments too small for inverted lists to pay. Scores are rough (the query in 8 bits, or 16), but how far off
they can be is known, so the ceiling lets the searcher prove that its answer is the exact one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.exact import top_candidates
from quarry.engine.backends.protocol import Candidates, Resources, Wanted
from quarry.engine.scoring.float16_query import HalfQuery
from quarry.engine.scoring.int8_query import IntegerQuery
from quarry.formats.snapshot import OpenSegment

__all__ = ["ScanBackend"]

_BATCH_ROWS = 65536
_GATHER_FACTOR = 4  # rows read in a row in the time that it takes to read one of a document picked out
_FLOAT_ROUNDING = 1e-6  # of float32 numbers that come of exact sums, relative to the norms


class ScanBackend:
    """Reads every stored centroid; needs "int8" or "float16" centroids."""

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.resident_bytes = self.device_bytes = 0
        self._table = segment.reader.centroids
        self._deleted = segment.deleted

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `quarry.engine.backends.protocol.BackendType`: nothing, all is read from the mapped file."""
        return 0

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.Backend`; exactly `wanted.n` where there are as many.

        Where a filter leaves few documents they are all candidates.
        """
        if wanted.allowed is not None and np.count_nonzero(wanted.allowed) * _GATHER_FACTOR < len(wanted.allowed):
            return [Candidates(np.flatnonzero(wanted.allowed), -np.inf)] * len(queries)
        hidden = self._deleted if wanted.allowed is None else ~wanted.allowed
        return [self._candidates(query, wanted.n, hidden) for query in queries]

    def _candidates(
        self, query: npt.NDArray[np.float32], n: int, hidden: npt.NDArray[np.bool_] | None
    ) -> Candidates:
        scores, rounding = self._int8_scores(query) if self._table.kind == "int8" else self._half_scores(query)
        best = np.maximum.reduceat(scores, self._table.offsets[:-1])
        if hidden is not None:
            best[hidden] = -np.inf
        return top_candidates(best, n, slack=rounding * self._table.largest_norm)

    def _int8_scores(self, query: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], float]:
        """(n_rows,) float32 rough scores, and how far off they can be for a centroid of length 1."""
        rounded, scores = IntegerQuery(query), np.empty(self._table.n_rows, np.float32)
        for low, high in self._batches():
            values, scales = self._table.stored_slice(low, high)
            scores[low:high] = rounded.rough_scores(cast(npt.NDArray[np.int8], values), scales)
        return scores, rounded.rounding + _FLOAT_ROUNDING * float(np.linalg.norm(query))

    def _half_scores(self, query: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], float]:
        """The same over float16 centroids."""
        rounded, scores = HalfQuery(query), np.empty(self._table.n_rows, np.float32)
        for low, high in self._batches():
            scores[low:high] = rounded.rough_scores(self._table.stored_slice(low, high)[0])
        return scores, rounded.rounding

    def _batches(self) -> Iterator[tuple[int, int]]:
        for low in range(0, self._table.n_rows, _BATCH_ROWS):
            yield low, min(low + _BATCH_ROWS, self._table.n_rows)
