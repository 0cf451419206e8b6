"""Coarse centroids of one length divide rows into lists of similar sizes, and nearest rows are in few of them."""

import faiss
import numpy as np
import pytest

from quarry.engine.quantization.coarse_centroids import train_coarse_centroids

N_ROWS, DIM, NLIST = 12_000, 32, 128


def make_rows(n, length_deviation, seed):
    """Return rows of clusters of different widths: means of wide ones are short."""
    generator = np.random.default_rng(seed)
    topics = np.random.default_rng(9).standard_normal((60, DIM))
    widths = np.linspace(0.2, 1.5, 60)
    own = generator.integers(0, 60, n)
    rows = topics[own] + widths[own, None] * generator.standard_normal((n, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows * np.exp(length_deviation * generator.standard_normal((n, 1)))).astype(np.float32)


def share_of_rows_read(centroids, rows, queries):
    """Return the share of rows in as many lists as hold .98 of the ten nearest rows of all queries."""
    lists = (rows @ centroids.T).argmax(axis=1)
    order = np.argsort(-(queries @ centroids.T), axis=1)
    ranks = np.argsort(order, axis=1)
    nearest = np.argsort(-(queries @ rows.T), axis=1)[:, :10]
    nprobe = int(np.quantile(np.take_along_axis(ranks, lists[nearest], axis=1), 0.98)) + 1
    return np.bincount(lists, minlength=NLIST)[order[:, :nprobe]].sum(axis=1).mean() / len(rows)


def imbalance(centroids, rows):
    sizes = np.bincount((rows @ centroids.T).argmax(axis=1), minlength=len(centroids)).astype(float)
    return len(sizes) * (sizes**2).sum() / sizes.sum() ** 2


@pytest.mark.parametrize("is_rounding", [True, False])
@pytest.mark.parametrize("length_deviation", [0.0, 0.3])
def test_fewer_rows_are_read_than_with_means(length_deviation, is_rounding):
    rows, queries = make_rows(N_ROWS, length_deviation, 0), make_rows(100, 0.0, 1)
    centroids = train_coarse_centroids(rows, NLIST, 5, 1, is_rounding)
    kmeans = faiss.Kmeans(DIM, NLIST, niter=8, seed=5, max_points_per_centroid=N_ROWS)
    kmeans.train(rows)
    means = kmeans.centroids
    lengths = np.linalg.norm(centroids, axis=1)
    np.testing.assert_allclose(lengths, lengths.mean(), rtol=1e-5)
    if not is_rounding:
        np.testing.assert_allclose(lengths, np.linalg.norm(means, axis=1).mean(), rtol=1e-5)
        cosines = (centroids * means).sum(axis=1) / lengths / np.linalg.norm(means, axis=1)
        np.testing.assert_allclose(cosines, 1, rtol=1e-5)
    assert imbalance(centroids, rows) < imbalance(means, rows)
    assert share_of_rows_read(centroids, rows, queries) < share_of_rows_read(means, rows, queries)


def test_rows_of_zeros():
    rows = np.zeros((64, DIM), np.float32)
    assert not train_coarse_centroids(rows, 4, 0, 1).any()
    rows[:32, 0] = 3
    centroids = train_coarse_centroids(rows, 2, 0, 1)
    assert np.isfinite(centroids).all()


@pytest.mark.parametrize("is_rounding", [True, False])
def test_opposite_rows_share_no_list_without_a_direction(is_rounding):
    """Longer rows take the other lists, so that the mean of a cluster of rows and their opposites is zero."""
    axes, noise = np.eye(DIM, dtype=np.float32), np.random.default_rng(0).standard_normal((1040, DIM))
    rows = np.concatenate(
        [np.tile(axes[0], (500, 1)), np.tile(-axes[0], (500, 1)), np.tile(200 * axes[1], (40, 1))]
    )
    rows = (rows + 0.01 * noise).astype(np.float32)
    centroids = train_coarse_centroids(rows, 2, 0, 1, is_rounding)
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    assert np.abs(directions @ axes[:2].T).max(axis=0).min() > 0.9
