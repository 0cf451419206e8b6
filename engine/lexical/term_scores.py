"""The scores of a term in the documents of one segment, decoded or looked up.

The postings of a frequent term are decoded only if that takes less time: decoding and scoring five million takes
50 ms and more memory than the cache of terms has. A query with a rarer word needs the scores of a few thousand
documents, which `RecordLookup` finds in the encoded postings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.record_lookup import RecordLookup

__all__ = ["Costs", "EncodedScores", "EncodedTerm", "PartScores", "TermScores", "look_up"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Sizes from which on another method is used, and the largest query.

    Attributes:
        dense_factor: up to so many documents per posting of a term, its scores are stored for all documents.
        sparse_factor: from so many documents per posting of the first terms on, there is no array of all totals.
        large_segment: documents; in smaller segments, adding a term takes less time than deciding whether to.
        many_candidates: so many are reduced between look-ups.
        frequent: documents of a segment; a term with so many is decoded only if that takes less time.
        postings_per_lookup: decoded and scored in the time of looking up one document.
        max_terms: distinct terms of a query; of more terms the rarest are used.
    """

    dense_factor: int = 6
    sparse_factor: int = 16
    large_segment: int = 1 << 17
    many_candidates: int = 4096
    frequent: int = 1 << 16
    postings_per_lookup: int = 32
    max_terms: int = 1000


_MAX_FREQUENCY = 16  # larger frequencies are not told apart for the upper bound of scores
_ROUNDED_UP = 1 + 1e-6  # for the rounding of scores to float32


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
        """Return the scores for a query in which the term occurs `times` times, or has that weight."""
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
    def of(
        cls, postings: Postings, norms: Float32Array, idf: float, dense_factor: float = Costs.dense_factor
    ) -> TermScores:
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
        if len(docs) * dense_factor < len(norms):
            return cls(len(docs), docs, scores, max_score)
        dense = np.zeros(len(norms), np.float32)
        dense[docs] = scores
        return cls(len(docs), None, dense, max_score)

    def multiply(self, times: float) -> TermScores:
        """Return the scores for a query in which the term occurs `times` times, or has that weight."""
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
        has_term: BoolArray = self.docs.take(self.docs.searchsorted(docs), mode="clip") == docs
        return has_term

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


class EncodedTerm(NamedTuple):
    """A frequent term in a segment without deleted documents.

    Attributes:
        n_docs: number of documents with the term.
        lookup: its record.
        norms: (n_docs of the segment,) float32, of BM25.
        idf: its inverse document frequency.
        max_score: upper bound of its scores.
    """

    n_docs: int
    lookup: RecordLookup
    norms: Float32Array
    idf: float
    max_score: float

    @classmethod
    def of(
        cls, n_docs: int, lookup: RecordLookup, norms: Float32Array, least_norm: float, idf: float
    ) -> EncodedTerm:
        """Make a term; its bound is idf tf / (tf + norm) for its largest tf and the least norm of the segment."""
        tf = lookup.largest_frequency(_MAX_FREQUENCY)
        bound = idf if tf > _MAX_FREQUENCY else idf * tf / (tf + least_norm)
        return cls(n_docs, lookup, norms, idf, bound * _ROUNDED_UP)

    @property
    def n_bytes(self) -> int:
        """Memory of the tables for look-ups, in bytes."""
        return self.lookup.n_bytes


class EncodedScores:
    """The scores of a term in a query; like `TermScores`.

    Args:
        term: the term.
        decode: returns the decoded scores of the term, from a cache if they are there.
        find_decoded: returns them if they are in the cache, otherwise None.
        times: factor of the scores.
        per_lookup: see `Costs.postings_per_lookup`.
    """

    def __init__(
        self,
        term: EncodedTerm,
        decode: Callable[[], TermScores],
        find_decoded: Callable[[], TermScores | None],
        times: float = 1,
        per_lookup: int = Costs.postings_per_lookup,
    ) -> None:
        self.n_docs = term.n_docs
        self.max_score = term.max_score * times
        self._term = term
        self._decode = decode
        self._find_decoded = find_decoded
        self._times = times
        self._per_lookup = per_lookup

    def multiply(self, times: float) -> Self:
        """Return the scores for a query in which the term occurs `times` times, or has that weight."""
        if times == 1:
            return self
        return type(self)(self._term, self._decode, self._find_decoded, times, self._per_lookup)

    @property
    def postings(self) -> tuple[Int64Array, Float32Array]:
        """The documents with the term, ascending, and its score in each."""
        return self._decoded.postings

    def add_to(self, totals: Float32Array) -> None:
        """Add to the scores of all documents."""
        self._decoded.add_to(totals)

    def contains(self, docs: Int64Array) -> BoolArray:
        """Return which of (n,) documents have the term."""
        known = self._decoded_for(docs)
        return self._term.lookup.contains(docs) if known is None else known.contains(docs)

    def look_up(self, docs: Int64Array) -> Float32Array:
        """Return the scores of the term in (n,) documents, 0 without it."""
        known = self._decoded_for(docs)
        if known is not None:
            return known.look_up(docs)
        frequencies = self._term.lookup.frequencies(docs)
        with_term = np.flatnonzero(frequencies)
        # The operations of decoded scores, in their order and in float32, so that both ways give the same bits.
        tf = frequencies[with_term].astype(np.float32)
        scores = self._term.norms.take(docs[with_term])
        scores += tf
        np.divide(tf, scores, out=scores)
        scores *= np.float32(self._term.idf)
        if self._times != 1:
            scores *= np.float32(self._times)
        all_scores = np.zeros(len(docs), np.float32)
        all_scores[with_term] = scores
        return all_scores

    def _decoded_for(self, docs: Int64Array) -> TermScores | None:
        """Return decoded scores if they are cached, or faster to make than to look up the documents; or None."""
        # A `cached_property` is in the dictionary once it was computed; asking for it would compute it.
        if "_decoded" in self.__dict__ or len(docs) * self._per_lookup > self.n_docs:
            return self._decoded
        known = self._find_decoded()
        return None if known is None else known.multiply(self._times)

    @cached_property
    def _decoded(self) -> TermScores:
        return self._decode().multiply(self._times)
