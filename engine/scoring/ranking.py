"""The documents of an answer, best first, before their texts are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.scoring.exactness import Exactness

__all__ = ["Ranking", "ranked"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


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


def ranked(answers: Sequence[tuple[Ints, Floats]], n: int) -> Ranking:
    """The n best of the documents found in each segment, given with their scores."""
    segments = np.repeat(np.arange(len(answers)), [len(docs) for docs, _ in answers])
    docs = np.concatenate([docs for docs, _ in answers] or [np.empty(0, np.int64)])
    scores = np.concatenate([scores for _, scores in answers] or [np.empty(0, np.float32)])
    if len(scores) > n:
        kept = np.flatnonzero(scores >= np.partition(scores, len(scores) - n)[len(scores) - n])
        segments, docs, scores = segments[kept], docs[kept], scores[kept]
    order = np.lexsort((docs, segments, -scores))[:n]
    return Ranking(segments[order], docs[order], scores[order])
