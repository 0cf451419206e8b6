"""Representations of many documents at once, computed on the device of their token vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from quarry.engine.encoding.device_encoder import DeviceTokens, PreparedText
from quarry.engine.encoding.runtimes.device_batches import run_sums
from quarry.engine.gpu.transfer import download, send
from quarry.engine.representation.base import DocumentVectors, Representation, cluster_spans
from quarry.engine.representation.device_kmeans import Clusters, kmeans_of_documents
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces, TextPieces, text_pieces

__all__ = ["DeviceRepresentation", "device_representation"]

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


def _with_whole(
    pieces: TextPieces, values: npt.NDArray[np.float32], whole: npt.NDArray[np.float32]
) -> DocumentVectors:
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
        found: dict[int, DocumentVectors] = {}
        for members in _group_by_length(lengths):
            starts = tokens.offsets[:-1][members]
            clusters = kmeans_of_documents(tokens.values, starts, lengths[members], self._n_centroids)
            made = _collect_clusters(clusters, [prepared[member] for member in members], normalize)
            found |= zip(members.tolist(), made, strict=True)
        return [found[number] for number in range(len(prepared))]


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


def _group_by_length(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
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
