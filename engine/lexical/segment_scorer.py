"""Finds the documents of one segment with the best sums of the scores of a query's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from quarry.engine.filtering.evaluation import Allowed
from quarry.engine.lexical.term_scores import Costs, PartScores, look_up
from quarry.engine.scoring.ranking import distinct, find_nth_largest
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled

__all__ = ["Scored", "SegmentScorer"]

Scored: TypeAlias = tuple[Int64Array, Float32Array]
"""Documents and their scores."""

_FREQUENT_FACTOR = 16  # a term with a posting for up to so many documents is frequent: it may be looked up last
_SMALL_FREQUENT_FACTOR = 6  # the same in a small segment
_FEW_FACTOR = 256  # from so many documents per document that a filter allows on, only the latter are scored
_GROUP_DOCS = 64  # whose best score stands for them in a lower bound
_SLACK = 1e-4  # more than the relative rounding error of a sum of 1000 float32 numbers


class SegmentScorer:
    """Scores the live documents of a segment for the terms of a query, frequent terms last.

    Deleted documents have no postings, so their scores are 0. In every algorithm below the scores of a document's
    terms are summed in the order of the terms, in float32, so a document's score is the same bit for bit.

    Args:
        n_docs: documents in the segment, deleted ones included.
        costs: where methods change.
    """

    def __init__(self, n_docs: int, costs: Costs | None = None) -> None:
        self._n_docs = n_docs
        self._costs = costs or Costs()

    def scores(self, parts: Sequence[PartScores]) -> Scored:
        """Return the documents with a term, ascending, and their scores."""
        totals: SparseTotals | DenseTotals = (
            SparseTotals() if self._is_sparse(parts) else DenseTotals(self._n_docs)
        )
        totals.add(parts)
        return totals.select(0)

    def find_best(self, parts: Sequence[PartScores], n: int, allowed: Allowed | None = None) -> Scored:
        """Return the n >= 1 best documents and all ties with the last of them, unordered, with their scores.

        Args:
            parts: scores of the query's terms.
            n: number of documents.
            allowed: the documents that may be found; None: all live ones.
        """
        docs, scores = self._find_best(parts, n, allowed)
        if len(docs) <= n:
            return docs, scores
        good = scores >= find_nth_largest(scores, n)
        return docs[good], scores[good]

    def _find_best(self, parts: Sequence[PartScores], n: int, allowed: Allowed | None) -> Scored:
        """Return a superset of the n best documents, and their scores."""
        if allowed is not None and allowed.n * _FEW_FACTOR < self._n_docs:
            scores = look_up(parts, allowed.docs)
            has_term = scores > 0
            return allowed.docs[has_term], scores[has_term]
        return self._find_by_max_score(parts, n, allowed)

    def _is_sparse(self, parts: Sequence[PartScores]) -> bool:
        return sum(part.n_docs for part in parts) * self._costs.sparse_factor < self._n_docs

    def _find_by_max_score(self, parts: Sequence[PartScores], n: int, allowed: Allowed | None) -> Scored:
        """Return a superset of the n best documents, and their scores, by MaxScore.

        Terms are added up, the rarest first, until no document without any of them can be among the n best. The
        scores of the others, frequent terms, are looked up for the documents that can. (H. Turtle, J. Flood, Query
        evaluation: strategies and optimizations, 1995.)
        """
        is_large = self._n_docs >= self._costs.large_segment
        n_added, factor = len(parts), _FREQUENT_FACTOR if is_large else _SMALL_FREQUENT_FACTOR
        while n_added and parts[n_added - 1].n_docs * factor >= self._n_docs:
            n_added -= 1
        totals = self._add(SparseTotals(allowed), parts, 0, n_added)
        bound, step = totals.find_lower_bound(n), 1 if is_large else len(parts)
        while n_added < len(parts) and bound * (1 - _SLACK) <= _sum_of_max(parts[n_added:]):
            totals = self._add(totals, parts, n_added, n_added + step)
            bound, n_added, step = totals.find_lower_bound(n), n_added + step, 2 * step
        docs, scores = totals.select(bound * (1 - _SLACK) - _sum_of_max(parts[n_added:]))
        for place in range(n_added, len(parts)):
            stop_if_cancelled()
            scores += parts[place].look_up(docs)
            if n <= len(docs) > self._costs.many_candidates:
                bound = find_nth_largest(scores, n)
                kept = np.flatnonzero(scores >= bound * (1 - _SLACK) - _sum_of_max(parts[place + 1 :]))
                docs, scores = docs[kept], scores[kept]
        return docs, scores

    def _add(
        self, totals: SparseTotals | DenseTotals, parts: Sequence[PartScores], low: int, high: int
    ) -> SparseTotals | DenseTotals:
        """Add the terms low to high - 1 to the totals of those before; of all documents if they are many."""
        if isinstance(totals, SparseTotals) and not self._is_sparse(parts[:high]):
            totals = totals.spread(self._n_docs)
        totals.add(parts[low:high])
        return totals


def _sum_of_max(parts: Sequence[PartScores]) -> float:
    """Return an upper bound of the sum of the scores of terms."""
    return sum(part.max_score for part in parts) * (1 + _SLACK)


class SparseTotals:
    """Scores of the documents that have a term, for rare terms.

    Args:
        allowed: the documents that may be found; None: all.
    """

    def __init__(self, allowed: Allowed | None = None) -> None:
        self._allowed = allowed
        self._docs, self._scores = np.empty(0, np.int64), np.empty(0, np.float32)

    def add(self, parts: Sequence[PartScores]) -> None:
        """Add the scores of terms, in their order."""
        lists = [self._select_allowed(part.postings) for part in parts]
        docs = _merge([self._docs, *(docs for docs, _ in lists)])
        scores = np.zeros(len(docs), np.float32)
        scores[docs.searchsorted(self._docs)] = self._scores
        for own_docs, own_scores in lists:
            stop_if_cancelled()
            scores[docs.searchsorted(own_docs)] += own_scores
        self._docs, self._scores = docs, scores

    def _select_allowed(self, postings: tuple[Int64Array, Float32Array]) -> tuple[Int64Array, Float32Array]:
        if self._allowed is None:
            return postings
        docs, scores = postings
        kept = np.flatnonzero(self._allowed.flags.take(docs))
        return docs.take(kept), scores.take(kept)

    def find_lower_bound(self, n: int) -> float:
        """Return a score that at least n documents reach; 0 if none is known."""
        return find_nth_largest(self._scores, n) if n <= len(self._scores) else 0.0

    def select(self, least: float) -> tuple[Int64Array, Float32Array]:
        """Return the documents with a score above 0 that is at least `least`, ascending, and their scores."""
        if least <= 0:
            return self._docs, self._scores
        kept = np.flatnonzero(self._scores >= least)
        return self._docs[kept], self._scores[kept]

    def spread(self, n_docs: int) -> DenseTotals:
        """Return the scores of all `n_docs` documents of the segment."""
        totals = DenseTotals(n_docs, self._allowed)
        totals.scores[self._docs] = self._scores
        return totals


class DenseTotals:
    """Scores of all documents.

    Args:
        n_docs: documents in the segment.
        allowed: the documents that may be found; None: all.

    Attributes:
        scores: (n_docs,) float32; -inf for documents that are not allowed.
    """

    def __init__(self, n_docs: int, allowed: Allowed | None = None) -> None:
        self.scores = np.zeros(n_docs, np.float32) if allowed is None else allowed.floor.copy()

    def add(self, parts: Sequence[PartScores]) -> None:
        """Add the scores of terms, in their order."""
        for part in parts:
            stop_if_cancelled()
            part.add_to(self.scores)

    def find_lower_bound(self, n: int) -> float:
        """Return a score that at least n documents reach: the n-th best maximum of groups of documents, or 0."""
        n_groups = len(self.scores) // _GROUP_DOCS
        if n * 2 > n_groups:
            return 0.0
        best = self.scores[: n_groups * _GROUP_DOCS].reshape(_GROUP_DOCS, n_groups).max(axis=0)
        return max(0.0, find_nth_largest(best, n))

    def select(self, least: float) -> tuple[Int64Array, Float32Array]:
        """Return the documents with a score above 0 that is at least `least`, ascending, and their scores."""
        docs = np.flatnonzero(self.scores >= least if least > 0 else self.scores > 0)
        return docs, self.scores[docs]


def _merge(lists: Sequence[Int64Array]) -> Int64Array:
    """Return the distinct numbers of some ascending lists, ascending.

    A stable sort of numbers merges runs: of 200,000 it takes a hundredth of the time of `np.unique`.
    """
    merged = np.concatenate(lists)
    merged.sort(kind="stable")
    return distinct(merged)
