"""Statistics of the documents of all shards together, for BM25."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quarry.engine.lexical.close_terms import CloseTerm, Expansion, allowed_edits, select_expansions

__all__ = ["ShardSize", "ShardedCollection"]

_MAX_ABSENT = 1 << 16


class ShardSize(NamedTuple):
    """Size of a part of a collection.

    Attributes:
        n_docs: live documents.
        total_length: terms of all live documents, repetitions counted.
    """

    n_docs: int
    total_length: int


class ShardedCollection:
    """Statistics of the live documents of some shards, as one index of the same documents would have them.

    Number of documents and lengths are added up as integers, so that the average is the same to the last bit.
    Document frequencies are learned once for each term, and hold as long as no shard is at another generation.

    Attributes:
        n_docs: live documents.
        average_length: mean number of terms of a live document.
    """

    def __init__(self, sizes: Iterable[ShardSize]) -> None:
        known = list(sizes)
        self.n_docs = sum(size.n_docs for size in known)
        self.average_length = sum(size.total_length for size in known) / max(1, self.n_docs)
        self._frequencies: dict[str, int] = {}  # of terms that occur, so as many as there are at most
        self._absent: set[str] = set()
        self._expansions: dict[str, tuple[int, Sequence[Expansion]]] = {}  # and the distance that was searched

    def find_unknown(self, terms: Iterable[str]) -> list[str]:
        """Return the terms, each once, whose frequencies have to be learned before they are in a query."""
        distinct = dict.fromkeys(terms)
        return [term for term in distinct if term not in self._frequencies and term not in self._absent]

    def learn(self, terms: Sequence[str], frequencies: Iterable[Sequence[int]]) -> None:
        """Add the frequencies of terms, given for each shard in the order of the terms."""
        totals = [sum(each) for each in zip(*frequencies, strict=True)]
        known = {term: total for term, total in zip(terms, totals, strict=True) if total}
        self._frequencies |= known
        if len(self._absent) > _MAX_ABSENT:
            self._absent = set()
        self._absent |= set(terms) - known.keys()

    def find_unexpanded(self, terms: Iterable[str], n_edits: int) -> list[str]:
        """Return the terms, each once, that no document has, if expansions at this distance are to be learned."""
        return [
            term
            for term in dict.fromkeys(terms)
            if term not in self._frequencies
            and n_edits in allowed_edits(term)
            and self._expansions.get(term, (0, ()))[0] < n_edits
            and not self.expand(term)
        ]

    def learn_expansions(self, term: str, close: Iterable[CloseTerm], n_edits: int) -> None:
        """Add the terms that stand for one.

        Args:
            term: the mistyped term.
            close: all terms of all shards within a distance; their frequencies were learned.
            n_edits: the distance.
        """
        if len(self._expansions) > _MAX_ABSENT:
            self._expansions = {}
        self._expansions[term] = (n_edits, select_expansions(close, self._frequencies))

    def expand(self, term: str) -> Sequence[Expansion]:
        """Return the terms that stand for one that no document has, as they were learned."""
        return self._expansions.get(term, (0, ()))[1]

    def document_frequency(self, term: str) -> int:
        """Return the number of live documents of all shards with a term that was learned."""
        return self._frequencies.get(term, 0)
