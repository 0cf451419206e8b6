"""Stage 1 on a device without lists: every centroid against every query, the best documents kept.

Documents are taken in blocks, so that no score is kept longer than its block: memory is bounded whatever the
number of centroids and queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from engine.backends.gpu_aggregation import aggregate_rows
from engine.backends.gpu_device import Device
from engine.backends.gpu_queries import ScanQueries
from engine.backends.gpu_rows import DeviceRows

__all__ = ["DeviceScan", "best_documents"]

_BATCH_QUERIES = 256
_GROUP = 64  # documents of which only the best is looked at first
_LARGEST_HALF_NORM = 6e4  # longer centroids could give products beyond float16

Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


class DeviceScan:
    """Ranks the documents of a segment by all their centroids, with scores of known error."""

    def __init__(self, rows: DeviceRows, device: Device) -> None:
        self._rows = rows
        self._work_bytes = device.work_bytes
        halves = device.place.type == "cuda" and rows.largest_norm < _LARGEST_HALF_NORM
        self._kind = torch.float16 if halves else torch.float32

    def find(
        self, queries: npt.NDArray[np.float32], n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> Found:
        """The n documents that score best for each of (n_queries, dim) float32 queries.

        Args:
            queries: all finite.
            n: below the number of documents that may be found.
            allowed: (n_docs,) bool on the device, or None for all.
            beta: inverse temperature of the softmax aggregation that ranks them, or None for the maximum.

        Returns:
            (n_queries, n) int64 documents, and (n_queries,) float64 that no other document's score is above.
        """
        parts = [
            self._find(queries[low : low + _BATCH_QUERIES], n, allowed, beta)
            for low in range(0, len(queries), _BATCH_QUERIES)
        ]
        return np.concatenate([docs for docs, _ in parts]), np.concatenate([ceilings for _, ceilings in parts])

    def _find(
        self, queries: npt.NDArray[np.float32], n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> Found:
        scanned = ScanQueries.of(queries, beta, self._rows.values.device, self._kind, wide_sums=False)
        scores, docs = self._best(scanned, n + 1, allowed)
        ceilings = scores[:, n].double().cpu().numpy() + scanned.slack * self._rows.largest_norm * self._spread(
            beta
        )
        return docs[:, :n].cpu().numpy(), ceilings * scanned.norms

    def _spread(self, beta: float | None) -> float:
        """How many times the error of its centroids' scores a document's score can be off.

        The derivative of the softmax aggregation of n scores has an L1 norm of at most 1 + 2 W((n - 1) / e), with
        Lambert's W(x) at most log(1 + x).
        """
        return 1.0 if beta is None else 1 + 2 * math.log1p((self._rows.most_rows - 1) / math.e)

    def _best(
        self, queries: ScanQueries, n: int, allowed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of the units, descending, and documents: (n_queries, n) each; n is at most what may be found."""
        place = self._rows.values.device
        scores = torch.full((len(queries), n), -torch.inf, device=place)
        docs = torch.zeros((len(queries), n), dtype=torch.int64, device=place)
        for low, high in self._blocks(len(queries)):
            block = self._block(queries, low, high)
            if allowed is not None:
                block.masked_fill_(~allowed[low:high, None], -torch.inf)
            found, places = best_documents(block, n)
            scores, order = torch.cat([scores, found], dim=1).topk(n, dim=1)
            docs = torch.cat([docs, places + low], dim=1).gather(1, order)
        return scores, docs

    def _block(self, queries: ScanQueries, low: int, high: int) -> torch.Tensor:
        """Aggregated scores of the documents low to high - 1: (n_docs, n_queries) float32."""
        rows = slice(int(self._rows.offsets[low]), int(self._rows.offsets[high]))
        scores = (self._rows.values[rows].to(self._kind) @ queries.units.T).float()
        if self._rows.scales is not None:
            scores *= self._rows.scales[rows, None]
        return aggregate_rows(scores, self._rows.starts[low : high + 1] - rows.start, queries.betas)

    def _blocks(self, n_queries: int) -> Iterator[tuple[int, int]]:
        """Ranges of documents whose scores fit into the work memory; at least one document each."""
        offsets = self._rows.offsets
        row_bytes = self._rows.values.shape[1] * 4 + n_queries * 24
        n_rows = max(1, self._work_bytes // row_bytes)
        low = 0
        while low < len(offsets) - 1:
            high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + n_rows, side="right")) - 1)
            yield low, high
            low = high


def best_documents(scores: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest n of (n_docs, n_queries) scores for each query, or all where there are fewer.

    Of many documents first the best of each group of 64, then the groups with the n largest: a document outside
    them has n others that score at least as much.

    Returns:
        (n_queries, n) scores and (n_queries, n) int64 places.
    """
    n_docs, n_queries = scores.shape
    n_groups = n_docs // _GROUP
    if n_groups <= 2 * n:
        found, places = scores.T.contiguous().topk(min(n, n_docs), dim=1)
        return found, places
    grouped = scores[: n_groups * _GROUP].view(n_groups, _GROUP, n_queries)
    groups = grouped.amax(1).T.contiguous().topk(n, dim=1).indices  # (n_queries, n)
    inside = torch.arange(_GROUP, device=scores.device)
    places = (groups[:, :, None] * _GROUP + inside).view(n_queries, -1)
    rest = torch.arange(n_groups * _GROUP, n_docs, device=scores.device).expand(n_queries, -1)
    places = torch.cat([places, rest], dim=1)
    found, order = scores.T.gather(1, places).topk(n, dim=1)
    return found, places.gather(1, order)
