"""Scores a block of documents, with a Triton kernel that reads each centroid once, or in plain torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Protocol

import numpy as np
import torch

from quarry.engine.backends.gpu.queries import ScanQueries
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.gpu.aggregation import aggregate_rows
from quarry.engine.gpu.device import Device

__all__ = ["BlockScores", "KernelScores", "TorchScores", "error_factor", "fastest_scores"]

_MAX_FLOAT16_NORM = 6e4  # products with longer centroids can exceed float16
_LEAST_NORM = (
    1e-20  # of a query, by which squared norms can be divided; below, scores are larger than they should be
)
_DOCUMENT_BYTES = 8  # work memory for a document and a query
_ROW_BYTES = 24  # work memory for a centroid and a query


class BlockScores(Protocol):
    """Scores documents, a block at a time.

    Attributes:
        kind: dtype of the queries in products, float16 or float32.
        wide_sums: whether products are summed in float32 although the factors are float16.
    """

    kind: torch.dtype
    wide_sums: bool

    def blocks(self, n_queries: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of documents whose scores fit into the work memory, at least one document each."""
        ...

    def scores(self, queries: ScanQueries, low: int, high: int, allowed: torch.Tensor | None) -> torch.Tensor:
        """Return the scores of the documents low to high - 1: (high - low, n_queries) float32.

        Documents that are not `allowed`, (n_docs,) bool on the device or None for all, score -inf.
        """
        ...


class TorchScores:
    """A matrix product, then the aggregation; the scores of all centroids of a block are stored in between."""

    wide_sums = False

    def __init__(self, rows: DeviceRows, work_bytes: int) -> None:
        self._rows = rows
        self._work_bytes = work_bytes
        is_float16 = rows.values.device.type == "cuda" and rows.largest_norm < _MAX_FLOAT16_NORM
        self.kind = torch.float16 if is_float16 else torch.float32

    def blocks(self, n_queries: int) -> Iterator[tuple[int, int]]:
        """See `BlockScores`."""
        offsets = self._rows.documents.offsets
        row_bytes = self._rows.values.shape[1] * self.kind.itemsize + n_queries * _ROW_BYTES
        n_rows = max(1, self._work_bytes // row_bytes)
        low = 0
        while low < len(offsets) - 1:
            high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + n_rows, side="right")) - 1)
            yield low, high
            low = high

    def scores(self, queries: ScanQueries, low: int, high: int, allowed: torch.Tensor | None) -> torch.Tensor:
        """See `BlockScores`."""
        rows = slice(int(self._rows.documents.offsets[low]), int(self._rows.documents.offsets[high]))
        scores = (self._rows.values[rows].to(self.kind) @ queries.units.T).float()
        if self._rows.scales is not None:
            scores *= self._rows.scales[rows, None]
        if self._rows.half_squares is not None:
            scores -= self._rows.half_squares[rows, None] / queries.norms.clamp(min=_LEAST_NORM).float()
        block = aggregate_rows(scores, self._rows.documents.starts[low : high + 1] - rows.start, queries.betas)
        return block if allowed is None else block.masked_fill_(~allowed[low:high, None], -torch.inf)


class KernelScores:
    """One kernel for product and aggregation: only the scores of documents are stored.

    Documents are grouped by their number of centroids, rounded up to a power of 2, so that a program has the same
    number of slots for each of its documents.
    """

    kind = torch.float16
    wide_sums = True

    def __init__(self, rows: DeviceRows, work_bytes: int, kernels: SimpleNamespace) -> None:
        self._rows = rows
        self._work_bytes = work_bytes
        self._kernels = kernels
        lengths = np.diff(rows.documents.offsets)
        slots = np.minimum(1 << np.ceil(np.log2(lengths)).astype(np.int64), kernels.TILE_ROWS)
        sizes = np.unique(slots).tolist()
        self._docs = {size: np.flatnonzero(slots == size).astype(np.int32) for size in sizes}
        self._on_device = {size: torch.from_numpy(self._docs[size]).to(rows.values.device) for size in sizes}

    def blocks(self, n_queries: int) -> Iterator[tuple[int, int]]:
        """See `BlockScores`."""
        n_docs = len(self._rows.documents.offsets) - 1
        step = max(1, self._work_bytes // (n_queries * _DOCUMENT_BYTES))
        for low in range(0, n_docs, step):
            yield low, min(low + step, n_docs)

    def scores(self, queries: ScanQueries, low: int, high: int, allowed: torch.Tensor | None) -> torch.Tensor:
        """See `BlockScores`."""
        block = torch.empty((high - low, len(queries)), dtype=torch.float32, device=self._rows.values.device)
        for slots, docs in self._docs.items():
            first, last = np.searchsorted(docs, [low, high]).tolist()
            if first < last:
                self._kernels.document_scores(
                    self._rows.values,
                    self._rows.scales,
                    self._rows.documents.starts,
                    self._on_device[slots][first:last],
                    slots,
                    allowed,
                    queries.units,
                    queries.betas,
                    block,
                    low,
                )
        return block


def fastest_scores(rows: DeviceRows, device: Device) -> BlockScores:
    """Return the kernel if the device has one and scores are inner products, and plain torch otherwise."""
    kernels = device.kernels
    if kernels is None or device.kernel("document_scores") is None or rows.distance_dim is not None:
        return TorchScores(rows, device.work_bytes)
    return KernelScores(rows, device.work_bytes, kernels)


def error_factor(most_rows: int, beta: float | None) -> float:
    """Return the error of a document's score, relative to the largest error of its centroids' scores.

    The derivative of the softmax aggregation of n scores has an L1 norm of at most 1 + 2 W((n - 1) / e), with
    Lambert's W(x) at most log(1 + x).

    Args:
        most_rows: largest number of centroids of a document.
        beta: inverse temperature of the softmax aggregation, or None for the maximum.
    """
    return 1.0 if beta is None else 1 + 2 * math.log1p((most_rows - 1) / math.e)
