"""Sums the scores of a query's terms for the documents of one segment, and finds the best documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.filtering.evaluation import Allowed
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.postings.elias_fano import Postings

__all__ = ["Scored", "SegmentScorer", "TermScores", "look_up"]

Scored = tuple[Int64Array, Float32Array]  # documents and their scores

_DENSE_FACTOR = 6  # up to so many documents per posting of a term, its scores are stored for all documents
_SPARSE_FACTOR = 16  # from so many documents per posting of a query on, there is no array of all totals
_FEW_FACTOR = 256  # from so many documents per document that a filter allows on, only the latter are scored
_GROUP_DOCS = 64
_SLACK = 1e-4  # more than the relative rounding error of a sum of 1000 float32 numbers


class TermScores(NamedTuple):
    """The scores of a term in the documents of one segment.

    Attributes:
        n_docs: number of live documents with the term.
        docs: (n_docs,) int64, their ordinals, ascending; None for a frequent term, whose `scores` are those of all
            documents of the segment.
        scores: float32, the score of the term in each document, 0 without the term.
        max_score: the largest of them.
    """

    n_docs: int
    docs: Int64Array | None
    scores: Float32Array
    max_score: float

    @classmethod
    def of(cls, postings: Postings, norms: Float32Array, idf: float) -> TermScores:
        """Compute idf tf / (tf + norm) from the postings of live documents and the norms of all documents."""
        if not len(postings.docs):
            return _EMPTY
        docs = postings.docs.astype(np.int64)
        tf = postings.frequencies.astype(np.float32)
        scores = norms.take(docs)
        scores += tf
        np.divide(tf, scores, out=scores)
        scores *= np.float32(idf)
        max_score = float(scores.max(initial=0))
        if len(docs) * _DENSE_FACTOR < len(norms):
            return cls(len(docs), docs, scores, max_score)
        dense = np.zeros(len(norms), np.float32)
        dense[docs] = scores
        return cls(len(docs), None, dense, max_score)

    def multiply(self, times: float) -> TermScores:
        """Return the scores of a term that occurs so many times in the query, or has such a weight."""
        if times == 1:
            return self
        return TermScores(self.n_docs, self.docs, self.scores * np.float32(times), self.max_score * times)

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.scores.nbytes + (0 if self.docs is None else self.docs.nbytes)

    def add_to(self, totals: Float32Array) -> None:
        """Add to the scores of all documents."""
        if self.docs is None:
            totals += self.scores
        else:
            np.add.at(totals, self.docs, self.scores)

    def contains(self, docs: Int64Array) -> BoolArray:
        """Return which of (n,) documents have the term."""
        if self.docs is None:
            return self.scores.take(docs) > 0
        if not self.n_docs:
            return np.zeros(len(docs), bool)
        found: BoolArray = self.docs.take(self.docs.searchsorted(docs), mode="clip") == docs
        return found

    def look_up(self, docs: Int64Array) -> Float32Array:
        """Return the scores of the term in (n,) documents, 0 without it."""
        if self.docs is None:
            return self.scores[docs]
        if not self.n_docs:
            return np.zeros(len(docs), np.float32)
        at = np.minimum(self.docs.searchsorted(docs), self.n_docs - 1)
        return np.where(self.docs[at] == docs, self.scores[at], np.float32(0))


_EMPTY = TermScores(0, np.empty(0, np.int64), np.empty(0, np.float32), 0.0)


def look_up(parts: Sequence[TermScores], docs: Int64Array) -> Float32Array:
    """Return the scores of (n,) documents, (n,) float32: the sum over the terms, in their order."""
    scores = np.zeros(len(docs), np.float32)
    for part in parts:
        scores += part.look_up(docs)
    return scores


class SegmentScorer:
    """Scores the live documents of a segment for the terms of a query, frequent terms last.

    Deleted documents have no postings, so their scores are 0. In every algorithm below the scores of a document's
    terms are summed in the order of the terms, in float32, so a document's score is the same bit for bit.

    Args:
        n_docs: documents in the segment, deleted ones included.
    """

    def __init__(self, n_docs: int) -> None:
        self._n_docs = n_docs

    def scores(self, parts: Sequence[TermScores]) -> Scored:
        """Return the documents with a term, ascending, and their scores."""
        if self._is_sparse(parts):
            return self._sparse_scores(parts)
        totals = self._totals(parts)
        docs = np.flatnonzero(totals > 0)
        return docs, totals[docs]

    def find_best(self, parts: Sequence[TermScores], n: int, allowed: Allowed | None = None) -> Scored:
        """Return the n >= 1 best documents and all ties with the last of them, unordered, with their scores.

        Args:
            parts: scores of the query's terms.
            n: number of documents.
            allowed: the documents that may be found; None: all live ones.
        """
        docs, scores = self._find_best(parts, n, allowed)
        if len(docs) <= n:
            return docs, scores
        good = scores >= np.partition(scores, -n)[-n]
        return docs[good], scores[good]

    def _find_best(self, parts: Sequence[TermScores], n: int, allowed: Allowed | None) -> Scored:
        """Return a superset of the n best documents, and their scores."""
        if allowed is not None and allowed.n * _FEW_FACTOR < self._n_docs:
            scores = look_up(parts, allowed.docs)
            found = scores > 0
            return allowed.docs[found], scores[found]
        if self._is_sparse(parts):
            return self._sparse_scores(parts, allowed)
        return self._find_by_max_score(parts, n, allowed)

    def _is_sparse(self, parts: Sequence[TermScores]) -> bool:
        return sum(part.n_docs for part in parts) * _SPARSE_FACTOR < self._n_docs

    def _sparse_scores(self, parts: Sequence[TermScores], allowed: Allowed | None = None) -> Scored:
        """Score without an array of all documents; for rare terms, each of which lists its documents."""
        lists = [part.docs for part in parts if part.docs is not None]
        docs = np.unique(np.concatenate([np.empty(0, np.int64), *lists]))
        if allowed is not None:
            docs = docs[allowed.flags[docs]]
        return docs, look_up(parts, docs)

    def _totals(self, parts: Sequence[TermScores], allowed: Allowed | None = None) -> Float32Array:
        """Return the scores of all documents, (n_docs,) float32; -inf for documents that are not allowed."""
        totals = np.zeros(self._n_docs, np.float32) if allowed is None else allowed.floor.copy()
        for part in parts:
            part.add_to(totals)
        return totals

    def _find_by_max_score(self, parts: Sequence[TermScores], n: int, allowed: Allowed | None) -> Scored:
        """Return a superset of the n best documents, and their scores, by MaxScore.

        The scores of frequent terms, which come last, are looked up only for documents that can still be among the
        n best. (H. Turtle, J. Flood, Query evaluation: strategies and optimizations, 1995.)
        """
        n_first = len(parts)
        while n_first and parts[n_first - 1].docs is None:
            n_first -= 1
        totals, late = self._totals(parts[:n_first], allowed), parts[n_first:]
        floor = _find_lower_bound(totals, n) * (1 - _SLACK) - sum(part.max_score for part in late) * (1 + _SLACK)
        if late and floor <= 0:
            for part in late:
                part.add_to(totals)
            floor, late = _find_lower_bound(totals, n), ()
        docs = np.flatnonzero(totals >= floor if floor > 0 else totals > 0)
        scores = totals[docs]
        for part in late:
            scores += part.look_up(docs)
        return docs, scores


def _find_lower_bound(totals: Float32Array, n: int) -> float:
    """Return a total that at least n documents reach; 0 if none is known.

    Documents are divided into groups; the n-th best of the groups' maxima is such a total, and fast to find.
    """
    n_groups = len(totals) // _GROUP_DOCS
    if n * 2 > n_groups:
        return 0.0
    best = totals[: n_groups * _GROUP_DOCS].reshape(_GROUP_DOCS, n_groups).max(axis=0)
    return max(0.0, float(np.partition(best, -n)[-n]))
