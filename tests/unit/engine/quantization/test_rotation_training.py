from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quarry.engine.quantization.coarse_centroids import train_coarse_centroids
from quarry.engine.quantization.codebook import extract_codebook, train_codes
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.rotation import train_rotation
from quarry.engine.quantization.training import measured, train_quantizer
from quarry.formats.vectors.quantizer import Quantizer

DIM, INNER = 64, 12


def correlated(n, seed=0, dim=DIM, inner=INNER):
    """Return vectors of topics that vary mostly in a subspace, with different variances of its dimensions."""
    basis = np.random.default_rng(99).standard_normal((inner, dim)) * np.linspace(2, 0.5, inner)[:, None]
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((50, inner))
    within = centres[generator.integers(0, 50, n)] + 0.5 * generator.standard_normal((n, inner))
    vectors = within @ basis + 0.3 * generator.standard_normal((n, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def alike(n, dim=DIM):
    return np.random.default_rng(1).standard_normal((n, dim)).astype(np.float32)


def without_rotation(sample, nlist, code_bytes, seed, threads):
    """Return the quantizer of whole vectors with codes of the same size."""
    book = extract_codebook(train_codes(sample, 2 * code_bytes, seed, threads, 4))
    return Quantizer(train_coarse_centroids(sample, nlist, seed, threads), book, book, None, by_residual=False)


def decoded(quantizer, vectors):
    """Return the decoded codes of vectors, (n, input_dim) float64, and their lists."""
    lists, codes = VectorCoder(quantizer, 1).code(vectors)
    halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
    parts = quantizer.score_codebook.astype(np.float64)[np.arange(halves.shape[1]), halves]
    turned = parts.reshape(len(codes), -1)
    return turned if quantizer.rotation is None else turned @ quantizer.rotation, lists


def found_by_codes(quantizer, vectors, queries, n):
    """Return the share of the ten nearest rows among the n rows with the best scores by codes."""
    exact, rough = queries @ vectors.T, queries @ decoded(quantizer, vectors)[0].T
    nearest, best = np.argsort(-exact, axis=1)[:, :10], np.argsort(-rough, axis=1)[:, :n]
    return np.mean([len(set(true) & set(some)) / 10 for true, some in zip(nearest, best, strict=True)])


@pytest.mark.parametrize("n_sub", [2, 4, 8, 16])
def test_rows_are_orthonormal(n_sub):
    rotation = train_rotation(correlated(3000), n_sub, 0)
    assert rotation.dtype == np.float32
    assert rotation.shape[1] == DIM
    assert rotation.shape[0] < DIM
    assert rotation.shape[0] % n_sub == 0
    np.testing.assert_allclose(rotation.astype(np.float64) @ rotation.T, np.eye(len(rotation)), atol=1e-5)


def test_what_varies_most_is_kept_and_shared_out():
    vectors = correlated(4000)
    rotation = train_rotation(vectors, 4, 0)
    assert 4 < len(rotation) <= 2 * INNER
    kept = vectors @ rotation.T
    least = np.linalg.svd(vectors, compute_uv=False)[len(rotation) :]
    assert (vectors**2).sum() - (kept**2).sum() == pytest.approx((least**2).sum(), rel=0.05)
    powers = (kept.reshape(len(kept), 4, -1) ** 2).sum(axis=(0, 2))
    assert powers.max() < 3 * powers.min()


def test_the_same_seed_gives_the_same_rotation():
    sample = correlated(2000)
    first, second, other = (train_rotation(sample, 4, seed) for seed in (1, 1, 2))
    assert first.tolist() == second.tolist()
    assert first.tolist() != other.tolist()
    train_rotation(sample, 4, (1 << 63) - 1)


@pytest.mark.parametrize("n", [1024, 6000])
def test_none_if_vectors_vary_equally_in_all_dimensions(n):
    """No rotation is trained although some axes of a small sample are long by chance."""
    assert train_rotation(alike(n, 256), 64, 0) is None


def test_none_if_too_few_queries_count():
    assert train_rotation(correlated(1023), 4, 0) is None
    assert train_rotation(np.tile(correlated(1), (2000, 1)), 4, 0) is None
    assert train_rotation(correlated(1100, dim=2049), 4, 0) is None


@pytest.mark.parametrize(("code_bytes", "turned"), [(1, True), (2, True), (4, True), (8, False), (16, False)])
def test_short_codes_have_one(code_bytes, turned):
    quantizer = train_quantizer(correlated(3000), 16, code_bytes, 0, 1)
    assert (quantizer.rotation is not None) == turned
    assert (quantizer.code_bytes, quantizer.input_dim) == (code_bytes, DIM)


@pytest.mark.parametrize("code_bytes", [2, 4])
def test_codes_find_more_with_it(code_bytes):
    arguments = (correlated(4000), 16, code_bytes, 0, 1)
    turned, plain = train_quantizer(*arguments), without_rotation(*arguments)
    vectors, queries = correlated(6000, seed=5), correlated(100, seed=6)
    found, usual = (found_by_codes(each, vectors, queries, 60) for each in (turned, plain))
    assert found > usual + 0.05
    rows = [measured(each, arguments[0], 4000, 1).candidate_rows for each in (turned, plain)]
    assert rows[0] < 0.8 * rows[1]


def test_the_error_includes_dropped_dimensions():
    quantizer, vectors = train_quantizer(correlated(3000), 16, 4, 0, 1), correlated(500, seed=7)
    coder = VectorCoder(quantizer, 1)
    lists, _ = coder.code(vectors)
    fit = coder.fit(np.bincount(lists, minlength=quantizer.nlist))
    coarse, codes = quantizer.coarse[lists] @ quantizer.rotation, decoded(quantizer, vectors)[0]
    for error, known in ((fit.coarse_error, coarse), (fit.code_error, codes)):  # measured for each eighth vector
        assert error == pytest.approx(((vectors - known)[::8] ** 2).sum(axis=1).mean(), rel=1e-4)
    np.testing.assert_array_equal(lists, (vectors @ quantizer.rotation.T @ quantizer.coarse.T).argmax(axis=1))


def test_measured_against_whole_vectors():
    """Measurements use whole vectors as truth, so that a rotation that drops the variance has worse results."""
    sample = correlated(3000)
    made = train_quantizer(sample, 16, 4, 0, 1)
    good = measured(made, sample, 3000, 1)
    axes = np.linalg.svd(sample, full_matrices=False)[2]
    bad = measured(replace(made, rotation=axes[-len(made.rotation) :]), sample, 3000, 1)
    assert good.candidate_rows < 0.5 * bad.candidate_rows
    assert good.probe_recall[3] > bad.probe_recall[3] + 0.1
