"""Offsets of parts, computed from their sizes."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.formats.arrays import offsets_from_sizes


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint32, np.int64])
def test_parts_follow_one_another(dtype):
    sizes = np.array([1, 0, 1, 1], dtype)
    offsets = offsets_from_sizes(sizes)
    assert (offsets.dtype, offsets.tolist()) == (np.int64, [0, 1, 1, 2, 3])


def test_no_parts():
    assert offsets_from_sizes(np.empty(0, np.uint32)).tolist() == [0]


def test_sums_beyond_the_type_of_the_sizes():
    assert offsets_from_sizes(np.array([2**32 - 1, 2**32 - 1], np.uint32)).tolist() == [0, 2**32 - 1, 2**33 - 2]
