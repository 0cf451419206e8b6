"""Fused scores of hybrid search."""

from __future__ import annotations

import numpy as np

from quarry.formats.arrays import Float32Array

__all__ = ["fuse"]

_RANK_OFFSET = 60  # of reciprocal rank fusion (Cormack et al. 2009)


def fuse(
    dense: Float32Array,
    lexical: Float32Array,
    fusion: str,
    dense_weight: float,
    least_range: float = 0.0,
) -> Float32Array:
    """Combine the scores of one query's candidates.

    "linear" is the interpolation of Luan et al. 2021 (section 6, "hybrid"), of scores that are min-max normalized
    over the candidates: weight x dense + (1 - weight) x lexical. Where dense scores hardly differ, a full scale
    would turn small differences into large ones; so their range is `least_range` at least.

    "rrf" is reciprocal rank fusion (Cormack et al. 2009): the sum over both rankings of 1 / (60 + rank); a
    document without a term of the query has no rank in the lexical ranking.

    Args:
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores, 0 for documents without a term of the query.
        fusion: "linear" or "rrf".
        dense_weight: weight of the dense scores in "linear", from 0 to 1.
        least_range: the least difference of dense scores that is scaled to 1, in their unit.

    Returns:
        (n,) float32, larger is better; comparable within the query only.
    """
    if fusion == "rrf":
        return _reciprocal_ranks(dense) + np.where(lexical > 0, _reciprocal_ranks(lexical), np.float32(0))
    weight = np.float32(dense_weight)
    mixed: Float32Array = weight * _normalize_min_max(dense, least_range) + (1 - weight) * _normalize_min_max(
        lexical
    )
    return mixed


def _normalize_min_max(scores: Float32Array, least_range: float = 0.0) -> Float32Array:
    """Scale scores to 0..1, or less if their range is small; equal ones become 1 if they are positive, else 0."""
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if low == high:
        return (scores > 0).astype(np.float32)
    normalized: Float32Array = (scores - low) / max(high - low, np.float32(least_range))
    return normalized


def _reciprocal_ranks(scores: Float32Array) -> Float32Array:
    """Return 1 / (60 + rank), with rank 1 for the best document; equal scores share the better rank."""
    descending = np.sort(-scores)
    ranks = np.searchsorted(descending, -scores, side="left") + 1
    return (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
