"""The centroids of a segment on a device, as they are stored, and exact scores of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from engine.gpu.aggregation import aggregate_rows
from engine.gpu.device import Device
from engine.gpu.queries import ExactQueries
from engine.gpu.upload import upload
from formats.centroids import CentroidTable

__all__ = ["DeviceRows"]

_COPIES = 3  # of a row in float64, while it is multiplied


class DeviceRows:
    """The stored centroids of one segment, "int8" or "float16".

    Attributes:
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for float16.
        starts: (n_docs + 1,) int64, where each document's rows start.
        offsets: the same on the host.
        most_rows: rows of the document that has most.
        largest_norm: no centroid is longer than this.
    """

    def __init__(self, table: CentroidTable, device: Device) -> None:
        place = device.place
        self.offsets = table.offsets
        self.most_rows = int(np.diff(table.offsets).max())
        self.largest_norm = table.largest_norm
        self.values = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place)
        self.scales: torch.Tensor | None = None
        if table.kind == "int8":
            self.scales = upload(lambda low, high: table.stored_slice(low, high)[1], table.n_rows, place)
        self.starts = torch.tensor(table.offsets, device=place)
        self._kernels = device.kernels
        self._batch_rows = max(1, device.work_bytes // (_COPIES * 8 * table.dim))

    @cached_property
    def _most_rows_of(self) -> npt.NDArray[np.int64]:
        """(n_docs + 1,) int64: how many rows 0, 1, 2 ... documents have at most."""
        longest_first = np.sort(np.diff(self.offsets))[::-1]
        return np.concatenate([[0], np.cumsum(longest_first)])

    def document_scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        """Exact aggregated scores of some documents for each query.

        Products are summed up in float64, where neither order nor batch can be seen in the rounded score. Nothing
        is read back from the device.

        Args:
            queries: (n_queries, dim) float32 on the device.
            docs: (n_queries, n) int64 on the device, those of a query distinct.
            beta: inverse temperature of the softmax aggregation, or None for the maximum.

        Returns:
            (n_queries, n) float32 on the device.
        """
        exact = ExactQueries.of(queries, for_integers=self.scales is not None)
        if self._kernels is not None:
            scores: torch.Tensor = self._kernels.pair_scores(
                self.values, self.scales, self.starts, docs, exact.values, exact.scales, beta
            )
            return scores
        scores = torch.empty(docs.shape, dtype=torch.float32, device=docs.device)
        for some, part in self._batches(*docs.shape):
            scores[some, part] = self._block(exact, docs[some, part], some.start, beta)
        return scores

    def _batches(self, n_queries: int, n: int) -> Iterator[tuple[slice, slice]]:
        """Queries and places of documents whose rows surely fit into the work memory, or are those of one."""
        n_docs = max(1, min(n, int(np.searchsorted(self._most_rows_of, self._batch_rows, side="right")) - 1))
        step = max(1, self._batch_rows // int(self._most_rows_of[n_docs]))
        for low in range(0, n_queries, step):
            for first in range(0, n, n_docs):
                yield slice(low, min(low + step, n_queries)), slice(first, min(first + n_docs, n))

    def _block(self, exact: ExactQueries, docs: torch.Tensor, first: int, beta: float | None) -> torch.Tensor:
        """Scores of (n_queries, n) documents for the queries from `first` on.

        How many rows they have is known to the device alone, how many they can have at most is known here: places
        for so many are made, and those behind the last row belong to no document.
        """
        chosen = docs.reshape(-1)
        starts = self.starts[chosen]
        ends = (self.starts[chosen + 1] - starts).cumsum(0)
        n_places = len(docs) * int(self._most_rows_of[docs.shape[1]])
        places = torch.arange(n_places, device=docs.device)
        pairs = torch.searchsorted(ends, places, right=True)
        beyond = pairs == len(chosen)
        pairs = pairs.clamp_(max=len(chosen) - 1)
        befores = ends.roll(1)
        befores[0] = 0
        rows = (places - befores[pairs] + starts[pairs]).masked_fill_(beyond, 0)
        scores = self._row_scores(exact, pairs // docs.shape[1] + first, rows)
        bounds = torch.cat([befores[:1], ends, ends.new_full((1,), n_places)])
        betas = None if beta is None else torch.full((1,), beta, device=docs.device)
        return aggregate_rows(scores[:, None], bounds, betas)[:-1, 0].view(docs.shape)

    def _row_scores(self, exact: ExactQueries, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n,) float32 scores of rows, each with the query of that number."""
        products = self._products(exact.values, numbers, rows)
        scales = exact.scales[numbers]
        if self.scales is not None:
            scales = self.scales[rows].double() * scales
        return (products * scales).float()

    def _products(self, queries: torch.Tensor, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n,) float64 inner products of rows, each with the query of that number."""
        products = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        for low in range(0, len(rows), self._batch_rows):  # one document may have more rows than a batch
            part = slice(low, low + self._batch_rows)
            products[part] = (self.values[rows[part]].double() * queries[numbers[part]]).sum(1)
        return products
