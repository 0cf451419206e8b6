"""Aggregates the scores of a document's centroids to the score of the document."""

from __future__ import annotations

import math

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["aggregate", "compute_centroid_weights"]


def aggregate(
    scores: Float32Array, offsets: Int64Array, beta: float | None, mean_share: float = 0.0
) -> Float32Array:
    """Aggregate the scores of every document's centroids.

    With ``beta`` None a document's score is the largest of its centroids' scores (Luan et al. 2021, section
    3; Tang et al. 2021, Eq. 7). Otherwise it is sum(softmax(beta * s) * s): Eq. 4-6 of Tang et al. with an
    inverse temperature, 1 in the paper. A softmax score is never above the largest score, and below it by at
    most W((n - 1) / e) / beta for n centroids (W: Lambert's function).

    With a share of the mean this score a becomes a - mean_share * max(0, a - mean(s)), for the maximum
    (1 - mean_share) * max(s) + mean_share * mean(s): if scores have errors, the largest is likely to have a large
    one, and in the mean they nearly cancel. So it is still never above the largest score, and if all scores are
    equal it is that score.

    Args:
        scores: (n_rows,) float32, finite: the inner product of the query with each centroid, document after
            document.
        offsets: (n_docs + 1,) int64, strictly ascending from 0 to n_rows: document d has the rows from
            offsets[d] to offsets[d + 1].
        beta: inverse temperature, finite and above 0, or None.
        mean_share: share of the mean, at least 0 and below 1; that of a segment is
            `quarry.engine.scoring.stored_vectors.mean_share`.

    Returns:
        (n_docs,) float32.

    Raises:
        ValueError: offsets do not divide the rows, a document has no centroids, or beta or the share is not valid.
    """
    _check(len(scores), offsets, beta)
    if not 0 <= mean_share < 1:
        raise ValueError(f"the share of the mean must be at least 0 and below 1; found {mean_share!r}")
    if len(offsets) == 1:
        return np.empty(0, np.float32)
    first_rows = offsets[:-1]
    best: Float32Array = np.maximum.reduceat(scores, first_rows)
    if beta is not None:
        best -= _softmax_gaps(scores, best, offsets, beta)
    if mean_share:
        best -= np.float32(mean_share) * _mean_gaps(scores, best, offsets)
    return best


def compute_centroid_weights(scores: Float32Array, beta: float | None) -> Float32Array:
    """Return the weight of each centroid of one document in its aggregated score.

    Args:
        scores: (n_centroids,) float32, finite, n_centroids >= 1.
        beta: inverse temperature, finite and above 0, or None.

    Returns:
        (n_centroids,) float32 that add up to 1: softmax(beta * s) (Tang et al. 2021, Eq. 4), or with ``beta``
        None 1 for the first of the best centroids and 0 for the others (Eq. 7).

    Raises:
        ValueError: there are no centroids, or beta is not valid.
    """
    _check(len(scores), np.array([0, len(scores)]), beta)
    if beta is None:
        alone = np.zeros(len(scores), np.float32)
        alone[scores.argmax()] = 1
        return alone
    weights: Float32Array = np.exp((scores - scores.max()) * np.float32(beta))
    weights /= weights.sum()
    return weights


def _softmax_gaps(
    scores: Float32Array,
    best: Float32Array,
    offsets: Int64Array,
    beta: float,
) -> Float32Array:
    """Return the difference between the maximum of each document's scores and its softmax score.

    Every exponent is at most 0, and each document has one that is 0, so nothing overflows and no sum of weights is
    below 1. No term is negative, so in floating point too a score is at most the maximum, which stage 2 relies on.
    """
    first_rows = offsets[:-1]
    below = np.repeat(best, np.diff(offsets)) - scores
    weights = np.exp(below * np.float32(-beta))
    gaps: Float32Array = np.add.reduceat(weights * below, first_rows)
    gaps /= np.add.reduceat(weights, first_rows)
    return gaps


def _mean_gaps(scores: Float32Array, best: Float32Array, offsets: Int64Array) -> Float32Array:
    """Return how far the mean of each document's scores is below its score, at least 0.

    Means are computed in float64, so that the mean of equal scores is exactly that score.
    """
    means = np.add.reduceat(scores, offsets[:-1], dtype=np.float64) / np.diff(offsets)
    gaps: Float32Array = np.maximum(best - means, 0).astype(np.float32)
    return gaps


def _check(n_rows: int, offsets: Int64Array, beta: float | None) -> None:
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n_rows:
        raise ValueError(f"offsets must run from 0 to the number of scores, {n_rows}; found {offsets!r}")
    if (np.diff(offsets) <= 0).any():
        document = int(np.flatnonzero(np.diff(offsets) <= 0)[0])
        raise ValueError(f"every document needs at least one centroid; document {document} has none")
    if beta is not None and not (math.isfinite(beta) and beta > 0):
        raise ValueError(f"beta must be finite and above 0, or None; found {beta!r}")
