"""The largest scores of each row, computed by blocks, are compared with sorting."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.quantization.held_out import _find_largest

SHAPES = [(50, 3000, 20), (50, 100, 20), (20, 64 * 25 + 7, 10), (5, 20, 20), (5, 21, 20), (30, 5000, 1)]
KINDS = {
    "random": lambda generator, shape: generator.standard_normal(shape),
    "tied": lambda generator, shape: generator.integers(0, 3, shape),
    "equal": lambda _, shape: np.zeros(shape),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_rows", "n_columns", "n"), SHAPES)
def test_the_largest_scores(kind, n_rows, n_columns, n):
    scores = KINDS[kind](np.random.default_rng(0), (n_rows, n_columns)).astype(np.float32)
    scores[:, :5] = -np.inf
    columns, found, following = _find_largest(scores, n)
    descending = -np.sort(-scores, axis=1)
    np.testing.assert_array_equal(-np.sort(-found, axis=1), descending[:, :n])
    np.testing.assert_array_equal(np.take_along_axis(scores, columns, axis=1), found)
    np.testing.assert_array_equal(following, descending[:, n] if n < n_columns else np.full(n_rows, np.inf))
    assert all(len(set(row)) == n for row in columns.tolist())
