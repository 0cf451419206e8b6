"""The order of documents with equal scores: that of their ids, which depends on no segment, merge or shard."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from quarry.engine.scoring.ranking import Ranking, find_nth_largest
from quarry.formats.arrays import Float32Array, Int64Array, UInt64Array
from quarry.formats.snapshot import OpenSegment

__all__ = ["IdOrder", "ReadIds", "best_places", "cut_places"]

_MANY = 256  # ids that are read rather than compared by eight bytes at a time
_MAX_STEPS = 512  # of eight bytes, as many as an id may have

ReadIds = Callable[[Int64Array], Sequence[str]]
"""Returns the ids of the documents at some places."""


def cut_places(scores: Float32Array, n: int, read_ids: ReadIds) -> Int64Array:
    """Return the places of the n best documents, ascending; of those that tie at the cut, the first ids are kept.

    Args:
        scores: (m,) float32.
        n: how many, at least 1.
        read_ids: called if documents tie at the cut, for them alone.
    """
    if len(scores) <= n:
        return np.arange(len(scores))
    least = find_nth_largest(scores, n)
    better, tied = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    n_left = n - len(better)
    if len(tied) > n_left:
        first = heapq.nsmallest(n_left, zip(read_ids(tied), tied.tolist(), strict=True))
        tied = np.array([place for _, place in first], np.int64)
    return np.sort(np.concatenate([better, tied]))


def best_places(scores: Float32Array, n: int, read_ids: ReadIds) -> Int64Array:
    """Return the places of the n best documents, best first; equal scores are in the order of their ids.

    Args:
        scores: (m,) float32.
        n: how many, at least 1.
        read_ids: called if scores are equal, for the documents that have them.
    """
    kept = cut_places(scores, n, read_ids)
    order: Int64Array = kept[np.argsort(-scores[kept], kind="stable")]
    is_same = np.zeros(len(order) + 1, bool)
    is_same[1:-1] = scores[order[1:]] == scores[order[:-1]]
    is_tied = is_same[1:] | is_same[:-1]
    if is_tied.any():
        tied = order[is_tied]
        keys = zip((-scores[tied]).tolist(), read_ids(tied), tied.tolist(), strict=True)
        order[is_tied] = [place for _, _, place in sorted(keys)]
    return order


class IdOrder:
    """Cuts and orders rankings of the documents of some segments.

    Args:
        segments: of a snapshot; they are used even after it is closed.
    """

    def __init__(self, segments: Sequence[OpenSegment]) -> None:
        self._segments = segments

    def read_ids(self, segments: Int64Array, docs: Int64Array) -> list[str]:
        """Return the ids of documents, in their order.

        Args:
            segments: (n,) int64, numbers of their segments.
            docs: (n,) int64, ordinals there.
        """
        found = [""] * len(docs)
        for number in np.unique(segments).tolist():
            places = np.flatnonzero(segments == number)
            ids = self._segments[number].reader.ids.many(docs[places])
            for place, doc_id in zip(places.tolist(), ids, strict=True):
                found[place] = doc_id
        return found

    def reader_of(self, segments: Int64Array, docs: Int64Array) -> ReadIds:
        """Return what reads the ids of some of these documents, given their places."""
        return lambda places: self.read_ids(segments[places], docs[places])

    def cut(self, ranking: Ranking, n: int) -> Ranking:
        """Return the n best documents of a ranking; those with equal scores may be in any order."""
        ranking = self._narrow(ranking, n)
        return ranking.take(cut_places(ranking.scores, n, self.reader_of(ranking.segments, ranking.docs)))

    def best(self, ranking: Ranking, n: int) -> Ranking:
        """Return the n best documents of a ranking, best first."""
        ranking = self._narrow(ranking, n)
        return ranking.take(best_places(ranking.scores, n, self.reader_of(ranking.segments, ranking.docs)))

    def _narrow(self, ranking: Ranking, n: int) -> Ranking:
        """Leave out most documents that tie with the n-th and have later ids, if they are many.

        A word that all short titles have gives most of them the same score, and reading 30,000 ids takes 40 ms.
        """
        scores = ranking.scores
        if len(scores) <= n + _MANY:
            return ranking
        least = find_nth_largest(scores, n)
        better, tied = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        first = self._first_ids(ranking.segments[tied], ranking.docs[tied], n - len(better))
        return ranking.take(np.sort(np.concatenate([better, tied[first]])))

    def _first_ids(self, segments: Int64Array, docs: Int64Array, n: int) -> Int64Array:
        """Return the places of documents among which are those with the n >= 1 first ids."""
        found: list[Int64Array] = []
        undecided = np.arange(len(docs))
        # As in a radix selection: of ids with the same first bytes, those below the n-th key are in, those above
        # it are out, and only those with an equal key need their next eight bytes.
        for step in range(_MAX_STEPS):
            if len(undecided) <= n + _MANY:
                break
            keys = self._keys(segments[undecided], docs[undecided], 8 * step)
            limit = np.partition(keys, n - 1)[n - 1]
            is_first = keys < limit
            found.append(undecided[is_first])
            n -= int(np.count_nonzero(is_first))
            undecided = undecided[keys == limit]
        return np.concatenate([*found, undecided])

    def _keys(self, segments: Int64Array, docs: Int64Array, first: int) -> UInt64Array:
        keys = np.empty(len(docs), np.uint64)
        for number in np.unique(segments).tolist():
            is_inside = segments == number
            keys[is_inside] = self._segments[number].reader.ids.strings.keys(docs[is_inside], first)
        return keys
