"""Fused scores of hybrid search."""

from __future__ import annotations

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array

__all__ = ["fuse"]

_RANK_OFFSET = 60  # of reciprocal rank fusion (Cormack et al. 2009)


def fuse(
    dense: Float32Array,
    lexical: Float32Array,
    fusion: str,
    dense_weight: float,
    least_range: float = 0.0,
    reference: tuple[Float32Array, Float32Array] | None = None,
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
        reference: the dense and the lexical scores of the candidates that decide the scale, or the ranks. None:
            these are all of them.

    Returns:
        (n,) float32, larger is better; comparable within the query only.
    """
    ref_dense, ref_lexical = (dense, lexical) if reference is None else reference
    if fusion == "rrf":
        by_terms = np.where(lexical > 0, _reciprocal_ranks(lexical, ref_lexical), np.float32(0))
        return _reciprocal_ranks(dense, ref_dense) + by_terms
    weight = np.float32(dense_weight)
    by_vector: Float32Array = weight * _normalize_min_max(dense, ref_dense, least_range)
    mixed: Float32Array = by_vector + (1 - weight) * _normalize_min_max(lexical, ref_lexical)
    return mixed


def _normalize_min_max(scores: Float32Array, reference: Float32Array, least_range: float = 0.0) -> Float32Array:
    """Scale scores so that those of the reference become 0 to 1, or less if their range is small.

    If these are equal, they become 1 if they are positive, else 0.
    """
    if not len(reference):
        return np.zeros(len(scores), np.float32)
    low, high = reference.min(), reference.max()
    if low == high:
        is_full: BoolArray = (scores > 0) & (scores >= low)
        return is_full.astype(np.float32)
    normalized: Float32Array = (scores - low) / max(high - low, np.float32(least_range))
    return normalized


def _reciprocal_ranks(scores: Float32Array, reference: Float32Array) -> Float32Array:
    """Return 1 / (60 + rank) among the reference, with rank 1 for the best; equal scores share the better rank."""
    descending = np.sort(-reference)
    ranks = np.searchsorted(descending, -scores, side="left") + 1
    return (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
