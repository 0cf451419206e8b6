"""Trains the coarse centroids of inverted lists by k-means (Lloyd's algorithm), and scales them to one length.

Rows belong to the list whose centroid has the largest inner product with them, and means of wide clusters are
shorter than those of dense ones. Unless all centroids have one length, the longest attract rows that are closer to
others: by default, searches of a million vectors of length 1 in 1,024 lists read 16.8 % of the rows, and 12.5 %
after scaling, and find as many of the ten nearest (`imbalance` 2.26 and 1.27). Vectors of unequal lengths, and
Euclidean distances, gain more. (The assignment step of spherical k-means; I. Dhillon, D. Modha, Concept
decompositions for large sparse text data using clustering, 2001.)

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
from quarry.formats.vectors.centroids import StoredBatch

__all__ = ["train_coarse_centroids"]


_ITERATIONS = 8  # of k-means
_SHORT = 0.1  # of the length of the shorter rows; means of one direction, and of rows at random, are longer
_ROWS_AT_ONCE = 8192  # of the sample that are float32 at a time, 12 MB of 384 dimensions


def train_coarse_centroids(
    sample: Float32Array | StoredBatch, nlist: int, seed: int, threads: int, is_rounding: bool | None = None
) -> Float32Array:
    """Return (nlist, dim) float32 centroids, the directions of clusters of (n, dim) float32 rows, n >= nlist.

    All have the mean length of the means of the clusters, unless all rows are zeros. A mean that is nearly zero
    has no direction, as that of rows and their opposites: a row replaces it.

    Args:
        sample: the rows.
        nlist: number of centroids.
        seed: the seed of the choice of the first centroids.
        threads: how many threads assign rows.
        is_rounding: whether rows are assigned to rounded centroids; None: if that takes less time.
    """
    if is_rounding is None:
        is_rounding = RoundedCentroids.pays(nlist, sample.shape[1])
    cluster = _cluster_rounded if is_rounding else _cluster
    return _scale_to_one_length(_replace_short(cluster(sample, nlist, seed, threads), sample))


def _replace_short(centroids: Float32Array, sample: Float32Array | StoredBatch) -> Float32Array:
    """Replace means far shorter than rows, each by the row whose direction is farthest from other centroids."""
    rows = sample[:: -(-len(sample) // _ROWS_AT_ONCE)]
    row_lengths = np.linalg.norm(rows, axis=1)
    rows, row_lengths = rows[row_lengths > 0], row_lengths[row_lengths > 0]
    lengths = np.linalg.norm(centroids, axis=1)
    is_short = lengths < _SHORT * np.quantile(row_lengths, 0.1) if len(rows) else np.zeros(len(lengths), bool)
    if not is_short.any():
        return centroids
    directions = rows / row_lengths[:, None]
    kept = centroids[~is_short] / lengths[~is_short, None]
    nearest = (directions @ kept.T).max(axis=1, initial=-1)
    replaced, length = centroids.copy(), lengths[~is_short].mean() if len(kept) else row_lengths.mean()
    for place in np.flatnonzero(is_short).tolist():
        farthest = directions[nearest.argmin()]
        replaced[place] = length * farthest
        nearest = np.maximum(nearest, directions @ farthest)
    return replaced


def _cluster(sample: Float32Array | StoredBatch, nlist: int, seed: int, threads: int) -> Float32Array:
    """Return the means of clusters."""
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
    kmeans.train(sample[:])
    return np.ascontiguousarray(kmeans.centroids, np.float32)


def _scale_to_one_length(centroids: Float32Array) -> Float32Array:
    lengths = np.linalg.norm(centroids.astype(np.float64), axis=1, keepdims=True)
    factors = np.divide(lengths.mean(), lengths, out=np.ones_like(lengths), where=lengths > 0)
    scaled: Float32Array = (centroids * factors).astype(np.float32)
    return scaled


def _cluster_rounded(sample: Float32Array | StoredBatch, nlist: int, seed: int, threads: int) -> Float32Array:
    """Cluster rows with rounded centroids, from rows drawn at random; like `_cluster`."""
    generator = np.random.default_rng(seed)
    centroids = sample[np.sort(generator.choice(len(sample), nlist, replace=False))]
    starts = range(0, len(sample), _ROWS_AT_ONCE)
    for _ in range(_ITERATIONS):
        rounded = RoundedCentroids(centroids)

        def find_nearest(low: int, rounded: RoundedCentroids = rounded) -> Int64Array:
            return rounded.find_nearest(sample[low : low + _ROWS_AT_ONCE])

        nearest = map_on_threads(find_nearest, starts, threads, "quarry-train")
        centroids = _compute_means(sample, np.concatenate(nearest), nlist, generator)
    return centroids


def _compute_means(
    sample: Float32Array | StoredBatch, lists: Int64Array, nlist: int, generator: np.random.Generator
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
        place = stops[largest] - 1 - generator.integers(sizes[largest])
        means[empty] = sample[order[place : place + 1]]
    for number in np.flatnonzero(sizes).tolist():
        rows = order[stops[number] - sizes[number] : stops[number]]
        means[number] = sample[rows].mean(axis=0)
    return means
