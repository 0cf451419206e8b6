"""The scores of a term in the documents of one segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.postings.elias_fano import Postings

__all__ = ["PartScores", "TermScores", "look_up"]

_DENSE_FACTOR = 6  # up to so many documents per posting of a term, its scores are stored for all documents


class PartScores(Protocol):
    """The scores of a term of a query in the documents of one segment."""

    @property
    def n_docs(self) -> int:
        """Number of live documents with the term."""
        ...

    @property
    def max_score(self) -> float:
        """An upper bound of the scores."""
        ...

    @property
    def postings(self) -> tuple[Int64Array, Float32Array]:
        """The documents with the term, ascending, and its score in each."""
        ...

    def multiply(self, times: float) -> Self:
        """Return the scores of a term that occurs so many times in the query, or has such a weight."""
        ...

    def add_to(self, totals: Float32Array) -> None:
        """Add to the scores of all documents."""
        ...

    def contains(self, docs: Int64Array) -> BoolArray:
        """Return which of (n,) documents have the term."""
        ...

    def look_up(self, docs: Int64Array) -> Float32Array:
        """Return the scores of the term in (n,) documents, 0 without it."""
        ...


class TermScores(NamedTuple):
    """The decoded scores of a term in the documents of one segment.

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

    @property
    def postings(self) -> tuple[Int64Array, Float32Array]:
        """The documents with the term, ascending, and its score in each."""
        if self.docs is not None:
            return self.docs, self.scores
        docs = np.flatnonzero(self.scores)
        return docs, self.scores[docs]

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


def look_up(parts: Sequence[PartScores], docs: Int64Array) -> Float32Array:
    """Return the scores of (n,) documents, (n,) float32: the sum over the terms, in their order."""
    scores = np.zeros(len(docs), np.float32)
    for part in parts:
        stop_if_cancelled()
        scores += part.look_up(docs)
    return scores
