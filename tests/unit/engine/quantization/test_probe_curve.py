from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.indexes.format_samples import quantizer

from quarry.engine.quantization.nprobe import default_nprobe, probe_recall
from quarry.formats.vectors.quantizer import SearchSetting


def expected_recall(sample, coarse, held_out_rows, turned=None):
    """Compute the recall row by row."""
    turned, found = sample if turned is None else turned, []
    for place in held_out_rows:
        scores = sample @ sample[place]
        others = [row for row in np.argsort(-scores) if abs(row - place) > 16][:20]
        order = np.argsort(-(coarse @ turned[place])).tolist()
        found.append((scores[others[0]], [order.index(int((coarse @ turned[row]).argmax())) for row in others]))
    found.sort(key=lambda each: -each[0])
    counted = np.array([ranks for _, ranks in found[: (len(found) + 1) // 2]])
    return [np.mean(counted <= n) for n in range(len(coarse))]


def test_the_curve_is_a_count():
    generator = np.random.default_rng(0)
    sample = generator.standard_normal((500, 8)).astype(np.float32)
    coarse = generator.standard_normal((20, 8)).astype(np.float32)
    found = probe_recall(sample, replace(quantizer(), coarse=coarse), n_held_out=41)
    assert found.dtype == np.float32
    expected = expected_recall(sample, coarse, np.linspace(0, 499, 41).astype(int))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[-1] == 1


def test_the_curve_with_a_rotation():
    """The nearest rows are those of whole vectors, and their lists those of rotated ones."""
    sample = np.random.default_rng(0).standard_normal((500, 12)).astype(np.float32)
    made = quantizer(nlist=20, input_dim=12)
    expected = expected_recall(sample, made.coarse, np.linspace(0, 499, 41).astype(int), sample @ made.rotation.T)
    np.testing.assert_allclose(probe_recall(sample, made, n_held_out=41), expected, atol=1e-6)


@pytest.mark.parametrize("n", [1, 5, 30])
def test_tiny_samples_are_not_enough(n):
    sample = np.eye(30, dtype=np.float32)[:n]
    assert probe_recall(sample, replace(quantizer(), coarse=sample[:1])) is None


def spread(n, dim=8, seed=0):
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


@pytest.mark.parametrize("n_kinds", [1, 3, 20])
@pytest.mark.parametrize("scatter", [0, 1e-7])
def test_identical_vectors_are_not_enough(n_kinds, scatter):
    sample = spread(n_kinds)[np.random.default_rng(1).integers(0, n_kinds, 3000)] + scatter * spread(3000)
    assert probe_recall(sample, replace(quantizer(), coarse=spread(16, seed=2))) is None


@pytest.mark.parametrize("scatter", [0, 1e-9])
def test_lists_with_equal_scores_come_first(scatter):
    """If the centroids of sixteen lists are equal, all must be read, because rounding decides their order."""
    coarse = np.tile(spread(1), (16, 1)) + scatter * spread(16)
    assert probe_recall(spread(500), replace(quantizer(), coarse=coarse.astype(np.float32))).tolist() == [
        0
    ] * 15 + [1]


def test_half_of_the_lists_in_one_place():
    coarse = spread(16)
    coarse[8:] = coarse[8]
    found = probe_recall(spread(500, seed=1), replace(quantizer(), coarse=coarse))
    alone, together = found[0], found[8]  # the eight equal lists, and all others after one
    assert 0 < alone < together <= found[14] < found[15] == 1


@pytest.mark.parametrize(
    ("recall", "nprobe"), [([0.2, 0.99, 0.993, 1], 3), ([1, 1, 1, 1], 1), ([0, 0, 0, 0.5], 4), (None, 4)]
)
def test_the_default_is_where_the_curve_reaches_its_aim(recall, nprobe):
    measured = None if recall is None else np.array(recall, np.float32)
    for k in (1, 10, 1000):
        assert default_nprobe(replace(quantizer(), probe_recall=measured), k) == nprobe


def test_without_a_curve():
    assert default_nprobe(quantizer(nlist=256), 10) == 112


def test_what_was_measured_with_queries_goes_before_the_curve():
    settings = (SearchSetting(10, 2, 1), SearchSetting(100, 3, 1))
    made = replace(quantizer(), probe_recall=np.ones(4, np.float32), search_settings=settings)
    assert [default_nprobe(made, k) for k in (1, 10, 100, 1 << 20)] == [2, 2, 3, 4]
