"""Stage 2: the exact aggregated score of candidate documents (Tang et al. 2021, section 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.aggregation import aggregate
from engine.stored_vectors import StoredVectors
from formats.snapshot import OpenSegment

__all__ = ["Rescorer"]


class Rescorer:
    """Rescores documents of one segment.

    Args:
        segment: whose documents.
        beta: inverse temperature of the softmax aggregation (Eq. 4-6), or None for the maximum (Eq. 7).
    """

    def __init__(self, segment: OpenSegment, beta: float | None) -> None:
        self._table = segment.reader.centroids
        self._vectors = StoredVectors(segment)
        self._beta = beta

    def scores(self, query: npt.NDArray[np.float32], docs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Aggregated scores of the documents `docs` for a (dim,) float32 query: (len(docs),) float32."""
        rows, bounds = self._table.rows_of(docs)
        return aggregate(self._vectors.scores(query, rows), bounds, self._beta)

    def centroid_scores(self, query: npt.NDArray[np.float32], doc: int) -> npt.NDArray[np.float32]:
        """Scores of the centroids of one document, in their order: (n_centroids,) float32."""
        rows, _ = self._table.rows_of(np.array([doc]))
        return self._vectors.scores(query, rows)
