"""Statistics of the documents of all shards together, for BM25."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from quarry.engine.index.gathering import Gathering
from quarry.engine.index.partition import Partition, PartitionSize
from quarry.engine.lexical.close_terms import CloseTerm, Expansion, allowed_edits, select_expansions

__all__ = ["Collections", "ShardedCollection"]

_MAX_ABSENT = 1 << 16  # terms that are remembered
_MAX_COLLECTIONS = 4  # that are remembered, one for each set of missing shards


class ShardedCollection:
    """Statistics of the live documents of some shards, as one index of the same documents would have them.

    Number of documents and lengths are added up as integers, so that the average is the same to the last bit.
    Document frequencies are learned once for each term, and hold as long as no shard is at another generation.

    Attributes:
        analysis: names the analysis of queries, see `quarry.formats.manifest.IndexSettings`.
        n_docs: live documents.
        average_length: mean number of terms of a live document.
    """

    def __init__(self, sizes: Iterable[PartitionSize], analysis: str) -> None:
        known = list(sizes)
        self.analysis = analysis
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


class Collections:
    """The statistics of the shards that answer, which are others if shards are missing; thread-safe.

    Args:
        shards: the shards of one index, at their generations.
        analysis: see `ShardedCollection`.
    """

    def __init__(self, shards: Sequence[Partition], analysis: str) -> None:
        self._shards = shards
        self._analysis = analysis
        self._known: dict[frozenset[int], ShardedCollection] = {}  # by the shards that are missing
        self._lock = threading.Lock()

    def find(
        self, terms: Sequence[str], free: Sequence[str], gathering: Gathering, *, corrects: bool
    ) -> ShardedCollection:
        """Return statistics that include the frequencies of these terms in all shards that answer.

        Args:
            terms: the terms of queries.
            free: those that may be mistyped.
            gathering: asks the shards.
            corrects: whether what stands for mistyped terms is included.
        """
        while True:  # again without the shards that failed meanwhile
            missing = frozenset(gathering.missing)
            made = self._known.get(missing)
            if made is None:
                sizes = gathering.run(lambda number: self._shards[number].measure())
                if missing != gathering.missing.keys():
                    continue
                made = self._keep(missing, ShardedCollection(sizes.values(), self._analysis))
            edits = (1, 2) if corrects else ()
            if self._learn(made, terms, gathering) and all(
                self._learn_expansions(made, free, each, gathering) for each in edits
            ):
                return made

    def _keep(self, missing: frozenset[int], made: ShardedCollection) -> ShardedCollection:
        with self._lock:
            if len(self._known) >= _MAX_COLLECTIONS:
                self._known = {key: each for key, each in self._known.items() if not key}
            return self._known.setdefault(missing, made)

    def _learn(self, made: ShardedCollection, terms: Iterable[str], gathering: Gathering) -> bool:
        """Learn the frequencies of terms; return whether the same shards are missing as before."""
        new, n_missing = made.find_unknown(terms), len(gathering.missing)
        if new:
            frequencies = gathering.run(
                lambda number: self._shards[number].document_frequencies(new, self._analysis)
            )
            if len(gathering.missing) > n_missing:
                return False
            made.learn(new, frequencies.values())
        return True

    def _learn_expansions(
        self, made: ShardedCollection, terms: Sequence[str], n_edits: int, gathering: Gathering
    ) -> bool:
        """Learn what stands for the terms that no document has; return whether the same shards are missing."""
        mistyped, n_missing = made.find_unexpanded(terms, n_edits), len(gathering.missing)
        if not mistyped:
            return True
        close = gathering.run(lambda number: self._shards[number].close_terms(mistyped, n_edits, self._analysis))
        together = [set[CloseTerm]().union(*several) for several in zip(*close.values(), strict=True)]
        names = [each.name for several in together for each in several]
        if len(gathering.missing) > n_missing or not self._learn(made, names, gathering):
            return False
        for term, several in zip(mistyped, together, strict=True):
            made.learn_expansions(term, several, n_edits)
        return True
