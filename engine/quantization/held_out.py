"""Rows of a training sample that ask for the rows nearest to them: what stands in for queries at training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["hide_neighbours", "nearest_rows"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_NEIGHBOURS = 16  # rows of the sample on either side of a row: of the same document, perhaps
_BATCH_SCORES = 1 << 23


def nearest_rows(sample: Floats, n_held_out: int, n_nearest: int) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Find the rows with the largest inner products with each row held out, its neighbours left out.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents.
        n_held_out: how many rows ask, evenly spread; all of them where there are fewer.
        n_nearest: how many rows each asks for; all of them where there are fewer.

    Yields:
        (b,) int64 rows that ask, (b, n_nearest) int64 rows they ask for, in any order, and their inner products.
    """
    held_out = np.linspace(0, len(sample) - 1, min(n_held_out, len(sample))).astype(np.int64)
    batch = max(1, _BATCH_SCORES // len(sample))
    n_nearest = min(n_nearest, len(sample))
    for low in range(0, len(held_out), batch):
        places = held_out[low : low + batch]
        scores = sample[places] @ sample.T
        hide_neighbours(scores, places)
        nearest = np.argpartition(scores, -n_nearest, axis=1)[:, -n_nearest:]
        yield places, nearest, np.take_along_axis(scores, nearest, axis=1)


def hide_neighbours(scores: Floats, places: Ints) -> None:
    """Set the scores of what may be of the same document to -inf.

    Args:
        scores: (b, n) float32 of all rows of a sample, changed.
        places: (b,) int64, the row that each line is about.
    """
    for row, place in zip(scores, places.tolist(), strict=True):
        row[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS + 1] = -np.inf
