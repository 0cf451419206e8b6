"""Rankings: documents as columns, best first, with the exactness of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["Exactness", "Ranking", "find_nth_largest", "merge_rankings"]


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


def merge_rankings(answers: Sequence[tuple[Int64Array, Float32Array]], n: int, keep_ties: bool = False) -> Ranking:
    """Merge the documents found in each segment, given with their scores, into the n best, best first.

    Equal scores are in the order of segment and ordinal; see `quarry.engine.search.id_order` for that of hits.

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
