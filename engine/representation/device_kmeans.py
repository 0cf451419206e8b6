"""Batched k-means over the token vectors of many documents, on a device; tested against `kmeans`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from quarry.engine.gpu.transfer import send
from quarry.engine.representation.kmeans import MAX_ITERATIONS

__all__ = ["Clusters", "kmeans_of_documents"]


class Clusters(NamedTuple):
    """The clusters of some documents, on the device.

    Attributes:
        centroids: (n_docs, k, dim) float32; undefined for empty clusters.
        labels: (n_docs, longest) int64, the cluster of each token; k after a document's last token.
        counts: (n_docs, k) int64, tokens in each cluster; 0 after the last cluster of a document.
    """

    centroids: torch.Tensor
    labels: torch.Tensor
    counts: torch.Tensor


def kmeans_of_documents(
    values: torch.Tensor, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], n_clusters: int
) -> Clusters:
    """Cluster the token vectors of each document as `quarry.engine.representation.kmeans.kmeans` does.

    Distances and sums are computed in float64, and centroids are rounded to float32. Labels are therefore equal,
    except for tokens whose distances to two centroids are equal within float32 rounding; with equal labels,
    centroids are equal within that rounding. All iterations are made: documents that have converged do not change
    any more, and nothing has to be read back from the device.

    Args:
        values: (n_tokens, dim) float32 on the device.
        starts: (n_docs,) int64, the first token of each document.
        lengths: (n_docs,) int64, number of its tokens, at least 1; memory is proportional to n_docs
            times the largest.
        n_clusters: the k of k-means; a document has no more clusters than tokens.
    """
    k = min(n_clusters, int(lengths.max()))
    sizes = np.minimum(lengths, k)[:, None]  # clusters of each document
    numbers = np.arange(k)[None, :]
    first_tokens = starts[:, None] + np.minimum(numbers, sizes - 1) * lengths[:, None] // sizes
    tokens = np.arange(lengths.max())[None, :]
    rows = starts[:, None] + np.minimum(tokens, lengths[:, None] - 1)
    place = values.device
    missing, absent = (send(each, place) for each in (numbers >= sizes, tokens >= lengths[:, None]))
    centroids = values[send(first_tokens, place)]
    padded = values[send(rows, place)].double()
    labels = counts = torch.empty(0)
    for _ in range(MAX_ITERATIONS):
        labels = _assign(padded, centroids.double(), missing).masked_fill_(absent, k)
        members = (labels[:, None, :] == torch.arange(k, device=place)[:, None]).double()
        counts = members.sum(2)
        means = (members @ padded) / counts.clamp(min=1)[:, :, None]
        centroids = torch.where(counts[:, :, None] > 0, means.float(), centroids)
    return Clusters(centroids, labels, counts.long())


def _assign(padded: torch.Tensor, centroids: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
    """Return the (n_docs, longest) numbers of the nearest centroids, the first of equal ones."""
    squared = centroids.square().sum(2).masked_fill_(missing, torch.inf)
    return (squared[:, None, :] - 2 * (padded @ centroids.transpose(1, 2))).argmin(2)
