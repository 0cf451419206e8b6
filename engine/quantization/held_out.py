"""Rows of a training sample that ask for the rows nearest to them: stand-ins for queries, without an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ROUNDING", "HeldOut", "hide_neighbours", "nearest_rows", "says_enough"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

ROUNDING = 1e-5
"""Times the lengths of two vectors: scores that are no further apart count as equal.

Float32 products of the same two vectors differ by less from one CPU or library to another, for up to some
thousands of numbers.
"""

_NEIGHBOURS = 16  # rows of the sample on either side of a row: of the same document, perhaps
_BATCH_SCORES = 1 << 23
_LEAST_DECIDED = 1 / 8  # of all that ask


class HeldOut(NamedTuple):
    """Some rows that ask, with what is nearest to them.

    Attributes:
        places: (b,) int64, rows that ask.
        nearest: (b, n_nearest) int64, rows they ask for, in any order.
        scores: (b, n_nearest) float32, inner products with these.
        decided: (b,) bool, whether these are the nearest beyond doubt: all others have scores that are lower by
            more than rounding explains. Of identical vectors none is nearer than the others.
    """

    places: Ints
    nearest: Ints
    scores: Floats
    decided: npt.NDArray[np.bool_]


def nearest_rows(sample: Floats, asking: Floats, n_held_out: int, n_nearest: int) -> Iterator[HeldOut]:
    """Find the rows with the largest inner products with each row held out, its neighbours left out.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents.
        asking: (n, dim) float32, the same as queries (see `quarry.engine.scoring.metric`).
        n_held_out: how many rows ask, evenly spread; all of them where there are fewer.
        n_nearest: how many rows each asks for; all of them where there are fewer, and none is decided.
    """
    held_out = np.linspace(0, len(sample) - 1, min(n_held_out, len(sample))).astype(np.int64)
    batch = max(1, _BATCH_SCORES // len(sample))
    n_nearest = min(n_nearest, len(sample))
    for low in range(0, len(held_out), batch):
        places = held_out[low : low + batch]
        scores = asking[places] @ sample.T
        hide_neighbours(scores, places)
        nearest = np.argpartition(scores, -n_nearest, axis=1)[:, -n_nearest:]
        found = np.take_along_axis(scores, nearest, axis=1)
        yield HeldOut(places, nearest, found, _decided(sample, asking, places, scores, n_nearest))


def hide_neighbours(scores: Floats, places: Ints) -> None:
    """Set the scores of what may be of the same document to -inf.

    Args:
        scores: (b, n) float32 of all rows of a sample, changed.
        places: (b,) int64, the row that each line is about.
    """
    for row, place in zip(scores, places.tolist(), strict=True):
        row[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS + 1] = -np.inf


def says_enough(decided: npt.NDArray[np.bool_]) -> bool:
    """Whether so many of (n,) rows or queries have nearest ones beyond doubt that these speak for all.

    A collection of which nearly all vectors are equal says nothing about another one, nor about what may be added
    to it.
    """
    return bool(np.count_nonzero(decided) >= max(1.0, _LEAST_DECIDED * len(decided)))


def _decided(
    sample: Floats, asking: Floats, places: Ints, scores: Floats, n_nearest: int
) -> npt.NDArray[np.bool_]:
    """See `HeldOut.decided`; the (b, n) scores are reordered."""
    if n_nearest == scores.shape[1]:
        return np.zeros(len(places), bool)
    last = scores.shape[1] - n_nearest
    scores.partition((last - 1, last), axis=1)
    lengths = np.linalg.norm(sample, axis=1)
    rounding = ROUNDING * np.linalg.norm(asking[places], axis=1) * np.median(lengths)
    with np.errstate(invalid="ignore"):  # -inf less -inf: hidden rows
        decided: npt.NDArray[np.bool_] = scores[:, last] - scores[:, last - 1] > rounding
    return decided
