from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.scoring.aggregation import aggregate, compute_centroid_weights


def lambert_w(x: float) -> float:
    """Return w with w * e^w = x, for x > 0, by bisection."""
    low, high = 0.0, max(1.0, x)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(middle) < x else (low, middle)
    return low


def slow_softmax_score(scores, beta):
    """Compute eq. 4-6 in double precision."""
    weights = np.exp(beta * np.float64(scores) - np.max(beta * np.float64(scores)))
    return float(weights @ np.float64(scores) / weights.sum())


def ragged(sizes):
    return np.cumsum([0, *sizes])


score = st.floats(-50, 50, width=32)
documents = st.lists(st.lists(score, min_size=1, max_size=40), min_size=1, max_size=12)
betas = st.floats(0.01, 1000)


class TestMax:
    def test_takes_the_best_centroid_of_each_document(self):
        scores = np.array([0.5, 0.25, -3, -1, -2], np.float32)
        found = aggregate(scores, np.array([0, 2, 3, 5]), None)
        assert found.dtype == np.float32
        assert found.tolist() == [0.5, -3, -1]

    @given(documents)
    def test_agrees_with_python(self, groups):
        scores = np.array([score for group in groups for score in group], np.float32)
        assert aggregate(scores, ragged(map(len, groups)), None).tolist() == [max(group) for group in groups]


class TestSoftmax:
    def test_worked_example(self):
        """Scores ln 3 and 0 have weights 3/4 and 1/4, so that the result is 3/4 ln 3."""
        found = aggregate(np.array([math.log(3), 0, 7], np.float32), np.array([0, 2, 3]), 1.0)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [0.75 * math.log(3), 7], rtol=1e-6)

    @given(documents, betas)
    def test_agrees_with_the_equations(self, groups, beta):
        scores = np.array([score for group in groups for score in group], np.float32)
        found = aggregate(scores, ragged(map(len, groups)), beta)
        expected = [slow_softmax_score(group, beta) for group in groups]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)

    @given(documents, betas)
    def test_lies_between_the_bound_and_the_max(self, groups, beta):
        """The softmax score is at most the maximum, and below it by at most W((n - 1)
        e)
        beta.
        """
        scores = np.array([score for group in groups for score in group], np.float32)
        offsets = ragged(map(len, groups))
        best = aggregate(scores, offsets, None)
        found = aggregate(scores, offsets, beta)
        assert (found <= best).all()
        gaps = np.array([lambert_w((len(group) - 1) / math.e) / beta for group in groups])
        assert (np.float64(best) - found <= gaps * (1 + 1e-5) + 1e-5).all()

    def test_the_bound_is_reached(self):
        """Equal scores at the stationary distance below the best reach the bound, so it is tight."""
        n, beta = 9, 10.0
        gap = lambert_w((n - 1) / math.e) / beta
        scores = np.full(n, 1 - (gap + 1 / beta), np.float32)
        scores[3] = 1
        found = aggregate(scores, np.array([0, n]), beta)
        np.testing.assert_allclose(1 - found, gap, rtol=1e-4)

    @pytest.mark.parametrize("scale", [1e4, 1e30])
    def test_large_scores_do_not_overflow(self, scale):
        scores = np.array([1, -1, 0.5], np.float32) * np.float32(scale)
        found = aggregate(scores, np.array([0, 3]), 1.0)
        assert found.tolist() == [np.float32(scale)]

    def test_one_centroid_scores_as_itself(self):
        scores = np.array([0.1, -0.7, 0.3], np.float32)
        assert aggregate(scores, np.arange(4), 10.0).tolist() == scores.tolist()


class TestWhatIsAsked:
    @pytest.mark.parametrize("beta", [None, 10.0])
    def test_no_documents_have_no_scores(self, beta):
        found = aggregate(np.empty(0, np.float32), np.array([0]), beta)
        assert found.shape == (0,)
        assert found.dtype == np.float32

    @pytest.mark.parametrize("beta", [None, 10.0])
    def test_leaves_its_input_alone(self, beta):
        scores = np.array([3, 1, 2], np.float32)
        aggregate(scores, np.array([0, 1, 3]), beta)
        assert scores.tolist() == [3, 1, 2]

    @pytest.mark.parametrize("offsets", [[0, 2, 2, 3], [0, 0, 3], [0, 3, 3], [0, 3, 2, 3]])
    def test_a_document_without_centroids_is_an_error(self, offsets):
        with pytest.raises(ValueError, match=r"document [01] has none"):
            aggregate(np.ones(3, np.float32), np.array(offsets), None)

    @pytest.mark.parametrize("offsets", [[], [0], [0, 2], [0, 4], [1, 3]])
    def test_offsets_that_miss_rows_are_an_error(self, offsets):
        with pytest.raises(ValueError, match="from 0 to the number of scores, 3"):
            aggregate(np.ones(3, np.float32), np.array(offsets, np.int64), None)

    @pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
    def test_beta_must_be_finite_and_positive(self, beta):
        with pytest.raises(ValueError, match="beta must be finite and above 0"):
            aggregate(np.ones(1, np.float32), np.array([0, 1]), beta)
        with pytest.raises(ValueError, match="beta must be finite and above 0"):
            compute_centroid_weights(np.ones(1, np.float32), beta)


