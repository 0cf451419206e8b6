"""Stage 1 on a device by exhaustive scan: all centroids against all queries.

Documents are scored in blocks, by a Triton kernel or in plain torch, and only the best are kept, so memory is
bounded for any number of centroids.
"""

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

__all__ = ["BlockScores", "DeviceScan", "KernelScores", "TorchScores", "best_documents"]

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


_BATCH_QUERIES = 256
_GROUP = 64  # documents in a group of `best_documents`
_FLOAT_ROUNDING = 1e-6  # of the squared norms in distances, and of distances that are final scores
_PLACE_BYTES = 24  # work memory for a document of the best groups


class DeviceScan:
    """Ranks the documents of a segment by all their centroids, with approximate scores of known error."""

    def __init__(self, rows: DeviceRows, device: Device) -> None:
        self._rows = rows
        self._work_bytes = device.work_bytes
        self._scores: BlockScores
        is_inner_product = rows.distance_dim is None
        if device.kernels is None or device.kernel("document_scores") is None or not is_inner_product:
            self._scores = TorchScores(rows, device.work_bytes)
        else:
            self._scores = KernelScores(rows, device.work_bytes, device.kernels)

    def find(
        self, queries: torch.Tensor, n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Find the n best documents for each query; nothing is downloaded.

        Args:
            queries: (n_queries, dim) float32 on the device, n_queries at least 1.
            n: number of documents, below the number of allowed ones.
            allowed: (n_docs,) bool on the device, or None for all.
            beta: inverse temperature of the softmax aggregation that ranks them, or None for the maximum.

        Returns:
            (n_queries, n) int64 documents, and (n_queries,) float64 upper bounds of the scores of all others.
        """
        batch = max(1, min(_BATCH_QUERIES, self._work_bytes // (n * _GROUP * _PLACE_BYTES)))
        parts = [self._find(some, n, allowed, beta) for some in queries.split(batch)]
        return torch.cat([docs for docs, _ in parts]), torch.cat([bounds for _, bounds in parts])

    def _find(
        self, queries: torch.Tensor, n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._rows.distance_dim is not None:
            queries = queries.clone()
            queries[:, self._rows.distance_dim :] = 0
        unit_queries = ScanQueries.of(queries, beta, self._scores.kind, self._scores.wide_sums)
        scores, docs = self._best(unit_queries, n + 1, allowed)
        longest, norms = self._rows.largest_norm, unit_queries.norms
        bounds = (scores[:, n].double() + unit_queries.slack * longest * self._error_factor(beta)) * norms
        if self._rows.distance_dim is not None:
            squares = norms.square()
            bounds = (bounds - squares / 2 + _FLOAT_ROUNDING * (squares + longest**2)).clamp_(max=0)
        return docs[:, :n], bounds

    def _error_factor(self, beta: float | None) -> float:
        """Return the error of a document's score, relative to the largest error of its centroids' scores.

        The derivative of the softmax aggregation of n scores has an L1 norm of at most 1 + 2 W((n - 1) / e), with
        Lambert's W(x) at most log(1 + x).
        """
        return 1.0 if beta is None else 1 + 2 * math.log1p((self._rows.documents.most_rows - 1) / math.e)

    def _best(
        self, queries: ScanQueries, n: int, allowed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best scores of unit queries, descending, and their documents: (n_queries, n) each."""
        place = self._rows.values.device
        scores = torch.full((len(queries), n), -torch.inf, device=place)
        docs = torch.zeros((len(queries), n), dtype=torch.int64, device=place)
        for low, high in self._scores.blocks(len(queries)):
            best, places = best_documents(self._scores.scores(queries, low, high, allowed), n)
            scores, order = torch.cat([scores, best], dim=1).topk(n, dim=1)
            docs = torch.cat([docs, places + low], dim=1).gather(1, order)
        return scores, docs


def best_documents(scores: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the largest n of (n_docs, n_queries) scores for each query, or all if there are fewer.

    For many documents, first the n groups of 64 with the largest maxima are found: for a document outside of them
    there are n others that score at least as much.

    Returns:
        (n_queries, n) scores and (n_queries, n) int64 places.
    """
    n_docs, n_queries = scores.shape
    n_groups = n_docs // _GROUP
    if n_groups <= 2 * n:
        best, places = scores.T.contiguous().topk(min(n, n_docs), dim=1)
        return best, places
    grouped = scores[: n_groups * _GROUP].view(n_groups, _GROUP, n_queries)
    groups = grouped.amax(1).T.contiguous().topk(n, dim=1).indices  # (n_queries, n)
    inside = torch.arange(_GROUP, device=scores.device)
    places = (groups[:, :, None] * _GROUP + inside).view(n_queries, -1)
    rest = torch.arange(n_groups * _GROUP, n_docs, device=scores.device).expand(n_queries, -1)
    places = torch.cat([places, rest], dim=1)
    best, order = scores.T.gather(1, places).topk(n, dim=1)
    return best, places.gather(1, order)
