"""A backend that compares a query with all vectors of a segment, as inner products in NumPy."""

from __future__ import annotations

import numpy as np

from quarry.engine.backends.protocol import Resources, SearchParameters, UnscoredCandidates
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.snapshot import OpenSegment

__all__ = ["ProductsBackend"]


class ProductsBackend:
    """Holds the vectors of a segment in memory as float32; finds documents by their best vector."""

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        table = segment.reader.centroids
        self._starts = np.asarray(table.offsets[:-1], np.int64)
        self._vectors = StoredVectors(segment).vectors(np.arange(table.n_rows))
        self._is_live = np.ones(len(self._starts), bool) if segment.deleted is None else ~segment.deleted
        self.resident_bytes = self._vectors.nbytes + self._starts.nbytes + self._is_live.nbytes
        self.device_bytes = 0

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """Estimate the memory of the vectors, before they are read."""
        table = segment.reader.centroids
        return table.n_rows * table.dim * 4 + segment.record.n_docs * 9

    def candidates(self, queries: np.ndarray, parameters: SearchParameters) -> list[UnscoredCandidates]:
        """Find the documents with the largest inner products for each of (n, dim) queries."""
        findable = self._is_live if parameters.allowed is None else parameters.allowed
        n = min(max(parameters.n, parameters.k), int(findable.sum()))
        candidates = []
        for products in queries @ self._vectors.T:
            scores = np.maximum.reduceat(products, self._starts)
            scores[~findable] = -np.inf
            docs = np.argsort(-scores, kind="stable")[:n].astype(np.int64)
            exactness = Exactness.EXACT if n == findable.sum() else Exactness.APPROXIMATE
            candidates.append(UnscoredCandidates(docs, exactness))
        return candidates
