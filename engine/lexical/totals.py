"""Sums of the scores of terms for the documents of a segment: of all documents, or of those with a term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from quarry.engine.filtering.evaluation import Allowed
from quarry.engine.lexical.term_scores import PartScores
from quarry.engine.scoring.ranking import find_nth_largest
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled

__all__ = ["DenseTotals", "SparseTotals", "Totals"]

_GROUP_DOCS = 64


class Totals(Protocol):
    """Scores of documents, summed term by term in float32."""

    def add(self, parts: Sequence[PartScores]) -> None:
        """Add the scores of terms, in their order."""
        ...

    def find_lower_bound(self, n: int) -> float:
        """Return a score that at least n documents reach; 0 if none is known."""
        ...

    def select(self, least: float) -> tuple[Int64Array, Float32Array]:
        """Return the documents with a score above 0 that is at least `least`, ascending, and their scores."""
        ...


class SparseTotals:
    """Scores of the documents that have a term, for rare terms.

    Args:
        allowed: the documents that may be found; None: all.
    """

    def __init__(self, allowed: Allowed | None = None) -> None:
        self._allowed = allowed
        self._docs, self._scores = np.empty(0, np.int64), np.empty(0, np.float32)

    def add(self, parts: Sequence[PartScores]) -> None:
        """See `Totals`."""
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
        """See `Totals`."""
        return find_nth_largest(self._scores, n) if n <= len(self._scores) else 0.0

    def select(self, least: float) -> tuple[Int64Array, Float32Array]:
        """See `Totals`."""
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
        """See `Totals`."""
        for part in parts:
            stop_if_cancelled()
            part.add_to(self.scores)

    def find_lower_bound(self, n: int) -> float:
        """See `Totals`; documents are divided into groups, and the n-th best of the groups' maxima is returned."""
        n_groups = len(self.scores) // _GROUP_DOCS
        if n * 2 > n_groups:
            return 0.0
        best = self.scores[: n_groups * _GROUP_DOCS].reshape(_GROUP_DOCS, n_groups).max(axis=0)
        return max(0.0, find_nth_largest(best, n))

    def select(self, least: float) -> tuple[Int64Array, Float32Array]:
        """See `Totals`."""
        docs = np.flatnonzero(self.scores >= least if least > 0 else self.scores > 0)
        return docs, self.scores[docs]


def _merge(lists: Sequence[Int64Array]) -> Int64Array:
    """Return the distinct numbers of some ascending lists, ascending.

    A stable sort of numbers merges runs: of 200,000 it takes a hundredth of the time of `np.unique`.
    """
    merged = np.concatenate(lists)
    merged.sort(kind="stable")
    first = np.ones(len(merged), bool)
    np.not_equal(merged[1:], merged[:-1], out=first[1:])
    return merged[first]
