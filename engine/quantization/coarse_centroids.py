"""Trains the coarse centroids of inverted lists by k-means (Lloyd's algorithm).

If the CPU is fast at products of int8 numbers, rows are assigned to the nearest of the centroids rounded to int8
(see `quarry.engine.quantization.list_assigner`), in less than half the time of float32 distances; a row that is
about as far from two centroids may be counted for either. Otherwise FAISS does it all.
"""

from __future__ import annotations

import numpy as np

from quarry.engine.process.worker_pool import map_on_threads
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.quantization.list_assigner import RoundedCentroids
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["train_coarse_centroids"]


_ITERATIONS = 8
_ROWS_AT_ONCE = 8192


def train_coarse_centroids(sample: Float32Array, nlist: int, seed: int, threads: int) -> Float32Array:
    """Return (nlist, dim) float32 centroids, the means of clusters of (n, dim) float32 rows, n >= nlist."""
    if RoundedCentroids.pays(nlist, sample.shape[1]):
        return _cluster_rounded(sample, nlist, seed, threads)
    import faiss

    set_faiss_threads(threads)
    kmeans = faiss.Kmeans(
        sample.shape[1],
        nlist,
        niter=_ITERATIONS,
        seed=seed & 0x7FFFFFFF,
        spherical=False,
        min_points_per_centroid=1,
        max_points_per_centroid=1 << 30,
    )
    kmeans.train(sample)
    return np.ascontiguousarray(kmeans.centroids, np.float32)


def _cluster_rounded(sample: Float32Array, nlist: int, seed: int, threads: int) -> Float32Array:
    """Cluster rows with rounded centroids, from rows drawn at random; like `train_coarse_centroids`."""
    generator = np.random.default_rng(seed)
    centroids = sample[np.sort(generator.choice(len(sample), nlist, replace=False))]
    parts = [sample[low : low + _ROWS_AT_ONCE] for low in range(0, len(sample), _ROWS_AT_ONCE)]
    for _ in range(_ITERATIONS):
        found = map_on_threads(RoundedCentroids(centroids).find_nearest, parts, threads, "quarry-train")
        centroids = _compute_means(sample, np.concatenate(found), nlist, generator)
    return centroids


def _compute_means(
    sample: Float32Array, lists: Int64Array, nlist: int, generator: np.random.Generator
) -> Float32Array:
    """Return the (nlist, dim) float32 means of the rows of each list.

    An empty list gets a row of the largest list, drawn at random; of the next largest, if several are empty.
    """
    order = np.argsort(lists, kind="stable")
    sizes = np.bincount(lists, minlength=nlist)
    stops = np.cumsum(sizes)
    means = np.empty((nlist, sample.shape[1]), np.float32)
    by_size = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    for rank, empty in enumerate(np.flatnonzero(sizes == 0).tolist()):
        largest = by_size[rank % len(by_size)]
        means[empty] = sample[order[stops[largest] - 1 - generator.integers(sizes[largest])]]
    for number in np.flatnonzero(sizes).tolist():
        rows = order[stops[number] - sizes[number] : stops[number]]
        means[number] = sample[rows].mean(axis=0)
    return means
