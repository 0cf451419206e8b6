"""One score out of two: the dense and the lexical score of the same documents."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["fuse"]

_RANK_OFFSET = 60

Floats = npt.NDArray[np.float32]


def fuse(dense: Floats, lexical: Floats, fusion: str, dense_weight: float) -> Floats:
    """Combine the scores of one query's candidates.

    "linear" is the interpolation of Luan et al. 2021 (section 6, "hybrid"), of scores brought to 0..1 among the
    candidates first: weight x dense + (1 - weight) x lexical. "rrf" is reciprocal rank fusion (Cormack et al.
    2009): the sum over both rankings of 1 / (60 + rank); a document without a term of the query has no rank in
    the lexical one.

    Args:
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores, 0 where no term of the query is in the document.
        fusion: "linear" or "rrf".
        dense_weight: of the dense side, from 0 to 1; used by "linear".

    Returns:
        (n,) float32, larger is better; comparable within the query only.
    """
    if fusion == "rrf":
        return _reciprocal_ranks(dense) + np.where(lexical > 0, _reciprocal_ranks(lexical), np.float32(0))
    weight = np.float32(dense_weight)
    mixed: Floats = weight * _spread(dense) + (1 - weight) * _spread(lexical)
    return mixed


def _spread(scores: Floats) -> Floats:
    """Scores moved and scaled to 0..1; where all are the same, 1 if that is above 0, else 0."""
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if low == high:
        return (scores > 0).astype(np.float32)
    spread: Floats = (scores - low) / (high - low)
    return spread


def _reciprocal_ranks(scores: Floats) -> Floats:
    """1 / (60 + rank), the best document's rank being 1; equal scores share the better rank."""
    descending = np.sort(-scores)
    ranks = np.searchsorted(descending, -scores, side="left") + 1
    return (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
