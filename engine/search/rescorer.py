"""Stage 2: the exact aggregated score of candidate documents (Tang et al. 2021, section 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.scoring.stored_vectors import Scorer, StoredVectors
from quarry.formats.snapshot import OpenSegment

__all__ = ["Rescorer", "kth_largest"]

_WORTH_ROWS = 1000  # that must be saved so that choosing documents by a few of their rows pays


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
        return self._aggregated(self._vectors.scorer(query), docs)

    def _aggregated(self, scorer: Scorer, docs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        rows, bounds = self._table.rows_of(docs)
        return aggregate(scorer(rows), bounds, self._beta)

    def likely_scores(
        self, query: npt.NDArray[np.float32], docs: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], n: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rescore the n documents with the best of some rows, or all where that takes about as long.

        A softmax score can be far below the maximum, so that of those twice as many are rescored.

        Args:
            query: (dim,) float32.
            docs: ascending.
            rows: ascending, one of each document at least, and of no others.
            n: how many, at least 1.

        Returns:
            (m,) int64 documents, ascending, m at least n where there are as many, and their (m,) float32 scores.
        """
        scorer, n = self._vectors.scorer(query), n if self._beta is None else 2 * n
        if len(docs) <= n or self._saved_rows(docs, n) < len(rows) + _WORTH_ROWS:
            return docs, self._aggregated(scorer, docs)
        firsts = np.searchsorted(rows, self._table.offsets[docs])
        best = np.maximum.reduceat(scorer(rows), firsts)
        likely = docs[np.sort(np.argpartition(-best, n)[:n])]
        return likely, self._aggregated(scorer, likely)

    def _saved_rows(self, docs: npt.NDArray[np.int64], n: int) -> float:
        """About how many rows fewer n of some documents have than all of them do."""
        n_rows = (self._table.offsets[docs + 1] - self._table.offsets[docs]).sum()
        return float(n_rows * (1 - n / len(docs)))

    def best_scores(
        self,
        query: npt.NDArray[np.float32],
        docs: npt.NDArray[np.int64],
        bounds: npt.NDArray[np.float64],
        k: int,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rescore documents by descending bounds until no other can be among the best k, or tie with them.

        Args:
            query: (dim,) float32.
            docs: (n,) int64, distinct.
            bounds: (n,) float64, no document's score is above its own: the largest score of its centroids is
                such a bound, whatever the aggregation.
            k: how many are wanted, at least 1.

        Returns:
            Those that were rescored, with their scores; the others have lower scores than k of them.
        """
        scorer = self._vectors.scorer(query)
        docs, bounds = docs[order := np.argsort(-bounds, kind="stable")], bounds[order]
        scores, done, following = np.empty(len(docs), np.float32), 0, 2 * k
        while done < len(docs) and (done < k or kth_largest(scores[:done], k) <= bounds[done]):
            places = done + np.argsort(docs[done : done + following])  # rows in their order are gathered faster
            scores[places] = self._aggregated(scorer, docs[places])
            done, following = done + len(places), 2 * following
        return docs[:done], scores[:done]

    def centroid_scores(self, query: npt.NDArray[np.float32], doc: int) -> npt.NDArray[np.float32]:
        """Scores of the centroids of one document, in their order: (n_centroids,) float32."""
        rows, _ = self._table.rows_of(np.array([doc]))
        return self._vectors.scores(query, rows)


def kth_largest(scores: npt.NDArray[np.float32], k: int) -> float:
    """The k-th largest score, -inf where there are fewer."""
    return float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else -np.inf
