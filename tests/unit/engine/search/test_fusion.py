"""Fused scores of hybrid search."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.search.fusion import fuse

NAN = np.float32(np.nan)


def floats(*values):
    return np.array(values, np.float32)


def test_linear_fusion_by_hand():
    dense, lexical = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0)
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.75), [0.25, 0.75, 0.4375], rtol=1e-6)


def test_wording_counts_five_times_as_much_as_bm25():
    dense, lexical, wording = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0), floats(0.5, 0.0, 0.8)
    words = (np.array([1, 0, 0.25]) + 5 * wording) / 6
    expected = 0.75 * np.array([0, 1, 0.5]) + 0.25 * words
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.75, wording), expected, rtol=1e-6)


def test_unknown_wording_is_proportional_to_bm25():
    dense, lexical = floats(0, 0, 0, 0), floats(4, 2, 1, 0)
    wording = floats(0.6, 0.3, NAN, NAN)
    ratio = (0.6 + 0.3 + 2) / (1 + 0.5 + 2)
    expected = [(1 + 5 * 0.6) / 6, (0.5 + 5 * 0.3) / 6, (0.25 + 5 * ratio * 0.25) / 6, 0]
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.0, wording), expected, rtol=1e-6)


def test_unknown_wording_is_at_most_1():
    scores = fuse(floats(0, 0, 0), floats(0, 1, 10), "linear", 0.0, floats(0.2, 0.9, NAN))
    np.testing.assert_allclose(scores, [5 * 0.2 / 6, (0.1 + 5 * 0.9) / 6, 1], rtol=1e-6)


@pytest.mark.parametrize("wording", [floats(0, NAN, NAN, NAN), floats(NAN, 0.6, NAN, NAN)])
def test_one_document_does_not_decide_what_is_unknown(wording):
    """Long documents keep most of the differences that BM25 alone has, or nearly so."""
    lexical = floats(0, 0.4, 8, 10)
    scores = fuse(floats(0, 0, 0, 0), lexical, "linear", 0.0, wording)
    alone = fuse(floats(0, 0, 0, 0), lexical, "linear", 0.0)
    assert 0.8 < (scores[3] - scores[0]) / alone[3] <= 1
    assert scores[2] < scores[3]


@pytest.mark.parametrize("wording", [floats(0, NAN), floats(0.5, NAN)])
def test_known_wording_of_documents_without_terms(wording):
    scores = fuse(floats(0, 0), floats(0, 2), "linear", 0.0, wording)
    np.testing.assert_allclose(scores, [5 * wording[0] / 6, 1], rtol=1e-6)


def test_bm25_alone_where_no_text_was_read():
    rng = np.random.default_rng(0)
    dense, lexical = rng.random((2, 50), np.float32)
    plain = fuse(dense, lexical, "linear", 0.6)
    np.testing.assert_allclose(fuse(dense, lexical, "linear", 0.6, np.full(50, NAN)), plain, rtol=1e-6)


def test_scores_do_not_depend_on_the_order_of_candidates():
    rng = np.random.default_rng(1)
    dense, lexical, wording = rng.random((3, 400), np.float32)
    wording[rng.random(400) < 0.9] = NAN
    scores = fuse(dense, lexical, "linear", 0.6, wording)
    for _ in range(20):
        order = rng.permutation(400)
        np.testing.assert_array_equal(
            fuse(dense[order], lexical[order], "linear", 0.6, wording[order]), scores[order]
        )


def test_reciprocal_rank_fusion_by_hand():
    dense, lexical = floats(0.2, 0.6, 0.4), floats(4.0, 0.0, 1.0)
    expected = [1 / 63 + 1 / 61, 1 / 61, 1 / 62 + 1 / 62]
    np.testing.assert_allclose(fuse(dense, lexical, "rrf", 0.5), expected, rtol=1e-6)


def test_equal_scores_do_not_divide_by_zero():
    same, none = np.full(3, 0.5, np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(fuse(same, none, "linear", 0.7), np.full(3, 0.7, np.float32))
    assert fuse(none[:0], none[:0], "linear", 0.7).shape == (0,)
