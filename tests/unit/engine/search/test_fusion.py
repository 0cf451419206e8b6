"""Fused scores of hybrid search."""

from __future__ import annotations

import numpy as np

from quarry.engine.search.fusion import fuse


def floats(*values):
    return np.array(values, np.float32)


def test_linear_fusion_by_hand():
    dense, lexical = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0)
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.75), [0.25, 0.75, 0.4375], rtol=1e-6)


def test_a_range_below_the_least_is_not_scaled_to_1():
    dense, lexical = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0)
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.75, 0.8), [0.25, 0.375, 0.25], rtol=1e-6)
    wide = fuse(dense, lexical, "linear", 0.75, 0.4)
    np.testing.assert_array_equal(wide, fuse(dense, lexical, "linear", 0.75))


def test_scores_do_not_depend_on_the_order_of_candidates():
    rng = np.random.default_rng(1)
    dense, lexical = rng.random((2, 400), np.float32)
    scores = fuse(dense, lexical, "linear", 0.6)
    for _ in range(20):
        order = rng.permutation(400)
        np.testing.assert_array_equal(fuse(dense[order], lexical[order], "linear", 0.6), scores[order])


def test_reciprocal_rank_fusion_by_hand():
    dense, lexical = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0)
    expected = [1 / 63 + 1 / 61, 1 / 61, 1 / 62 + 1 / 62]
    np.testing.assert_allclose(fuse(dense, lexical, "rrf", 0.5), expected, rtol=1e-6)


def test_equal_scores_do_not_divide_by_zero():
    same, none = np.full(3, 0.5, np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(fuse(same, none, "linear", 0.7), np.full(3, 0.7, np.float32))
    assert fuse(none[:0], none[:0], "linear", 0.7).shape == (0,)
