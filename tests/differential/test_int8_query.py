"""Integer scores are compared with the same product in float64."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quarry.engine.scoring.stored_vectors import Int8Query


def exact(query, rows, scales):
    return (rows.astype(np.float64) * scales.astype(np.float64)[:, None]) @ query.astype(np.float64)


def norms(rows, scales):
    return np.linalg.norm(rows.astype(np.float64) * scales.astype(np.float64)[:, None], axis=1)


def rows_and_scales(generator, n, dim):
    rows = generator.integers(-127, 128, (n, dim)).astype(np.int8)
    return rows, generator.uniform(1e-3, 2, n).astype(np.float32)


@pytest.mark.parametrize("dim", [1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 384, 768, 1000, 4096, 65536])
def test_scores(dim):
    generator = np.random.default_rng(dim)
    query = generator.standard_normal(dim).astype(np.float32)
    rows, scales = rows_and_scales(generator, 20, dim)
    found = Int8Query(query).scores(rows, scales)
    assert found.dtype == np.float32
    bound = 4e-7 * np.linalg.norm(query.astype(np.float64)) * norms(rows, scales)
    assert (np.abs(found - exact(query, rows, scales)) <= bound).all()


@pytest.mark.parametrize("dim", [1, 16, 31, 384, 65536])
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_overflows(dim, sign):
    """The largest possible products, all of one sign, do not overflow."""
    query = np.full(dim, 3.0, np.float32)
    rows = np.full((3, dim), 127 * sign, np.int8)
    scales = np.array([1, 0.5, 0], np.float32)
    np.testing.assert_allclose(Int8Query(query).scores(rows, scales), exact(query, rows, scales), rtol=1e-6)
    np.testing.assert_allclose(
        Int8Query(query).approximate_scores(rows, scales), exact(query, rows, scales), rtol=1e-6
    )


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-20, 1e-3, 1, 1e3, 1e10, 1e18])
def test_queries_of_any_length(size):
    generator = np.random.default_rng(3)
    query = (generator.standard_normal(64) * size).astype(np.float32)
    rows, scales = rows_and_scales(generator, 10, 64)
    found = Int8Query(query).scores(rows, scales)
    length = np.linalg.norm(query.astype(np.float64))
    subnormal = 1.5e-45  # the smallest step of float32
    assert (np.abs(found - exact(query, rows, scales)) <= 4e-7 * length * norms(rows, scales) + subnormal).all()


def test_one_large_number_among_small_ones():
    """The first digit cannot represent the small components next to a large one, but the others do."""
    generator = np.random.default_rng(4)
    query = (generator.standard_normal(384) * 1e-3).astype(np.float32)
    query[17] = 1
    rows, scales = rows_and_scales(generator, 50, 384)
    rows[:, 17] = 0
    whole = Int8Query(query)
    expected = exact(query, rows, scales)
    assert np.abs(whole.scores(rows, scales) - expected).max() < 1e-6 * norms(rows, scales).max()
    assert not whole.approximate_scores(rows, scales).any()
    assert (np.abs(expected) <= whole.rounding * norms(rows, scales)).all()


def test_a_query_of_zeros():
    rows, scales = rows_and_scales(np.random.default_rng(5), 4, 32)
    zero = Int8Query(np.zeros(32, np.float32))
    assert zero.scores(rows, scales).tolist() == zero.approximate_scores(rows, scales).tolist() == [0.0] * 4
    assert zero.rounding == 0


def test_no_rows():
    query = Int8Query(np.ones(8, np.float32))
    none = np.empty((0, 8), np.int8), np.empty(0, np.float32)
    assert query.scores(*none).shape == query.approximate_scores(*none).shape == (0,)


def test_a_score_does_not_depend_on_the_other_rows():
    generator = np.random.default_rng(6)
    query = Int8Query(generator.standard_normal(384).astype(np.float32))
    rows, scales = rows_and_scales(generator, 333, 384)
    together, rough = query.scores(rows, scales), query.approximate_scores(rows, scales)
    for number in range(0, 333, 17):
        one = slice(number, number + 1)
        assert query.scores(rows[one], scales[one])[0] == together[number]
        assert query.approximate_scores(rows[one], scales[one])[0] == rough[number]


def test_rows_that_are_not_their_own_memory():
    """Read-only views at unaligned offsets, as of a mapped file, have the same scores."""
    generator = np.random.default_rng(7)
    query = Int8Query(generator.standard_normal(37).astype(np.float32))
    raw = bytes(generator.integers(0, 100, 37 * 5 + 3, np.uint8))
    rows = np.frombuffer(raw, np.int8, 37 * 5, 3).reshape(5, 37)
    scales = np.ones(5, np.float32)
    assert query.scores(rows, scales).tolist() == query.scores(rows.copy(), scales).tolist()


@settings(max_examples=150, deadline=None)
@given(
    query=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=70),
    seed=st.integers(0, 1000),
)
def test_bounds_hold(query, seed):
    query = np.array(query, np.float32)
    rows, scales = rows_and_scales(np.random.default_rng(seed), 9, len(query))
    whole = Int8Query(query)
    expected, lengths = exact(query, rows, scales), norms(rows, scales)
    tolerance = 4e-7 * np.linalg.norm(query.astype(np.float64)) * lengths + 1.5e-45
    assert (np.abs(whole.scores(rows, scales) - expected) <= tolerance).all()
    assert (
        np.abs(whole.approximate_scores(rows, scales) - expected) <= whole.rounding * lengths + tolerance
    ).all()
    assert np.abs(whole.digits.astype(int)).max() <= 127


def test_other_libraries_do_not_get_in_the_way():
    """Scores are right after USearch has loaded a library with the same symbols as simsimd."""
    pytest.importorskip("usearch")
    code = (
        "import usearch.index, numpy as np; from quarry.engine.scoring.stored_vectors import Int8Query;"
        "scores = Int8Query(np.ones(8, np.float32)).scores(np.ones((3, 8), np.int8), np.ones(3, np.float32));"
        "assert np.allclose(scores, 8)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
