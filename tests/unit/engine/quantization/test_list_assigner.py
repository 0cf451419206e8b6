"""Lists assigned by products of rounded vectors are compared with products in float64."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.quantization.coarse_centroids import train_coarse_centroids
from quarry.engine.quantization.list_assigner import Int8Products, ListAssigner, RoundedCentroids, has_fast_int8

DIM, NLIST = 96, 300


pytestmark = pytest.mark.skipif(not has_fast_int8(), reason="no CPU that is fast at products of int8 numbers")


def clustered(n, seed=0, n_topics=400):
    generator = np.random.default_rng(seed)
    topics = np.random.default_rng(99).standard_normal((n_topics, DIM))
    rows = topics[generator.integers(0, n_topics, n)] + 0.7 * generator.standard_normal((n, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def check_best(centroids, vectors, lists):
    """Check that the lists have the largest products, with ties up to float32 rounding."""
    scores = vectors.astype(np.float64) @ centroids.T.astype(np.float64)
    lost = scores.max(axis=1) - np.take_along_axis(scores, lists[:, None], axis=1)[:, 0]
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(centroids, axis=1).max()
    assert lists.dtype == np.int64
    assert (lost <= 1e-6 * lengths).all()


@pytest.mark.parametrize(("b", "n", "dim"), [(1, 1, 1), (3, 300, 64), (70, 17, 385), (2, 5, 4096)])
def test_products_are_exact(b, n, dim):
    largest, generator = 127, np.random.default_rng(dim)
    vectors, rows = (generator.integers(-largest, largest + 1, (size, dim), np.int8) for size in (n, b))
    vectors[0], rows[0] = largest, -largest
    found = np.empty((b, n), np.int32)
    Int8Products(vectors).write(rows, found)
    np.testing.assert_array_equal(found, rows.astype(np.int32) @ vectors.T.astype(np.int32))


@pytest.mark.parametrize("scale", [1e-10, 1e-3, 1, 3e4])
def test_lists_are_those_of_exact_products(scale):
    centroids, vectors = clustered(NLIST, seed=1) * np.float32(scale), clustered(6000) * np.float32(scale)
    vectors *= np.random.default_rng(2).uniform(0.2, 5, (6000, 1)).astype(np.float32)
    check_best(centroids, vectors, ListAssigner(centroids).assign(vectors, 1))


def test_rounding_alone_is_not_enough():
    """The comparison of close lists is necessary: without it, some lists of the test above are wrong."""
    centroids, vectors = clustered(NLIST, seed=1), clustered(6000)
    lists, _ = RoundedCentroids(centroids, deviations=0.0).find_best(vectors)
    assert 0.9 < (lists == (vectors @ centroids.T).argmax(axis=1)).mean() < 1


def test_centroids_of_very_different_lengths():
    centroids, vectors = clustered(NLIST, seed=1), clustered(4000)
    centroids *= np.geomspace(0.01, 1, NLIST, dtype=np.float32)[:, None]
    check_best(centroids, vectors, ListAssigner(centroids).assign(vectors, 1))


@pytest.mark.parametrize("n_different", [1, 20])
def test_equal_centroids(n_different):
    """Rounding cannot distinguish equal centroids, so that float32 products decide."""
    centroids, vectors = np.tile(clustered(n_different), (NLIST, 1))[:NLIST], clustered(4000)
    assigner = ListAssigner(centroids)
    for low in (0, 2000):
        check_best(centroids, vectors[low:], assigner.assign(vectors[low:], 1))


def test_rows_without_a_direction():
    vectors = clustered(4000)
    vectors[:50], vectors[50:100] = 0, 1
    centroids = clustered(NLIST, seed=1)
    check_best(centroids, vectors, ListAssigner(centroids).assign(vectors, 1))
    check_best(np.zeros_like(centroids), vectors, ListAssigner(np.zeros_like(centroids)).assign(vectors, 1))


def test_a_list_does_not_depend_on_the_batch():
    centroids, vectors = clustered(NLIST, seed=1), clustered(5000)
    assigner = ListAssigner(centroids)
    first = [assigner.assign(vectors[low : low + 1], 1)[0] for low in range(0, 5000, 100)]  # in float32
    whole = assigner.assign(vectors, 2)
    again = [assigner.assign(vectors[low : low + 7], 1)[0] for low in range(0, 5000, 100)]
    assert first == again == whole[::100].tolist()


@pytest.mark.parametrize("threads", [1, 2])
def test_clusters_are_as_good_as_those_of_float32_distances(threads):
    sample, others = clustered(NLIST * 40), clustered(5000, seed=3)
    errors = []
    for is_rounding in (True, False):
        centroids = train_coarse_centroids(sample, NLIST, 5, threads, is_rounding)
        assert (centroids.shape, centroids.dtype) == ((NLIST, DIM), np.float32)
        away = (centroids**2).sum(axis=1) - 2 * others @ centroids.T
        errors.append(float(1 + away.min(axis=1).mean()))
    assert errors[0] < 1.01 * errors[1]


def test_clusters_do_not_depend_on_the_number_of_threads():
    sample = clustered(20_000)
    one, two = (train_coarse_centroids(sample, NLIST, 5, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, train_coarse_centroids(sample, NLIST, 6, 1))


def test_clusters_of_few_different_rows():
    """Lists without rows get rows of others."""
    sample = np.tile(clustered(20), (400, 1))
    centroids = train_coarse_centroids(sample, NLIST, 0, 1)
    away = ((sample[:20, None] - centroids) ** 2).sum(axis=2)
    assert (away.min(axis=1) < 1e-6).all()
    assert (away.min(axis=0) < 1e-6).all()
