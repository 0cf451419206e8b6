"""The representation `KMeans`: pseudo query embeddings, k-means over token vectors (Tang et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.representation.base import (
    DocumentVectors,
    IntegerSettings,
    cluster_spans,
    nonempty_windows,
    scale_rows,
)
from quarry.engine.representation.pieces import piece_sums

__all__ = ["MAX_ITERATIONS", "KMeans", "kmeans"]

# Assignments of a document's few hundred tokens settle within this many rounds nearly always; the cap keeps
# the cost of a document bounded.
MAX_ITERATIONS = 20


@dataclass(frozen=True)
class KMeans(IntegerSettings):
    """Plain k-means over the token vectors of the whole document (Tang et al. 2021, Eq. 1-2, section 4.2).

    For encoders trained for it. A document has at most as many centroids as tokens, and fewer where clusters
    end up empty (``quarry.engine.representation.kmeans``). Special tokens take no part. Memory: the token
    vectors of a document.

    Attributes:
        n_centroids: the k of k-means, 1 to 4096; 8 for documents and 4 for passages in the paper.
    """

    name: ClassVar[str] = "kmeans"
    n_centroids: int = 8

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Make the centroids of a document; see ``Representation.represent``."""
        del text
        kept = list(nonempty_windows(windows))
        values, labels = kmeans(np.concatenate([window.values for window in kept]), self.n_centroids)
        starts = np.concatenate([window.starts for window in kept])
        ends = np.concatenate([window.ends for window in kept])
        return DocumentVectors(scale_rows(values, normalize), cluster_spans(labels, starts, ends, len(values)))


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
