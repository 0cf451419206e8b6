"""The vectorized k-means is compared with its equations written as loops."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.representation.kmeans import kmeans

N_ROUNDS = 20


def slow_kmeans(tokens, n_clusters):
    """Compute eq. 1-2 of Tang et al. (2021) token by token and cluster by cluster, in double precision."""
    tokens = tokens.astype(np.float64)
    m, k = len(tokens), min(n_clusters, len(tokens))
    centroids = [tokens[i * m // k] for i in range(k)]
    labels = None
    for _ in range(N_ROUNDS):
        new = []
        for token in tokens:
            distances = [((token - centroid) ** 2).sum() for centroid in centroids]
            new.append(distances.index(min(distances)))
        if new == labels:
            break
        labels = new
        for j in range(k):
            members = [token for token, label in zip(tokens, labels, strict=True) if label == j]
            if members:
                centroids[j] = sum(members) / len(members)
    used = sorted(set(labels))
    return np.array([centroids[j] for j in used]), np.array([used.index(label) for label in labels])


def topical_tokens(seed, n_tokens, dim=24):
    """Return random tokens that drift around a few topics, like those of a text."""
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((5, dim))
    walk = np.sort(rng.integers(0, 5, n_tokens))
    return (topics[walk] + 0.7 * rng.standard_normal((n_tokens, dim))).astype(np.float32)


def assert_same(tokens, n_clusters):
    centroids, labels = kmeans(tokens, n_clusters)
    expected_centroids, expected_labels = slow_kmeans(tokens, n_clusters)
    assert labels.tolist() == expected_labels.tolist()
    np.testing.assert_allclose(centroids, expected_centroids, rtol=1e-4, atol=1e-5)
    assert centroids.dtype == np.float32


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("n_clusters", [1, 3, 8])
def test_random_documents(seed, n_clusters):
    assert_same(topical_tokens(seed, n_tokens=30 + 7 * seed), n_clusters)


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 7, 8, 9])
def test_documents_about_as_short_as_there_are_clusters(n_tokens):
    assert_same(topical_tokens(n_tokens, n_tokens), 8)


def test_a_document_that_has_not_converged_after_all_iterations():
    """Points on a line converge slowly, so that k-means stops at the maximum of iterations."""
    tokens = np.linspace(0, 1, 600, dtype=np.float32)[:, np.newaxis] ** 6
    labels = slow_kmeans(tokens, 8)[1]
    means = np.array([tokens[labels == j].mean() for j in range(8)])
    converged = np.abs(tokens - means).argmin(axis=1)
    assert (converged != labels).any()
    assert_same(tokens, 8)


def test_equal_tokens_leave_clusters_empty():
    """A token at equal distance to two centroids belongs to the first: the second of each pair is dropped."""
    tokens = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    centroids, labels = kmeans(tokens, 6)
    assert centroids.tolist() == np.eye(3).tolist()
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert_same(tokens, 6)


def test_clusters_that_empty_on_the_way():
    """Clusters that become empty are dropped; outliers draw centroids away from their first tokens."""
    n_dropped = 0
    for seed in range(100):
        tokens = (np.random.default_rng(seed).standard_normal((30, 3)) ** 5).astype(np.float32)
        assert_same(tokens, 10)
        n_dropped += len(kmeans(tokens, 10)[0]) < 10
    assert n_dropped > 0
