"""The representation `KMeans`: pseudo query embeddings, k-means over token vectors (Tang et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.base import (
    DocumentVectors,
    IntegerSettings,
    cluster_spans,
    drop_empty_windows,
    scale_rows,
)
from quarry.engine.representation.pieces import piece_sums
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["MAX_ITERATIONS", "KMeans", "kmeans"]

# k-means on a document's few hundred tokens nearly always converges in fewer iterations.
MAX_ITERATIONS = 20


@dataclass(frozen=True)
class KMeans(IntegerSettings):
    """Plain k-means over the token vectors of the whole document (Tang et al. 2021, Eq. 1-2, section 4.2).

    For encoders trained for it. A document has at most as many centroids as tokens, and fewer if clusters are
    empty in the end (see `kmeans`). Special tokens are excluded. Memory: the token vectors of a document.

    Attributes:
        n_centroids: the k of k-means, 1 to 4096; 8 for documents and 4 for passages in the paper.
    """

    name: ClassVar[str] = "kmeans"
    n_centroids: int = 8

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroids of a document; see ``Representation.represent``."""
        del text
        kept = list(drop_empty_windows(windows))
        values, labels = kmeans(np.concatenate([window.values for window in kept]), self.n_centroids)
        starts = np.concatenate([window.starts for window in kept])
        ends = np.concatenate([window.ends for window in kept])
        return DocumentVectors(scale_rows(values, normalize), cluster_spans(labels, starts, ends, len(values)))


def kmeans(values: Float32Array, n_clusters: int) -> tuple[Float32Array, Int64Array]:
    """Cluster token vectors by k-means from equal-interval initial centroids; deterministic.

    Assignment is Eq. 1 of "Improving Document Representations by Generating Pseudo Query Embeddings for Dense
    Retrieval" (Tang et al. 2021); a token at the same distance from two centroids is assigned to the first. The
    update is Eq. 2. The initial centroids are the tokens that divide the document into equal intervals (section
    4.2): token i * n_tokens // k for i = 0 .. k - 1. Iteration stops when no token changes its cluster, or after
    20 iterations. The paper does not define empty clusters: here the centroid of one is unchanged, and a cluster
    that is empty in the end is removed.

    Args:
        values: (n_tokens, dim) float32, n_tokens >= 1.
        n_clusters: the k of k-means, at least 1; k is at most n_tokens.

    Returns:
        centroids: (n, dim) float32, 1 <= n <= min(n_clusters, n_tokens), the mean of each cluster's tokens.
        labels: (n_tokens,) int64, the centroid of each token; every centroid has one token at least.
    """
    n_tokens = len(values)
    k = min(n_clusters, n_tokens)
    centroids = values[np.arange(k) * n_tokens // k]
    labels = np.full(n_tokens, -1)
    for _ in range(MAX_ITERATIONS):
        nearest = _assign(values, centroids)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        centroids = _update_centroids(values, labels, centroids)
    kept, labels = np.unique(labels, return_inverse=True)
    return centroids[kept], labels


def _assign(values: Float32Array, centroids: Float32Array) -> Int64Array:
    """Return the nearest centroid of each token (Eq. 1, without |d|^2, which is the same for all centroids).

    This is not a matrix product, because the threads of BLAS compete with those that encode (a document took up to
    20 ms instead of 0.5 ms), and because its last bits depend on the number of rows.
    """
    squared = np.einsum("ij,ij->i", centroids, centroids)
    nearest: Int64Array = (squared - 2 * np.einsum("ij,kj->ik", values, centroids)).argmin(axis=1)
    return nearest


def _update_centroids(values: Float32Array, labels: Int64Array, centroids: Float32Array) -> Float32Array:
    """Return the means of the clusters (Eq. 2); the centroid of an empty cluster is unchanged."""
    counts = np.bincount(labels, minlength=len(centroids))
    present = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[present]
    sums = piece_sums(values[np.argsort(labels, kind="stable")], starts)
    updated = centroids.copy()
    updated[present] = sums / counts[present].astype(np.float32)[:, np.newaxis]
    return updated
