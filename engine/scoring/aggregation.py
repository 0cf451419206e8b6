"""Final scores of documents: the scores of their stored centroids, aggregated (Tang et al. 2021, section 3.3)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from quarry.engine.scoring.stored_vectors import Scorer, StoredVectors, mean_share
from quarry.formats.arrays import Float32Array, Float64Array, Int64Array, UInt64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import CorruptFile
from quarry.formats.snapshot import OpenSegment

__all__ = ["Rescorer", "aggregate", "compute_centroid_weights", "kth_largest"]

_BATCH_DOCS = 256  # whose centroids are in memory at once
_MIN_SAVED_ROWS = 1000  # below, selecting documents by a few of their rows takes longer than it saves


def aggregate(
    scores: Float32Array, offsets: Int64Array, beta: float | None, mean_share: float = 0.0
) -> Float32Array:
    """Aggregate the scores of every document's centroids.

    With ``beta`` None a document's score is the largest of its centroids' scores (Luan et al. 2021, section
    3; Tang et al. 2021, Eq. 7). Otherwise it is sum(softmax(beta * s) * s): Eq. 4-6 of Tang et al. with an
    inverse temperature, 1 in the paper. A softmax score is never above the largest score, and below it by at
    most W((n - 1) / e) / beta for n centroids (W: Lambert's function).

    With a share of the mean this score a becomes a - mean_share * max(0, a - mean(s)), for the maximum
    (1 - mean_share) * max(s) + mean_share * mean(s): if scores have errors, the largest is likely to have a large
    one, and in the mean they nearly cancel. So it is still never above the largest score, and if all scores are
    equal it is that score.

    Args:
        scores: (n_rows,) float32, finite: the inner product of the query with each centroid, document after
            document.
        offsets: (n_docs + 1,) int64, strictly ascending from 0 to n_rows: document d has the rows from
            offsets[d] to offsets[d + 1].
        beta: inverse temperature, finite and above 0, or None.
        mean_share: share of the mean, at least 0 and below 1; that of a segment is
            `quarry.engine.scoring.stored_vectors.mean_share`.

    Returns:
        (n_docs,) float32.

    Raises:
        ValueError: offsets do not divide the rows, a document has no centroids, or beta or the share is not valid.
    """
    _check(len(scores), offsets, beta)
    if not 0 <= mean_share < 1:
        raise ValueError(f"the share of the mean must be at least 0 and below 1; found {mean_share!r}")
    if len(offsets) == 1:
        return np.empty(0, np.float32)
    first_rows = offsets[:-1]
    best: Float32Array = np.maximum.reduceat(scores, first_rows)
    if beta is not None:
        best -= _softmax_gaps(scores, best, offsets, beta)
    if mean_share:
        best -= np.float32(mean_share) * _mean_gaps(scores, best, offsets)
    return best


def compute_centroid_weights(scores: Float32Array, beta: float | None) -> Float32Array:
    """Return the weight of each centroid of one document in its aggregated score.

    Args:
        scores: (n_centroids,) float32, finite, n_centroids >= 1.
        beta: inverse temperature, finite and above 0, or None.

    Returns:
        (n_centroids,) float32 that add up to 1: softmax(beta * s) (Tang et al. 2021, Eq. 4), or with ``beta``
        None 1 for the first of the best centroids and 0 for the others (Eq. 7).

    Raises:
        ValueError: there are no centroids, or beta is not valid.
    """
    _check(len(scores), np.array([0, len(scores)]), beta)
    if beta is None:
        alone = np.zeros(len(scores), np.float32)
        alone[scores.argmax()] = 1
        return alone
    weights: Float32Array = np.exp((scores - scores.max()) * np.float32(beta))
    weights /= weights.sum()
    return weights


def _softmax_gaps(
    scores: Float32Array,
    best: Float32Array,
    offsets: Int64Array,
    beta: float,
) -> Float32Array:
    """Return the difference between the maximum of each document's scores and its softmax score.

    Every exponent is at most 0, and each document has one that is 0, so nothing overflows and no sum of weights is
    below 1. No term is negative, so in floating point too a score is at most the maximum, which stage 2 relies on.
    """
    first_rows = offsets[:-1]
    below = np.repeat(best, np.diff(offsets)) - scores
    weights = np.exp(below * np.float32(-beta))
    gaps: Float32Array = np.add.reduceat(weights * below, first_rows)
    gaps /= np.add.reduceat(weights, first_rows)
    return gaps


def _mean_gaps(scores: Float32Array, best: Float32Array, offsets: Int64Array) -> Float32Array:
    """Return how far the mean of each document's scores is below its score, at least 0.

    Means are computed in float64, so that the mean of equal scores is exactly that score.
    """
    means = np.add.reduceat(scores, offsets[:-1], dtype=np.float64) / np.diff(offsets)
    gaps: Float32Array = np.maximum(best - means, 0).astype(np.float32)
    return gaps


def _check(n_rows: int, offsets: Int64Array, beta: float | None) -> None:
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n_rows:
        raise ValueError(f"offsets must run from 0 to the number of scores, {n_rows}; found {offsets!r}")
    if (np.diff(offsets) <= 0).any():
        document = int(np.flatnonzero(np.diff(offsets) <= 0)[0])
        raise ValueError(f"every document needs at least one centroid; document {document} has none")
    if beta is not None and not (math.isfinite(beta) and beta > 0):
        raise ValueError(f"beta must be finite and above 0, or None; found {beta!r}")


class Rescorer:
    """Computes exact scores of documents of one segment.

    Args:
        segment: the segment.
        beta: inverse temperature of the softmax aggregation (Eq. 4-6), or None for the maximum (Eq. 7).
    """

    def __init__(self, segment: OpenSegment, beta: float | None) -> None:
        self._path = segment.reader.path
        self._table = segment.reader.centroids
        self._passages = segment.reader.passages
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
        self, query: Float32Array, docs: Int64Array, rows: Int64Array, n: int, min_saved: int = _MIN_SAVED_ROWS
    ) -> tuple[Int64Array, Float32Array]:
        """Rescore the n documents whose given rows score best, or all of them if that takes about as long.

        With softmax aggregation or a share of the mean, by which scores can be far below the maximum, twice as
        many are rescored.

        Args:
            query: (dim,) float32.
            docs: ascending.
            rows: ascending, at least one of each document, and of no others.
            n: number of documents, at least 1.
            min_saved: number of rows to save, from which on some documents are selected.

        Returns:
            (m,) int64 documents, ascending, with m at least min(n, len(docs)), and their (m,) float32 scores.
        """
        scorer, n = self._vectors.scorer(query), n if self._ranks_by_maximum else 2 * n
        if len(docs) <= n or self._saved_rows(docs, n) < len(rows) + min_saved:
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
        low, high = self._passages.of_documents(docs)
        first, n_rows = self._table.offsets[low], self._table.offsets[high] - self._table.offsets[low]
        return self._vectors.vectors(first + (numbers % n_rows.astype(np.uint64)).astype(np.int64))

    def centroid_scores(self, query: Float32Array, docs: Int64Array) -> list[Float32Array]:
        """Return the scores of the centroids of each document: (n_centroids,) float32."""
        scorer = self._vectors.scorer(query)
        all_scores: list[Float32Array] = []
        for first in range(0, len(docs), _BATCH_DOCS):
            stop_if_cancelled()
            rows, bounds = self._table.rows_of(docs[first : first + _BATCH_DOCS])
            scores = self.checked(scorer(rows))
            all_scores += [scores[low:high] for low, high in pairwise(bounds.tolist())]
        return all_scores


def kth_largest(scores: Float32Array, k: int) -> float:
    """Return the k-th largest score, -inf if there are fewer."""
    return float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else -np.inf
