"""Adding up what the terms of a query give to the documents of one segment, and finding the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.filtering.allowed import Allowed
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.postings.elias_fano import Postings

__all__ = ["Scored", "SegmentScorer", "TermPart", "looked_up"]

Scored = tuple[Int64Array, Float32Array]  # documents and their scores

_DENSE_FACTOR = 6  # documents for each posting of a term up to which each of them has a place in the term's part
_SPARSE_FACTOR = 16  # documents for each posting of a query from which on none has a place in the totals
_FEW_FACTOR = 256  # documents for each that a filter allows from which on only those are scored
_LANE_DOCS = 64
_SLACK = 1e-4  # more than rounding can change a sum of 1000 float32 numbers by, relatively


class TermPart(NamedTuple):
    """What a term adds to the scores of the documents of one segment.

    Attributes:
        n_docs: number of live documents with the term.
        docs: (n_docs,) int64, which they are, ascending; None where they are so many that every document of
            the segment has a place in `scores`.
        scores: float32, what it adds for each, 0 where a document does not have it.
        peak: the largest of them.
    """

    n_docs: int
    docs: Int64Array | None
    scores: Float32Array
    peak: float

    @classmethod
    def of(cls, postings: Postings, norms: Float32Array, idf: float) -> TermPart:
        """What the postings of live documents add, with the norm of each document: idf tf / (tf + norm)."""
        if not len(postings.docs):
            return _NOTHING
        docs = postings.docs.astype(np.int64)
        tf = postings.frequencies.astype(np.float32)
        scores = norms.take(docs)
        scores += tf
        np.divide(tf, scores, out=scores)
        scores *= np.float32(idf)
        peak = float(scores.max(initial=0))
        if len(docs) * _DENSE_FACTOR < len(norms):
            return cls(len(docs), docs, scores, peak)
        every = np.zeros(len(norms), np.float32)
        every[docs] = scores
        return cls(len(docs), None, every, peak)

    def repeated(self, times: int) -> TermPart:
        """The part of a term that is so many times in the query."""
        if times == 1:
            return self
        return TermPart(self.n_docs, self.docs, self.scores * np.float32(times), self.peak * times)

    @property
    def n_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.scores.nbytes + (0 if self.docs is None else self.docs.nbytes)

    def add_to(self, totals: Float32Array) -> None:
        """Add to the scores of all documents."""
        if self.docs is None:
            totals += self.scores
        else:
            np.add.at(totals, self.docs, self.scores)

    def looked_up(self, docs: Int64Array) -> Float32Array:
        """What is added to the scores of (n,) documents."""
        if self.docs is None:
            return self.scores[docs]
        if not self.n_docs:
            return np.zeros(len(docs), np.float32)
        at = np.minimum(self.docs.searchsorted(docs), self.n_docs - 1)
        return np.where(self.docs[at] == docs, self.scores[at], np.float32(0))


_NOTHING = TermPart(0, np.empty(0, np.int64), np.empty(0, np.float32), 0.0)


def looked_up(parts: Sequence[TermPart], docs: Int64Array) -> Float32Array:
    """(n,) float32, the scores of (n,) documents: what the parts add, in their order."""
    scores = np.zeros(len(docs), np.float32)
    for part in parts:
        scores += part.looked_up(docs)
    return scores


class SegmentScorer:
    """Scores the live documents of a segment by the parts of a query's terms, frequent terms last.

    No part has a deleted document, so their scores are 0. However the sum is formed, a document's parts are added
    up in their order, in float32: its score is the same to the last bit.

    Args:
        n_docs: documents in the segment, deleted ones included.
    """

    def __init__(self, n_docs: int) -> None:
        self._n_docs = n_docs

    def scores(self, parts: Sequence[TermPart]) -> Scored:
        """The documents with a score, ascending, and their scores."""
        if self._is_sparse(parts):
            return self._sparse_scores(parts)
        totals = self._totals(parts)
        docs = np.flatnonzero(totals > 0)
        return docs, totals[docs]

    def best(self, parts: Sequence[TermPart], n: int, allowed: Allowed | None = None) -> Scored:
        """The n >= 1 best documents, all that tie with the last of them, unordered, and their scores.

        Args:
            parts: of the query's terms.
            n: see above.
            allowed: the documents that may be found; None: all that are not deleted.
        """
        docs, scores = self._best(parts, n, allowed)
        if len(docs) <= n:
            return docs, scores
        good = scores >= np.partition(scores, -n)[-n]
        return docs[good], scores[good]

    def _best(self, parts: Sequence[TermPart], n: int, allowed: Allowed | None) -> Scored:
        """Documents with the n best among them, and their scores."""
        if allowed is not None and allowed.n * _FEW_FACTOR < self._n_docs:
            scores = looked_up(parts, allowed.docs)
            found = scores > 0
            return allowed.docs[found], scores[found]
        if self._is_sparse(parts):
            return self._sparse_scores(parts, allowed)
        return self._good(parts, n, allowed)

    def _is_sparse(self, parts: Sequence[TermPart]) -> bool:
        return sum(part.n_docs for part in parts) * _SPARSE_FACTOR < self._n_docs

    def _sparse_scores(self, parts: Sequence[TermPart], allowed: Allowed | None = None) -> Scored:
        """Scores without a place for every document; the parts are so short that each lists its documents."""
        lists = [part.docs for part in parts if part.docs is not None]
        docs = np.unique(np.concatenate([np.empty(0, np.int64), *lists]))
        if allowed is not None:
            docs = docs[allowed.flags[docs]]
        return docs, looked_up(parts, docs)

    def _totals(self, parts: Sequence[TermPart], allowed: Allowed | None = None) -> Float32Array:
        """(n_docs,) float32, 0 for documents without any of the terms, below for those not to be found."""
        totals = np.zeros(self._n_docs, np.float32) if allowed is None else allowed.floor.copy()
        for part in parts:
            part.add_to(totals)
        return totals

    def _good(self, parts: Sequence[TermPart], n: int, allowed: Allowed | None) -> Scored:
        """Documents with the n best among them, and their scores.

        The last terms that nearly every document has need only be looked up for documents that they can still
        lift to the n best of those without them. (MaxScore: H. Turtle, J. Flood, Query evaluation: strategies
        and optimizations, 1995.)
        """
        n_first = len(parts)
        while n_first and parts[n_first - 1].docs is None:
            n_first -= 1
        totals, late = self._totals(parts[:n_first], allowed), parts[n_first:]
        floor = _floor(totals, n) * (1 - _SLACK) - sum(part.peak for part in late) * (1 + _SLACK)
        if late and floor <= 0:
            for part in late:
                part.add_to(totals)
            floor, late = _floor(totals, n), ()
        docs = np.flatnonzero(totals >= floor if floor > 0 else totals > 0)
        scores = totals[docs]
        for part in late:
            scores += part.looked_up(docs)
        return docs, scores


def _floor(totals: Float32Array, n: int) -> float:
    """A total that n documents or more reach; 0 where none is known.

    The documents are dealt out to lanes: the n-th best of the lanes' best totals is found in one pass and a
    partition of few.
    """
    n_lanes = len(totals) // _LANE_DOCS
    if n * 2 > n_lanes:
        return 0.0
    best = totals[: n_lanes * _LANE_DOCS].reshape(_LANE_DOCS, n_lanes).max(axis=0)
    return max(0.0, float(np.partition(best, -n)[-n]))
