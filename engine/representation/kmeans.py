"""K-means over the token vectors of one document: the pseudo query embeddings of Tang et al. (2021)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.representation.pieces import piece_sums

__all__ = ["MAX_ITERATIONS", "kmeans"]

# Assignments of a document's few hundred tokens settle within this many rounds nearly always; the cap keeps
# the cost of a document bounded.
MAX_ITERATIONS = 20


def kmeans(
    values: npt.NDArray[np.float32], n_clusters: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Cluster token vectors by k-means from equal-interval initial centroids; deterministic.

    Assignment is Eq. 1 of "Improving Document Representations by Generating Pseudo Query Embeddings for
    Dense Retrieval" (Tang et al. 2021), a token as near to two centroids going to the first; the update is
    Eq. 2. The initial centroids are the tokens at which the document is cut into equal intervals (section
    4.2): token i * n_tokens // k for i = 0 .. k - 1. It stops when no token changes its cluster, or after 20
    rounds. The paper does not say what happens to a cluster without tokens: here its centroid stays where it
    was, and it is left out of the answer if it is empty in the end.

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
        nearest = _nearest(values, centroids)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        centroids = _updated(values, labels, centroids)
    kept, labels = np.unique(labels, return_inverse=True)
    return centroids[kept], labels


def _nearest(values: npt.NDArray[np.float32], centroids: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Eq. 1, where |d|^2 is left out: it is the same for all centroids.

    No matrix product: that would go to BLAS, whose threads get in the way of those that encode (a document
    took up to 20 ms instead of 0.5) and whose last bits depend on how many there are.
    """
    squared = np.einsum("ij,ij->i", centroids, centroids)
    nearest: npt.NDArray[np.int64] = (squared - 2 * np.einsum("ij,kj->ik", values, centroids)).argmin(axis=1)
    return nearest


def _updated(
    values: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], centroids: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Eq. 2, where an empty cluster keeps its centroid."""
    counts = np.bincount(labels, minlength=len(centroids))
    present = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[present]
    sums = piece_sums(values[np.argsort(labels, kind="stable")], starts)
    updated = centroids.copy()
    updated[present] = sums / counts[present].astype(np.float32)[:, np.newaxis]
    return updated
