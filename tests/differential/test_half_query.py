"""Scores of float16 centroids are compared with the same product in float64."""

from __future__ import annotations

import numpy as np
import pytest
import simsimd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quarry.engine.scoring import stored_vectors as half_query
from quarry.engine.scoring.stored_vectors import Float16Query, has_float32_sums

DIMS = [1, 2, 15, 31, 32, 33, 127, 384, 1000, 4096]


def final_scores(query, rows):
    """Return the scores of stage 2 (`quarry.engine.scoring.stored_vectors`)."""
    return np.einsum("ij,j->i", rows.astype(np.float32), query)


def check_bound(query, rows):
    rounded = Float16Query(query)
    found = rounded.approximate_scores(rows).astype(np.float64)
    bounds = rounded.rounding * np.linalg.norm(rows.astype(np.float64), axis=1)
    assert (np.abs(found - final_scores(query, rows)) <= bounds).all()
    assert (np.abs(found - rows.astype(np.float64) @ query.astype(np.float64)) <= bounds).all()
    return bounds


@pytest.fixture(params=["as this machine does", "without the library"])
def either_way(request, monkeypatch):
    if request.param == "without the library":
        monkeypatch.setattr(half_query, "has_float32_sums", lambda: False)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("dim", DIMS)
def test_scores_are_within_the_bound(dim):
    generator = np.random.default_rng(dim)
    rows = generator.standard_normal((50, dim)).astype(np.float16)
    query = generator.standard_normal(dim).astype(np.float32)
    bounds = check_bound(query, rows)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1) * np.linalg.norm(query.astype(np.float64))
    assert (bounds <= 2e-3 * lengths + 1e-30).all()


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    dim=st.sampled_from(DIMS),
    row_scale=st.sampled_from([1e-7, 1e-4, 1.0, 100.0]),
    query_scale=st.sampled_from([0.0, 1e-30, 1e-5, 1.0, 1e5]),
    spread=st.sampled_from([0, 3, 8]),
)
@example(seed=27, dim=1, row_scale=1e-7, query_scale=1e-30, spread=8)  # products below the smallest normal float32
def test_scores_of_all_sizes(seed, dim, row_scale, query_scale, spread):
    """Bounds hold for components that differ by up to a factor of e^spread, of which small ones underflow."""
    generator = np.random.default_rng(seed)
    sizes = np.exp(generator.uniform(-spread, spread, dim))
    rows = np.clip(generator.standard_normal((20, dim)) * row_scale * sizes, -6e4, 6e4).astype(np.float16)
    query = (generator.standard_normal(dim) * query_scale / sizes).astype(np.float32)
    check_bound(query, rows)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("dim", [384, 4096])
def test_the_largest_sums(dim):
    """The bound holds for the largest rounding error: products of one sign, rounded in one direction."""
    rows = np.full((2, dim), 1 + 2**-10, np.float16)
    query = np.full(dim, 1 - 2**-12, np.float32)
    query[0] = 1
    check_bound(query, rows)


def test_a_library_that_sums_in_float16_is_found_out(monkeypatch):
    def cdist(rows, queries, _):
        sums = np.zeros((len(rows), len(queries)), np.float16)
        for place in range(rows.shape[1]):
            sums += np.outer(rows[:, place], queries[:, place]).astype(np.float16)
        return sums

    def in_lanes(rows, queries, metric):
        """Sum in 32 parallel lanes, as AVX512-FP16 does."""
        parts = [cdist(rows[:, lane::32], queries[:, lane::32], metric) for lane in range(32)]
        return np.sum(parts, axis=0, dtype=np.float16)

    for wrong in (cdist, in_lanes):
        monkeypatch.setattr(simsimd, "cdist", wrong)
        assert not has_float32_sums.__wrapped__()

    def right(rows, queries, _):
        return rows.astype(np.float32) @ queries.astype(np.float32).T

    monkeypatch.setattr(simsimd, "cdist", right)
    assert has_float32_sums.__wrapped__()
