"""Representations of many documents at once, computed on the device of their token vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from quarry.engine.encoding.batch_encoder import DeviceTokens, PreparedText
from quarry.engine.encoding.runtimes.device_batches import run_sums
from quarry.engine.gpu.transfer import download, send
from quarry.engine.representation.base import DocumentVectors, Representation, cluster_spans
from quarry.engine.representation.kmeans import MAX_ITERATIONS, KMeans
from quarry.engine.representation.pieces import Pieces, TextPieces, text_pieces
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["Clusters", "DeviceRepresentation", "device_representation", "kmeans_of_documents"]

_PADDED_TOKENS = 1 << 15  # clustered at a time, padding included


class DeviceRepresentation(Protocol):
    """Computes the centroids of a `Representation` on a device, equal to within float32 rounding."""

    def plan(self, text: str, prepared: PreparedText) -> TextPieces | None:
        """Return what `represent` needs to know of the text itself; safe to call from several threads."""
        ...

    def represent(
        self,
        tokens: DeviceTokens,
        prepared: Sequence[PreparedText],
        plans: Sequence[TextPieces | None],
        normalize: bool,
    ) -> list[DocumentVectors]:
        """Return the centroids of documents, each of at least one token, in main memory."""
        ...


def device_representation(representation: Representation) -> DeviceRepresentation | None:
    """Return the version of a representation for a device; None if there is none."""
    if isinstance(representation, Pieces):
        return _DevicePieces(representation.tokens_per_piece)
    if isinstance(representation, KMeans):
        return _DeviceKMeans(representation.n_centroids)
    return None


class _DevicePieces:
    """`Pieces` on a device: sums over pieces, and sums of these over documents."""

    def __init__(self, tokens_per_piece: int) -> None:
        self._tokens_per_piece = tokens_per_piece

    def plan(self, text: str, prepared: PreparedText) -> TextPieces:
        """Cut the text into pieces."""
        tokens = prepared.tokens
        return text_pieces(text, tokens.starts, tokens.ends, prepared.bounds, self._tokens_per_piece)

    def represent(
        self,
        tokens: DeviceTokens,
        prepared: Sequence[PreparedText],
        plans: Sequence[TextPieces | None],
        normalize: bool,
    ) -> list[DocumentVectors]:
        """See `DeviceRepresentation`."""
        pieces = [plan for plan in plans if plan is not None]
        sizes = np.concatenate([each.sizes for each in pieces])
        counts = np.array([len(each.sizes) for each in pieces])
        sums = run_sums(tokens.values, sizes)
        means = sums / send(sizes.astype(np.float32), sums.device)[:, None]
        lengths = send(np.diff(tokens.offsets).astype(np.float32), sums.device)
        wholes = run_sums(sums, counts) / lengths[:, None]
        values, of_documents = download(_scale(means, normalize), _scale(wholes, normalize))
        parts = np.split(values, np.cumsum(counts)[:-1])
        return [_with_whole(*each) for each in zip(pieces, parts, of_documents, strict=True)]


def _with_whole(pieces: TextPieces, values: Float32Array, whole: Float32Array) -> DocumentVectors:
    """Append the mean of the whole document if there is more than one piece."""
    if len(values) > 1:
        values = np.concatenate([values, whole[None]])
    return DocumentVectors(values, tuple((span,) for span in pieces.spans_with_whole()))


class _DeviceKMeans:
    """`KMeans` on a device, for documents of similar length together."""

    def __init__(self, n_centroids: int) -> None:
        self._n_centroids = n_centroids

    def plan(self, text: str, prepared: PreparedText) -> None:
        """Return nothing: the text is not needed."""
        del text, prepared

    def represent(
        self,
        tokens: DeviceTokens,
        prepared: Sequence[PreparedText],
        plans: Sequence[TextPieces | None],
        normalize: bool,
    ) -> list[DocumentVectors]:
        """See `DeviceRepresentation`."""
        del plans
        lengths = np.diff(tokens.offsets)
        represented: dict[int, DocumentVectors] = {}
        for members in _group_by_length(lengths):
            starts = tokens.offsets[:-1][members]
            clusters = kmeans_of_documents(tokens.values, starts, lengths[members], self._n_centroids)
            made = _collect_clusters(clusters, [prepared[member] for member in members], normalize)
            represented |= zip(members.tolist(), made, strict=True)
        return [represented[number] for number in range(len(prepared))]


def _collect_clusters(
    clusters: Clusters, prepared: Sequence[PreparedText], normalize: bool
) -> Iterator[DocumentVectors]:
    """Yield the centroids of documents without empty clusters, as `quarry.engine.representation.kmeans.kmeans`."""
    columns = download(_scale(clusters.centroids, normalize), clusters.labels, clusters.counts)
    for text, centroids, labels, counts in zip(prepared, *columns, strict=True):
        kept = np.flatnonzero(counts)
        numbers = np.searchsorted(kept, labels[: text.n_tokens])
        spans = cluster_spans(numbers, text.tokens.starts, text.tokens.ends, len(kept))
        yield DocumentVectors(centroids[kept], spans)


def _group_by_length(lengths: Int64Array) -> Iterator[Int64Array]:
    """Yield numbers of documents, longest first, with a bounded number of tokens at a time, padding included."""
    order = np.argsort(-lengths, kind="stable")
    low = 0
    while low < len(order):
        n = max(1, _PADDED_TOKENS // int(lengths[order[low]]))
        yield order[low : low + n]
        low += n


def _scale(values: torch.Tensor, normalize: bool) -> torch.Tensor:
    """Return vectors scaled to length 1 if `normalize`; zeros stay zeros."""
    if not normalize:
        return values
    return values / torch.linalg.vector_norm(values, dim=-1, keepdim=True).clamp(
        min=torch.finfo(values.dtype).tiny
    )


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
    values: torch.Tensor, starts: Int64Array, lengths: Int64Array, n_clusters: int
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
