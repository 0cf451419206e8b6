"""Held-out rows of a training sample as queries, for calibration without an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["ROUNDING", "HeldOut", "find_nearest_rows", "has_enough_queries", "mask_neighbors"]


ROUNDING = 1e-5
"""Scores count as equal if they differ by no more than this, times the lengths of both vectors.

Float32 inner products of two vectors of up to some thousands of dimensions differ by less between CPUs and
libraries.
"""

_NEIGHBORS = 16  # rows of the sample on either side of a row, which may be of the same document
_BLOCK = 64  # columns
_BATCH_SCORES = 1 << 22
_MIN_SEPARATED = 1 / 8  # of all queries


class HeldOut(NamedTuple):
    """Held-out rows, and the rows nearest to them.

    Attributes:
        places: (b,) int64, the held-out rows.
        nearest: (b, n_nearest) int64, the rows nearest to each, in any order.
        scores: (b, n_nearest) float32, inner products with these.
        is_separated: (b,) bool, whether the scores of all other rows are lower by more than rounding; among equal
            vectors they never are.
    """

    places: Int64Array
    nearest: Int64Array
    scores: Float32Array
    is_separated: BoolArray


def find_nearest_rows(
    sample: Float32Array, queries: Float32Array, n_held_out: int, n_nearest: int
) -> Iterator[HeldOut]:
    """Find the rows with the largest inner products with each held-out row, except its neighbors.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents.
        queries: (n, dim) float32, the same as queries (see `quarry.engine.scoring.metric`).
        n_held_out: number of held-out rows, evenly spaced; all rows if there are fewer.
        n_nearest: number of nearest rows for each; all rows if there are fewer, and none is separated then.
    """
    held_out = np.linspace(0, len(sample) - 1, min(n_held_out, len(sample))).astype(np.int64)
    batch = max(1, _BATCH_SCORES // len(sample))
    n_nearest = min(n_nearest, len(sample))
    length = np.median(np.sqrt(np.einsum("ij,ij->i", sample, sample)))  # without a copy of the sample
    for low in range(0, len(held_out), batch):
        places = held_out[low : low + batch]
        scores = queries[places] @ sample.T
        mask_neighbors(scores, places)
        nearest, found, following = _find_largest(scores, n_nearest)
        with np.errstate(invalid="ignore"):  # -inf less -inf: masked rows
            is_separated = (
                found.min(axis=1) - following > ROUNDING * np.linalg.norm(queries[places], axis=1) * length
            )
        del scores  # before the next ones are computed, and while the caller computes others
        yield HeldOut(places, nearest, found, is_separated)


def _find_largest(scores: Float32Array, n: int) -> tuple[Int64Array, Float32Array, Float32Array]:
    """Find the n largest scores in each row, in any order, and the largest of the others.

    The n + 1 blocks of columns with the largest maxima have a column each that is at least as large as the
    smallest of these maxima, so only the few columns that reach it are compared.

    Args:
        scores: (b, n_columns) float32, n_columns >= n.
        n: at least 1.

    Returns:
        (b, n) int64 columns, (b, n) float32 scores, and (b,) float32: inf if there are no other columns.
    """
    n_blocks = scores.shape[1] // _BLOCK
    if scores.shape[1] == n:
        return np.tile(np.arange(n), (len(scores), 1)), scores, np.full(len(scores), np.inf, np.float32)
    least = np.full(len(scores), -np.inf, np.float32)
    if n_blocks > n:
        maxima = scores[:, : n_blocks * _BLOCK].reshape(len(scores), n_blocks, _BLOCK).max(axis=2)
        least = np.partition(maxima, n_blocks - n - 1, axis=1)[:, n_blocks - n - 1]
    columns, found = np.empty((len(scores), n), np.int64), np.empty((len(scores), n), np.float32)
    following = np.empty(len(scores), np.float32)
    for row, line in enumerate(scores):
        places = np.flatnonzero(line >= least[row])
        values = line[places]
        order = np.argpartition(-values, (n - 1, n))[: n + 1]
        columns[row], found[row], following[row] = places[order[:n]], values[order[:n]], values[order[n]]
    return columns, found, following


def mask_neighbors(scores: Float32Array, places: Int64Array) -> None:
    """Set the scores of rows that may be of the same document to -inf, in place.

    Args:
        scores: (b, n) float32 scores of all rows of a sample for each held-out row.
        places: (b,) int64, the held-out rows.
    """
    for row, place in zip(scores, places.tolist(), strict=True):
        row[max(0, place - _NEIGHBORS) : place + _NEIGHBORS + 1] = -np.inf


def has_enough_queries(is_separated: BoolArray) -> bool:
    """Return whether enough of (n,) queries have nearest rows that are separated from the others.

    Measurements on a collection of mostly equal vectors hold neither for other collections nor for documents that
    are added later.
    """
    return bool(np.count_nonzero(is_separated) >= max(1.0, _MIN_SEPARATED * len(is_separated)))
