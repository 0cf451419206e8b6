"""The centroids of a segment on a device, as they are stored, and exact scores of them."""

from __future__ import annotations

from functools import partial

import torch

from quarry.engine.backends.gpu.document_rows import DocumentRows
from quarry.engine.backends.gpu.queries import ExactQueries
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.transfer import upload
from quarry.formats.vectors.centroids import CentroidTable

__all__ = ["DeviceRows"]

_COPIES = 3  # float64 copies of a row during a product


class DeviceRows:
    """The stored centroids of one segment, "int8" or "float16".

    Attributes:
        documents: the rows of each document.
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for float16.
        largest_norm: upper bound of the norms of the centroids.
    """

    def __init__(self, table: CentroidTable, device: Device) -> None:
        place = device.place
        self.documents = DocumentRows(table.offsets, place)
        self.largest_norm = table.largest_norm
        self.values = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place)
        self.scales: torch.Tensor | None = None
        if table.kind == "int8":
            self.scales = upload(lambda low, high: table.stored_slice(low, high)[1], table.n_rows, place)
        self._pair_scores = device.kernel("pair_scores")
        self._batch_rows = max(1, device.work_bytes // (_COPIES * 8 * table.dim))

    def document_scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        """Return exact aggregated scores of some documents for each query, see `DocumentScores`.

        Products are summed in float64, so that the rounded score does not depend on order or batch.
        """
        exact = ExactQueries.of(queries, for_int8=self.scales is not None)
        if self._pair_scores is None:
            return self.documents.scores(docs, beta, self._batch_rows, partial(self._row_scores, exact))
        scores: torch.Tensor = self._pair_scores(
            self.values, self.scales, self.documents.starts, docs, exact.values, exact.scales, beta
        )
        return scores

    def _row_scores(self, exact: ExactQueries, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return (n,) float32 scores of rows, each for the query of that number."""
        products = self._products(exact.values, numbers, rows)
        scales = exact.scales[numbers]
        if self.scales is not None:
            scales = self.scales[rows].double() * scales
        return (products * scales).float()

    def _products(self, queries: torch.Tensor, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return (n,) float64 inner products of rows, each with the query of that number."""
        products = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        for low in range(0, len(rows), self._batch_rows):  # one document may have more rows than a batch
            part = slice(low, low + self._batch_rows)
            products[part] = (self.values[rows[part]].double() * queries[numbers[part]]).sum(1)
        return products
