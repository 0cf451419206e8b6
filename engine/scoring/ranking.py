"""Rankings: the documents of an answer as columns, best first, and what is known about all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Exactness", "Ranking", "ranked"]


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Exactness(StrEnum):
    """What is known about the documents that are not in an answer.

    Scores are exact always: the query in full precision against the vectors as stored (in an index of codes
    alone, against what the codes stand for).
    """

    EXACT = "exact"
    """No other document of the index, or of those a filter allows, has a better score."""
    PROBED_LISTS = "exact over probed lists"
    """No other document with a vector in one of the inverted lists that were read has a better score."""
    APPROXIMATE = "approximate"
    """Stage 1 chose by codes or by a graph: a better one may have been passed over."""
    PARTIAL = "partial"
    """Not every shard answered; see `Hits.coverage`."""

    @staticmethod
    def weakest(parts: Iterable[Exactness]) -> Exactness:
        """What an answer made of these promises."""
        order = list(Exactness)
        return max(parts, key=order.index, default=Exactness.EXACT)


class Ranking(NamedTuple):
    """Documents, best first; equal scores in the order of segment and ordinal.

    Attributes:
        segments: (n,) int64, numbers of the segments.
        docs: (n,) int64, ordinals there.
        scores: (n,) float32, what they are ranked by.
        dense: (n,) float32, their aggregated dense scores, where those were computed.
        lexical: (n,) float32, their BM25 scores, where those were computed.
        exactness: what is known about the documents that are not in it.
    """

    segments: Ints
    docs: Ints
    scores: Floats
    dense: Floats | None = None
    lexical: Floats | None = None
    exactness: Exactness = Exactness.APPROXIMATE


def ranked(answers: Sequence[tuple[Ints, Floats]], n: int, keep_ties: bool = False) -> Ranking:
    """Rank the documents found in each segment, given with their scores, and keep the n best.

    Args:
        answers: for each segment documents and their scores.
        n: how many are wanted.
        keep_ties: whether all documents that tie with the n-th are kept too.
    """
    segments = np.repeat(np.arange(len(answers)), [len(docs) for docs, _ in answers])
    docs = np.concatenate([docs for docs, _ in answers] or [np.empty(0, np.int64)])
    scores = np.concatenate([scores for _, scores in answers] or [np.empty(0, np.float32)])
    if len(scores) > n:
        kept = np.flatnonzero(scores >= np.partition(scores, len(scores) - n)[len(scores) - n])
        segments, docs, scores = segments[kept], docs[kept], scores[kept]
    order = np.lexsort((docs, segments, -scores))
    if not keep_ties:
        order = order[:n]
    return Ranking(segments[order], docs[order], scores[order])
