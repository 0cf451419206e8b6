"""Held-out rows of a training sample as queries, for calibration without an encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.vectors.centroids import StoredBatch
from quarry.formats.vectors.distances import DistanceReduction

__all__ = [
    "ROUNDING",
    "HeldOut",
    "Largest",
    "TakeQueries",
    "find_nearest_rows",
    "has_enough_queries",
    "mask_neighbors",
]


ROUNDING = 1e-5
"""Scores count as equal if they differ by no more than this, times the lengths of both vectors.

Float32 inner products of two vectors of up to some thousands of dimensions differ by less between CPUs and
libraries.
"""

_NEIGHBORS = 16  # rows of the sample on either side of a row, which may be of the same document
_BLOCK_SCORES = 1 << 22  # computed at a time,
_MAX_BLOCK = 8192  # with at most so many rows
_MIN_SEPARATED = 1 / 8  # of all queries

TakeQueries = Callable[[Int64Array], Float32Array]
"""Returns the rows of a sample at (b,) places as queries: (b, dim) float32."""


class HeldOut(NamedTuple):
    """Held-out rows, and the rows nearest to them.

    Attributes:
        places: (b,) int64, the held-out rows.
        nearest: (b, n_nearest) int64, the rows nearest to each, best first.
        scores: (b, n_nearest) float32, inner products with these; for distances minus half of their squares, as a
            share of the squared norm of the query.
        is_separated: (b,) bool, whether the scores of all other rows are lower by more than rounding; among equal
            vectors they never are.
    """

    places: Int64Array
    nearest: Int64Array
    scores: Float32Array
    is_separated: BoolArray


def find_nearest_rows(
    sample: Float32Array | StoredBatch,
    take_queries: TakeQueries,
    n_held_out: int,
    n_nearest: int,
    distances: DistanceReduction | None = None,
    block_scores: int = _BLOCK_SCORES,
) -> HeldOut:
    """Find the rows with the largest inner products with each held-out row, except its neighbors.

    By distances they are found with float64 numbers, as the reduction to inner products cannot tell short vectors
    apart beside long ones.

    Args:
        sample: (n, dim) training rows in the order of their documents.
        take_queries: returns some of them as queries (see `quarry.engine.scoring.metric`).
        n_held_out: number of held-out rows, evenly spaced; all rows if there are fewer.
        n_nearest: number of nearest rows for each; all rows if there are fewer, and none is separated then.
        distances: by which rows are compared; None: by inner products.
        block_scores: scores that are computed at a time.
    """
    places = np.linspace(0, len(sample) - 1, min(n_held_out, len(sample))).astype(np.int64)
    queries, n_nearest = take_queries(places), min(n_nearest, len(sample))
    largest, lengths = Largest(len(places), n_nearest + 1), np.empty(len(sample), np.float32)
    n_block = min(_MAX_BLOCK, max(1, block_scores // len(places)))
    for low in range(0, len(sample), n_block):
        rows = sample[low : low + n_block]
        np.sqrt(np.einsum("ij,ij->i", rows, rows), out=lengths[low : low + len(rows)])
        scores = queries @ rows.T if distances is None else distances.scores(queries, rows)
        mask_neighbors(scores, places, low)
        largest.add(scores, low)
    nearest, products = largest.ordered()
    if distances is None:
        rounding = ROUNDING * np.linalg.norm(queries, axis=1) * np.median(lengths)
    else:
        rounding = ROUNDING * np.abs(products[:, -2])
    with np.errstate(invalid="ignore"):  # -inf less -inf: masked rows, and places without rows
        is_separated = products[:, -2] - products[:, -1] > rounding
    if len(sample) == n_nearest:
        is_separated[:] = False
    return HeldOut(places, nearest[:, :-1], products[:, :-1], is_separated)


class Largest:
    """The n largest scores of each query.

    Args:
        n_queries: number of queries.
        n: number of scores kept for each, 2 at least.
    """

    def __init__(self, n_queries: int, n: int) -> None:
        self._scores = np.full((n_queries, n), -np.inf, np.float32)
        self._columns = np.zeros((n_queries, n), np.int64)

    def add(self, scores: Float32Array, first: int) -> None:
        """Add (n_queries, b) float32 scores of b rows, beginning with row `first`."""
        n, least = self._scores.shape[1], self._scores.min(axis=1)
        for query in np.flatnonzero(scores.max(axis=1) > least).tolist():
            line = scores[query]
            new = np.flatnonzero(line > least[query])
            values = np.concatenate([self._scores[query], line[new]])
            columns = np.concatenate([self._columns[query], new + first])
            kept = np.argpartition(-values, n - 1)[:n]
            self._scores[query], self._columns[query] = values[kept], columns[kept]

    def ordered(self) -> tuple[Int64Array, Float32Array]:
        """Return the rows and the scores of each query, (n_queries, n) int64 and float32, best first."""
        order = np.argsort(-self._scores, axis=1, kind="stable")
        return np.take_along_axis(self._columns, order, axis=1), np.take_along_axis(self._scores, order, axis=1)


def mask_neighbors(scores: Float32Array, places: Int64Array, first: int = 0) -> None:
    """Set the scores of rows that may be of the same document to -inf, in place.

    Args:
        scores: (b, n) float32 scores of rows of a sample for each held-out row.
        places: (b,) int64, the held-out rows.
        first: the row of the sample whose scores are in the first column.
    """
    for row, place in zip(scores, (places - first).tolist(), strict=True):
        row[max(0, place - _NEIGHBORS) : max(0, place + _NEIGHBORS + 1)] = -np.inf


def has_enough_queries(is_separated: BoolArray) -> bool:
    """Return whether enough of (n,) queries have nearest rows that are separated from the others.

    Measurements on a collection of mostly equal vectors hold neither for other collections nor for documents that
    are added later.
    """
    return bool(np.count_nonzero(is_separated) >= max(1.0, _MIN_SEPARATED * len(is_separated)))
