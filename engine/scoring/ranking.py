"""Rankings: documents as columns, best first, with the exactness of the answer.

Equal scores are in the order of ids, which depends on no segment, merge or shard.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array, UInt64Array
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "Exactness",
    "IdOrder",
    "Key",
    "Ranking",
    "ReadKeys",
    "best_places",
    "cut_places",
    "distinct",
    "find_nth_largest",
    "join_rankings",
    "merge_rankings",
]

_MANY = 256  # ids that are read rather than compared by eight bytes at a time
_MAX_STEPS = 512  # of eight bytes, as many as an id may have

Key = tuple[str, int]
"""The id of a document and the number of the passage in its segment, which orders passages of one document."""

ReadKeys = Callable[[Int64Array], Sequence[Key]]
"""Returns the keys of the passages at some places."""


class Exactness(StrEnum):
    """What is known about the documents that are not in an answer.

    The scores themselves are always exact: the query in full precision against the vectors as stored (decoded
    codes in an index of codes only).
    """

    EXACT = "exact"
    """No other document of the index, or of those that the filter allows, has a better score."""
    PROBED_LISTS = "exact over probed lists"
    """No other document with a vector in one of the inverted lists that were read has a better score."""
    APPROXIMATE = "approximate"
    """Candidates were found by codes or a graph: a better document may have been missed."""
    PARTIAL = "partial"
    """A shard of the index did not answer; see `Hits.coverage`."""

    @staticmethod
    def weakest(parts: Iterable[Exactness]) -> Exactness:
        """Return the exactness of an answer combined from parts."""
        order = list(Exactness)
        return max(parts, key=order.index, default=Exactness.EXACT)


class Ranking(NamedTuple):
    """Documents, best first.

    Attributes:
        segments: (n,) int64, number of the segment of each document.
        docs: (n,) int64, ordinals in the segments.
        scores: (n,) float32, scores they are ranked by.
        dense: (n,) float32, aggregated dense scores, or None if not computed.
        lexical: (n,) float32, BM25 scores, or None if not computed.
        exactness: what is known about the documents that are not in it.
    """

    segments: Int64Array
    docs: Int64Array
    scores: Float32Array
    dense: Float32Array | None = None
    lexical: Float32Array | None = None
    exactness: Exactness = Exactness.APPROXIMATE

    def take(self, places: Int64Array | slice) -> Ranking:
        """Return the documents at these places, in their order."""
        dense = None if self.dense is None else self.dense[places]
        lexical = None if self.lexical is None else self.lexical[places]
        return Ranking(
            self.segments[places], self.docs[places], self.scores[places], dense, lexical, self.exactness
        )

    def skip(self, n: int) -> Ranking:
        """Return all but the n best documents."""
        return self.take(slice(n, None))


def join_rankings(parts: Sequence[Ranking]) -> Ranking:
    """Return the documents of several rankings, one after another."""
    names = Ranking._fields[:5]
    values = {name: [value for part in parts if (value := getattr(part, name)) is not None] for name in names}
    columns: dict[str, Any] = {name: np.concatenate(each) if each else None for name, each in values.items()}
    return Ranking(**columns, exactness=Exactness.weakest(part.exactness for part in parts))


def merge_rankings(answers: Sequence[tuple[Int64Array, Float32Array]], n: int, keep_ties: bool = False) -> Ranking:
    """Merge the documents found in each segment, given with their scores, into the n best, best first.

    Equal scores are in the order of segment and ordinal; see `IdOrder` for that of hits.

    Args:
        answers: for each segment documents and their scores.
        n: number of documents.
        keep_ties: whether all documents that tie with the n-th are kept too.
    """
    segments = np.repeat(np.arange(len(answers)), [len(docs) for docs, _ in answers])
    docs = np.concatenate([docs for docs, _ in answers] or [np.empty(0, np.int64)])
    scores = np.concatenate([scores for _, scores in answers] or [np.empty(0, np.float32)])
    if len(scores) > n:
        kept = np.flatnonzero(scores >= find_nth_largest(scores, n))
        segments, docs, scores = segments[kept], docs[kept], scores[kept]
    order = np.lexsort((docs, segments, -scores))
    if not keep_ties:
        order = order[:n]
    return Ranking(segments[order], docs[order], scores[order])


def find_nth_largest(scores: Float32Array, n: int) -> float:
    """Return the n-th largest of at least n scores, 1 <= n.

    `np.partition` takes twenty times as long if most numbers are equal and less than the one sought, as the scores
    of documents with the same frequent word are. So negative scores are partitioned, unless the largest score
    occurs n times.
    """
    largest = scores.max()
    if np.count_nonzero(scores == largest) >= n:
        return float(largest)
    return -float(np.partition(-scores, n - 1)[n - 1])


def cut_places(scores: Float32Array, n: int, read_keys: ReadKeys) -> Int64Array:
    """Return the places of the n best documents, ascending; of those that tie at the cut, the first ids are kept.

    Args:
        scores: (m,) float32.
        n: how many, at least 1.
        read_keys: called if documents tie at the cut, for them alone.
    """
    if len(scores) <= n:
        return np.arange(len(scores))
    least = find_nth_largest(scores, n)
    better, tied = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    n_left = n - len(better)
    if len(tied) > n_left:
        first = heapq.nsmallest(n_left, zip(read_keys(tied), tied.tolist(), strict=True))
        tied = np.array([place for _, place in first], np.int64)
    return np.sort(np.concatenate([better, tied]))


def best_places(scores: Float32Array, n: int, read_keys: ReadKeys) -> Int64Array:
    """Return the places of the n best documents, best first; equal scores are in the order of their ids.

    Args:
        scores: (m,) float32.
        n: how many, at least 1.
        read_keys: called if scores are equal, for the documents that have them.
    """
    kept = cut_places(scores, n, read_keys)
    order: Int64Array = kept[np.argsort(-scores[kept], kind="stable")]
    is_same = np.zeros(len(order) + 1, bool)
    is_same[1:-1] = scores[order[1:]] == scores[order[:-1]]
    is_tied = is_same[1:] | is_same[:-1]
    if is_tied.any():
        tied = order[is_tied]
        keys = zip((-scores[tied]).tolist(), read_keys(tied), tied.tolist(), strict=True)
        order[is_tied] = [place for _, _, place in sorted(keys)]
    return order


class IdOrder:
    """Cuts and orders rankings of the documents of some segments.

    Args:
        segments: the segments of a snapshot; they are used even after it is closed.
    """

    def __init__(self, segments: Sequence[OpenSegment]) -> None:
        self._segments = segments

    def read_keys(self, segments: Int64Array, passages: Int64Array) -> list[Key]:
        """Return the keys of passages, in their order.

        Args:
            segments: (n,) int64, numbers of their segments.
            passages: (n,) int64, ordinals there.
        """
        keys_read = [("", 0)] * len(passages)
        for number in np.unique(segments).tolist():
            places = np.flatnonzero(segments == number)
            own = passages[places]
            ids = self._segments[number].reader.ids.many(self._documents_of(number, own))
            for place, key in zip(places.tolist(), zip(ids, own.tolist(), strict=True), strict=True):
                keys_read[place] = key
        return keys_read

    def _documents_of(self, segment: int, passages: Int64Array) -> Int64Array:
        return self._segments[segment].reader.passages.documents_of(passages)

    def reader_of(self, segments: Int64Array, docs: Int64Array) -> ReadKeys:
        """Return what reads the ids of some of these documents, given their places."""
        return lambda places: self.read_keys(segments[places], docs[places])

    def cut(self, ranking: Ranking, n: int) -> Ranking:
        """Return the n best documents of a ranking; those with equal scores may be in any order."""
        ranking = ranking.take(self._narrow(ranking, n))
        return ranking.take(cut_places(ranking.scores, n, self.reader_of(ranking.segments, ranking.docs)))

    def best(self, ranking: Ranking, n: int) -> Ranking:
        """Return the n best documents of a ranking, best first."""
        return ranking.take(self.best_places(ranking, n))

    def best_places(self, ranking: Ranking, n: int) -> Int64Array:
        """Return the places of the n best documents of a ranking, best first."""
        kept = self._narrow(ranking, n)
        near = ranking.take(kept)
        best = best_places(near.scores, n, self.reader_of(near.segments, near.docs))
        return best if isinstance(kept, slice) else kept[best]

    def _narrow(self, ranking: Ranking, n: int) -> Int64Array | slice:
        """Return the places without most documents that tie with the n-th and have later ids, if they are many.

        A word that all short titles have gives most of them the same score, and reading 30,000 ids takes 40 ms.
        """
        scores = ranking.scores
        if len(scores) <= n + _MANY:
            return slice(None)
        least = find_nth_largest(scores, n)
        better, tied = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        first = self._first_ids(ranking.segments[tied], ranking.docs[tied], n - len(better))
        return np.sort(np.concatenate([better, tied[first]]))

    def _first_ids(self, segments: Int64Array, docs: Int64Array, n: int) -> Int64Array:
        """Return the places of documents among which are those with the n >= 1 first ids."""
        first: list[Int64Array] = []
        undecided = np.arange(len(docs))
        # As in a radix selection: of ids with the same first bytes, those below the n-th key are in, those above
        # it are out, and only those with an equal key need their next eight bytes.
        for step in range(_MAX_STEPS):
            if len(undecided) <= n + _MANY:
                break
            keys = self._keys(segments[undecided], docs[undecided], 8 * step)
            if not keys.any():  # their ids end here: those that are left are passages of one document
                break
            limit = np.partition(keys, n - 1)[n - 1]
            is_first = keys < limit
            first.append(undecided[is_first])
            n -= int(np.count_nonzero(is_first))
            undecided = undecided[keys == limit]
        return np.concatenate([*first, undecided])

    def _keys(self, segments: Int64Array, docs: Int64Array, first: int) -> UInt64Array:
        keys = np.empty(len(docs), np.uint64)
        for number in np.unique(segments).tolist():
            is_inside = segments == number
            own = self._documents_of(number, docs[is_inside])
            keys[is_inside] = self._segments[number].reader.ids.strings.keys(own, first)
        return keys


def distinct(ascending: Int64Array) -> Int64Array:
    """Return each of (n,) ascending numbers once."""
    first = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]
