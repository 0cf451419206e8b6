"""Stage 2: the exact aggregated score of candidate documents (Tang et al. 2021, section 3.3)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.scoring.stored_vectors import Scorer, StoredVectors, mean_share
from quarry.formats.arrays import Float32Array, Float64Array, Int64Array, UInt64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import CorruptFile
from quarry.formats.snapshot import OpenSegment

__all__ = ["Rescorer", "kth_largest"]

_BATCH_DOCS = 256  # whose centroids are in memory at once
_MIN_SAVED_ROWS = 1000  # below, selecting documents by a few of their rows takes longer than it saves


class Rescorer:
    """Computes exact scores of documents of one segment.

    Args:
        segment: the segment.
        beta: inverse temperature of the softmax aggregation (Eq. 4-6), or None for the maximum (Eq. 7).
    """

    def __init__(self, segment: OpenSegment, beta: float | None) -> None:
        self._path = segment.reader.path
        self._table = segment.reader.centroids
        self._vectors = StoredVectors(segment)
        self._beta = beta
        self._mean_share = mean_share(segment)
        self._ranks_by_maximum = beta is None and not self._mean_share

    def scores(self, query: Float32Array, docs: Int64Array) -> Float32Array:
        """Return the aggregated scores of documents for a (dim,) float32 query: (len(docs),) float32."""
        return self._aggregate(self._vectors.scorer(query), docs)

    def _aggregate(self, scorer: Scorer, docs: Int64Array) -> Float32Array:
        rows, bounds = self._table.rows_of(docs)
        return self.checked(aggregate(scorer(rows), bounds, self._beta, self._mean_share))

    def checked(self, scores: Float32Array) -> Float32Array:
        """Return scores unchanged.

        Raises:
            CorruptFile: one is not finite; queries are, so a number that is stored is not, or is too large.
        """
        if not np.isfinite(scores).all():
            raise CorruptFile("stored vectors have scores that are not finite", path=self._path)
        return scores

    def likely_scores(
        self, query: Float32Array, docs: Int64Array, rows: Int64Array, n: int
    ) -> tuple[Int64Array, Float32Array]:
        """Rescore the n documents whose given rows score best, or all of them if that takes about as long.

        With softmax aggregation or a share of the mean, by which scores can be far below the maximum, twice as
        many are rescored.

        Args:
            query: (dim,) float32.
            docs: ascending.
            rows: ascending, at least one of each document, and of no others.
            n: number of documents, at least 1.

        Returns:
            (m,) int64 documents, ascending, with m at least min(n, len(docs)), and their (m,) float32 scores.
        """
        scorer, n = self._vectors.scorer(query), n if self._ranks_by_maximum else 2 * n
        if len(docs) <= n or self._saved_rows(docs, n) < len(rows) + _MIN_SAVED_ROWS:
            return docs, self._aggregate(scorer, docs)
        firsts = np.searchsorted(rows, self._table.offsets[docs])
        best = np.maximum.reduceat(scorer(rows), firsts)
        likely = docs[np.sort(np.argpartition(-best, n)[:n])]
        return likely, self._aggregate(scorer, likely)

    def _saved_rows(self, docs: Int64Array, n: int) -> float:
        """Estimate how many fewer rows are scored for n of the documents than for all of them."""
        n_rows = (self._table.offsets[docs + 1] - self._table.offsets[docs]).sum()
        return float(n_rows * (1 - n / len(docs)))

    def best_scores(
        self,
        query: Float32Array,
        docs: Int64Array,
        bounds: Float64Array,
        k: int,
    ) -> tuple[Int64Array, Float32Array]:
        """Rescore documents by descending upper bound until no other can be among the best k, or tie with them.

        Args:
            query: (dim,) float32.
            docs: (n,) int64, distinct.
            bounds: (n,) float64, an upper bound of the score of each document, such as the largest score of its
                centroids.
            k: number of documents, at least 1.

        Returns:
            The documents that were rescored, with their scores; all others score lower than k of them.
        """
        scorer = self._vectors.scorer(query)
        docs, bounds = docs[order := np.argsort(-bounds, kind="stable")], bounds[order]
        scores, done, following = np.empty(len(docs), np.float32), 0, 2 * k
        while done < len(docs) and (done < k or kth_largest(scores[:done], k) <= bounds[done]):
            stop_if_cancelled()
            places = done + np.argsort(docs[done : done + following])  # ascending rows are gathered faster
            scores[places] = self._aggregate(scorer, docs[places])
            done, following = done + len(places), 2 * following
        return docs[:done], scores[:done]

    def row_vectors(self, docs: Int64Array, numbers: UInt64Array) -> Float32Array:
        """Return one centroid of each document, of number `numbers` modulo their count: (n, dim) float32."""
        first, n_rows = self._table.offsets[docs], self._table.offsets[docs + 1] - self._table.offsets[docs]
        return self._vectors.vectors(first + (numbers % n_rows.astype(np.uint64)).astype(np.int64))

    def centroid_scores(self, query: Float32Array, docs: Int64Array) -> list[Float32Array]:
        """Return the scores of the centroids of each document: (n_centroids,) float32."""
        scorer = self._vectors.scorer(query)
        found: list[Float32Array] = []
        for first in range(0, len(docs), _BATCH_DOCS):
            stop_if_cancelled()
            rows, bounds = self._table.rows_of(docs[first : first + _BATCH_DOCS])
            scores = self.checked(scorer(rows))
            found += [scores[low:high] for low, high in pairwise(bounds.tolist())]
        return found


def kth_largest(scores: Float32Array, k: int) -> float:
    """Return the k-th largest score, -inf if there are fewer."""
    return float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else -np.inf
