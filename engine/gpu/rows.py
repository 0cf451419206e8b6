"""The centroids of a segment on a device, as they are stored, and exact scores of them."""

from __future__ import annotations

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

    def document_scores(
        self, queries: npt.NDArray[np.float32], docs: npt.NDArray[np.int64], beta: float | None
    ) -> npt.NDArray[np.float32]:
        """Exact aggregated scores of some documents for each query.

        Products are summed up in float64, where neither order nor batch can be seen in the rounded score.

        Args:
            queries: (n_queries, dim) float32.
            docs: (n_queries, n) int64.
            beta: inverse temperature of the softmax aggregation, or None for the maximum.

        Returns:
            (n_queries, n) float32.
        """
        numbers = np.repeat(np.arange(len(docs)), docs.shape[1])
        return self._pair_scores(queries, numbers, docs.ravel(), beta).reshape(docs.shape)

    def _pair_scores(
        self,
        queries: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.int64],
        docs: npt.NDArray[np.int64],
        beta: float | None,
    ) -> npt.NDArray[np.float32]:
        """Of pairs of a query's number and a document, (n,) each, as many at a time as the work memory holds."""
        exact = ExactQueries.of(queries, self.values.device, for_integers=self.scales is not None)
        ends = np.cumsum(self.offsets[docs + 1] - self.offsets[docs])
        scores = np.empty(len(docs), np.float32)
        low = 0
        while low < len(docs):
            limit = (ends[low - 1] if low else 0) + self._batch_rows
            high = max(low + 1, int(np.searchsorted(ends, limit, side="right")))
            scores[low:high] = self._pairs(exact, numbers[low:high], docs[low:high], beta).cpu().numpy()
            low = high
        return scores

    def _pairs(
        self, exact: ExactQueries, numbers: npt.NDArray[np.int64], docs: npt.NDArray[np.int64], beta: float | None
    ) -> torch.Tensor:
        place = self.values.device
        chosen = torch.from_numpy(docs).to(place)
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        bounds = torch.zeros(len(docs) + 1, dtype=torch.int64, device=place)
        torch.cumsum(lengths, 0, out=bounds[1:])
        n_rows = int((self.offsets[docs + 1] - self.offsets[docs]).sum())
        pairs = torch.repeat_interleave(lengths, output_size=n_rows)
        rows = torch.arange(n_rows, device=place) + (self.starts[chosen] - bounds[:-1])[pairs]
        scores = self._row_scores(exact, torch.from_numpy(numbers).to(place)[pairs], rows)
        betas = None if beta is None else torch.tensor([beta], dtype=torch.float32, device=place)
        return aggregate_rows(scores[:, None], bounds, betas)[:, 0]

    def _row_scores(self, exact: ExactQueries, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n,) float32 scores of rows, each with the query of that number."""
        products = self._products(exact.values, numbers, rows)
        scales = exact.scales[numbers]
        if self.scales is not None:
            scales = self.scales[rows].double() * scales
        return (products * scales).float()

    def _products(self, queries: torch.Tensor, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n,) float64 inner products of rows, each with the query of that number."""
        if self._kernels is not None:
            products: torch.Tensor = self._kernels.row_products(self.values, rows, queries, numbers)
            return products
        products = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        for low in range(0, len(rows), self._batch_rows):  # one document may have more rows than a batch
            part = slice(low, low + self._batch_rows)
            products[part] = (self.values[rows[part]].double() * queries[numbers[part]]).sum(1)
        return products