class TestWeights:
    def test_without_beta_the_first_best_centroid_counts_alone(self):
        found = compute_centroid_weights(np.array([1, 3, 2, 3], np.float32), None)
        assert found.dtype == np.float32
        assert found.tolist() == [0, 1, 0, 0]

    @given(st.lists(score, min_size=1, max_size=40), betas)
    def test_add_up_to_one_and_give_the_score(self, group, beta):
        scores = np.array(group, np.float32)
        weights = compute_centroid_weights(scores, beta)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
        expected = aggregate(scores, np.array([0, len(scores)]), beta)[0]
        np.testing.assert_allclose(weights @ scores, expected, rtol=1e-5, atol=1e-3)

    def test_a_document_without_centroids_is_an_error(self):
        with pytest.raises(ValueError, match="has none"):
            compute_centroid_weights(np.empty(0, np.float32), 1.0)


shares = st.floats(0, 0.99)


def slow_scores(groups, beta, share):
    """Compute the scores of documents one by one, in double precision."""
    found = []
    for group in groups:
        score, mean = max(group) if beta is None else slow_softmax_score(group, beta), sum(group) / len(group)
        found.append(score - share * max(0.0, score - mean))
    return found


class TestShareOfTheMean:
    def test_worked_example(self):
        scores = np.array([1, 0, 0.5, 2, -1, -3], np.float32)
        found = aggregate(scores, np.array([0, 3, 4, 6]), None, 0.25)
        assert found.dtype == np.float32
        assert found.tolist() == [0.875, 2, -1.25]

    @given(documents, st.none() | betas, shares)
    def test_agrees_with_a_loop(self, groups, beta, share):
        scores = np.array([score for group in groups for score in group], np.float32)
        found = aggregate(scores, ragged(map(len, groups)), beta, share)
        np.testing.assert_allclose(found, slow_scores(groups, beta, share), rtol=1e-5, atol=1e-4)

    @given(documents, st.none() | betas, shares)
    def test_is_never_above_the_score_without(self, groups, beta, share):
        """Stage 2 takes the largest score of a document's centroids for an upper bound."""
        scores, offsets = (
            np.array([score for group in groups for score in group], np.float32),
            ragged(map(len, groups)),
        )
        assert (aggregate(scores, offsets, beta, share) <= aggregate(scores, offsets, beta)).all()

    @given(st.lists(score, min_size=1, max_size=12), st.integers(1, 700), shares)
    def test_equal_centroids_score_as_one(self, values, count, share):
        scores = np.repeat(np.array(values, np.float32), count)
        found = aggregate(scores, count * np.arange(len(values) + 1), None, share)
        assert found.tolist() == aggregate(scores[::count], np.arange(len(values) + 1), None).tolist()

    @given(st.lists(score, min_size=1, max_size=300), st.none() | betas, shares, st.integers(0, 9))
    def test_equal_documents_tie(self, group, beta, share, before):
        """The score of a document does not depend on where its rows are."""
        scores = np.array([*([7.3] * before), *group, 5.1, *group], np.float32)
        sizes = [before] * bool(before) + [len(group), 1, len(group)]
        found = aggregate(scores, ragged(sizes), beta, share)
        assert found[-1] == found[-3]

    @given(documents, st.none() | betas)
    def test_a_share_of_nothing_changes_no_bit(self, groups, beta):
        scores, offsets = (
            np.array([score for group in groups for score in group], np.float32),
            ragged(map(len, groups)),
        )
        assert aggregate(scores, offsets, beta, 0.0).tobytes() == aggregate(scores, offsets, beta).tobytes()

    @pytest.mark.parametrize("share", [-0.1, 1.0, math.nan, math.inf])
    def test_what_is_no_share(self, share):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            aggregate(np.ones(1, np.float32), np.array([0, 1]), None, share)
