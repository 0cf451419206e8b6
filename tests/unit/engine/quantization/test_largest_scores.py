"""The largest scores of each query, added block by block, are compared with sorting."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.quantization.held_out import Largest, find_nearest_rows
from quarry.formats.vectors.centroids import RoundedRows, StoredBatch

SHAPES = [(50, 3000, 20), (50, 100, 20), (20, 64 * 25 + 7, 10), (5, 27, 20), (30, 5000, 2)]
KINDS = {
    "random": lambda generator, shape: generator.standard_normal(shape),
    "tied": lambda generator, shape: generator.integers(0, 3, shape),
    "equal": lambda _, shape: np.zeros(shape),
}


@pytest.mark.parametrize("n_block", [1, 13, 5000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_rows", "n_columns", "n"), SHAPES)
def test_the_largest_scores(kind, n_rows, n_columns, n, n_block):
    scores = KINDS[kind](np.random.default_rng(0), (n_rows, n_columns)).astype(np.float32)
    scores[:, :5] = -np.inf
    largest = Largest(n_rows, n)
    for low in range(0, n_columns, n_block):
        largest.add(scores[:, low : low + n_block], low)
    columns, found = largest.ordered()
    np.testing.assert_array_equal(found, -np.sort(-scores, axis=1)[:, :n])
    np.testing.assert_array_equal(np.take_along_axis(scores, columns, axis=1), found)
    assert all(len(set(row)) == n for row in columns.tolist())


def test_fewer_scores_than_places():
    largest = Largest(2, 4)
    largest.add(np.array([[1, 3], [-np.inf, 2]], np.float32), 7)
    columns, found = largest.ordered()
    assert found.tolist() == [[3, 1, -np.inf, -np.inf], [2, -np.inf, -np.inf, -np.inf]]
    assert columns[0, :2].tolist() == [8, 7]
    assert columns[1, 0] == 8


@pytest.mark.parametrize("block_scores", [1, 1 << 22])
def test_nearest_rows_as_stored_are_those_of_float32(block_scores):
    rounded = RoundedRows.of(np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32), "int8")
    stored = StoredBatch(rounded.values, rounded.scales)
    sample = stored[:]
    for rows in (stored, sample):
        found = find_nearest_rows(rows, rows.__getitem__, 25, 10, block_scores=block_scores)
        assert found.places.tolist() == np.linspace(0, 299, 25).astype(int).tolist()
        assert found.is_separated.all()
        for place, nearest, scores in zip(found.places, found.nearest, found.scores, strict=True):
            others = np.flatnonzero(np.abs(np.arange(300) - place) > 16)
            expected = sample[others] @ sample[place]
            best = np.argsort(-expected)[:10]
            assert nearest.tolist() == others[best].tolist()
            np.testing.assert_allclose(scores, expected[best], rtol=1e-5)
