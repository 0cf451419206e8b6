"""Fused scores of hybrid search."""

from __future__ import annotations

import math

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array

__all__ = ["fuse"]

_RANK_OFFSET = 60
_N_ASSUMED = 2
_WORDING = 5  # weight of the wording beside BM25


def fuse(
    dense: Float32Array,
    lexical: Float32Array,
    fusion: str,
    dense_weight: float,
    wording: Float32Array | None = None,
) -> Float32Array:
    """Combine the scores of one query's candidates.

    "linear" is the interpolation of Luan et al. 2021 (section 6, "hybrid"), of scores that are min-max normalized
    over the candidates: weight x dense + (1 - weight) x lexical. The lexical part is (BM25 + 5 wording) / 6.

    "rrf" is reciprocal rank fusion (Cormack et al. 2009): the sum over both rankings of 1 / (60 + rank); a
    document without a term of the query has no rank in the lexical ranking.

    Args:
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores, 0 for documents without a term of the query.
        fusion: "linear" or "rrf".
        dense_weight: weight of the dense scores in "linear", from 0 to 1.
        wording: (n,) float32, see `quarry.engine.lexical.wording`, NaN for documents whose texts were not read:
            theirs is estimated from BM25. If it is NaN for all, or None, the lexical part is BM25 alone.

    Returns:
        (n,) float32, larger is better; comparable within the query only.
    """
    if fusion == "rrf":
        return _reciprocal_ranks(dense) + np.where(lexical > 0, _reciprocal_ranks(lexical), np.float32(0))
    weight = np.float32(dense_weight)
    terms = _normalize_min_max(lexical)
    if wording is not None:
        terms = (terms + _WORDING * _estimate_unknown(wording, terms)) / np.float32(1 + _WORDING)
    mixed: Float32Array = weight * _normalize_min_max(dense) + (1 - weight) * terms
    return mixed


def _estimate_unknown(wording: Float32Array, lexical: Float32Array) -> Float32Array:
    """Return scores of wording, where they are NaN in the proportion to normalized BM25 that the others have.

    Their average includes two documents for which both are 1, so that one document alone does not decide it.
    """
    is_known: BoolArray = ~np.isnan(wording)
    sums = (math.fsum(each[is_known].tolist()) for each in (wording, lexical))  # the same in any order
    of_wording, of_lexical = (each + _N_ASSUMED for each in sums)
    ratio = np.float32(of_wording / of_lexical)
    estimated: Float32Array = np.where(is_known, wording, np.minimum(lexical * ratio, np.float32(1)))
    return estimated


def _normalize_min_max(scores: Float32Array) -> Float32Array:
    """Scale scores to 0..1; equal scores become 1 if they are positive, else 0."""
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if low == high:
        return (scores > 0).astype(np.float32)
    normalized: Float32Array = (scores - low) / (high - low)
    return normalized


def _reciprocal_ranks(scores: Float32Array) -> Float32Array:
    """Return 1 / (60 + rank), with rank 1 for the best document; equal scores share the better rank."""
    descending = np.sort(-scores)
    ranks = np.searchsorted(descending, -scores, side="left") + 1
    return (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
