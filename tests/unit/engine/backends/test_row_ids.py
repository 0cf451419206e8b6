"""Row numbers of centroids, and the bitmap of rows that may be found."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.backends.row_ids import RowIds

SIZES = {
    "one row each": [1, 1, 1],
    "about a byte": [7, 8, 9, 16, 17, 1],
    "a long one": [3, 500, 2],
    "a single document": [8],
}


def offsets_of(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_numbers_are_taken_back_to_rows_and_documents(sizes):
    offsets = offsets_of(sizes)
    ids = RowIds(offsets)
    numbers = ids.all(int(offsets[-1]))
    assert (np.diff(numbers) > 0).all()
    np.testing.assert_array_equal(ids.rows(numbers), np.arange(offsets[-1]))
    np.testing.assert_array_equal(ids.docs(numbers), np.repeat(np.arange(len(sizes)), sizes))


@pytest.mark.parametrize("seed", range(5))
def test_the_bitmap_has_the_bits_of_the_allowed_documents(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 40, 300)
    offsets, allowed = offsets_of(sizes), generator.random(300) < 0.4
    ids = RowIds(offsets)
    bits = np.unpackbits(ids.bitmap(allowed), bitorder="little")
    expected = np.repeat(allowed, sizes)
    np.testing.assert_array_equal(bits[ids.all(int(offsets[-1]))], expected)


def test_needed_bytes_are_known_beforehand():
    offsets = offsets_of(np.random.default_rng(0).integers(1, 40, 300))
    assert RowIds.needed_bytes(offsets) == sum(array.nbytes for array in vars(RowIds(offsets)).values())
