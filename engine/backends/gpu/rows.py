"""The rows of a segment and of its documents on a device, and exact scores of documents from those of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Protocol

import numpy as np
import torch

from quarry.engine.backends.gpu.queries import ExactQueries
from quarry.engine.gpu.aggregation import aggregate_rows
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.transfer import upload
from quarry.engine.scoring.stored_vectors import LARGEST_HALF_SQUARE
from quarry.formats.arrays import Int64Array
from quarry.formats.vectors.centroids import CentroidTable

__all__ = ["DeviceRows", "DocumentRows", "DocumentScores", "RowScores", "most_rows"]

RowScores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(n,) int64 numbers of queries and (n,) int64 rows -> (n,) float32 scores of each row for its query."""


class DocumentScores(Protocol):
    """Computes final scores of documents whose centroids are on the device."""

    def document_scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        """Return exact aggregated scores of some documents for each query; nothing is downloaded.

        Args:
            queries: (n_queries, dim) float32 on the device.
            docs: (n_queries, n) int64 on the device, those of a query distinct.
            beta: inverse temperature of the softmax aggregation, or None for the maximum.

        Returns:
            (n_queries, n) float32 on the device; a score depends on its query and its document alone.
        """
        ...


class DocumentRows:
    """The offsets of the documents' rows, on the host and on a device.

    Args:
        offsets: (n_docs + 1,) int64.
        place: the device.
        mean_share: share of the mean of a document's scores in its score, see `quarry.engine.gpu.aggregation`.

    Attributes:
        offsets: (n_docs + 1,) int64 on the host.
        starts: the same on the device.
        most_rows: number of rows of the largest document.
    """

    def __init__(self, offsets: Int64Array, place: torch.device, mean_share: float = 0.0) -> None:
        self.offsets = offsets
        self._mean_share = mean_share
        self.most_rows = int(np.diff(offsets).max())
        self.starts = torch.tensor(offsets, device=place)

    @cached_property
    def _most_rows_of(self) -> Int64Array:
        return most_rows(self.offsets)

    def scores(
        self, docs: torch.Tensor, beta: float | None, batch_rows: int, row_scores: RowScores
    ) -> torch.Tensor:
        """Return aggregated scores of some documents for each query; nothing is downloaded.

        Args:
            docs: (n_queries, n) int64 on the device, those of a query distinct.
            beta: inverse temperature of the softmax aggregation, or None for the maximum.
            batch_rows: about how many rows to score at a time; one document may have more.
            row_scores: scores rows; the score of a row must not depend on the others.

        Returns:
            (n_queries, n) float32 on the device.
        """
        scores = torch.empty(docs.shape, dtype=torch.float32, device=docs.device)
        for some, part in self._batches(docs.shape[0], docs.shape[1], batch_rows):
            scores[some, part] = self._block(docs[some, part], some.start, beta, row_scores)
        return scores

    def _batches(self, n_queries: int, n: int, batch_rows: int) -> Iterator[tuple[slice, slice]]:
        """Yield ranges of queries and documents with at most `batch_rows` rows, or of one document."""
        n_docs = max(1, min(n, int(np.searchsorted(self._most_rows_of, batch_rows, side="right")) - 1))
        step = max(1, batch_rows // int(self._most_rows_of[n_docs]))
        for low in range(0, n_queries, step):
            for first in range(0, n, n_docs):
                yield slice(low, min(low + step, n_queries)), slice(first, min(first + n_docs, n))

    def _block(self, docs: torch.Tensor, first: int, beta: float | None, row_scores: RowScores) -> torch.Tensor:
        """Return the scores of (n_queries, n) documents for the queries from `first` on.

        Only the device knows their number of rows, and the host knows its maximum: memory is allocated for the
        maximum, and places behind the last row belong to no document.
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
        scores = row_scores(pairs // docs.shape[1] + first, rows)
        bounds = torch.cat([befores[:1], ends, ends.new_full((1,), n_places)])
        betas = None if beta is None else torch.full((1,), beta, device=docs.device)
        aggregated = aggregate_rows(scores[:, None], bounds, betas, self._mean_share)
        return aggregated[:-1, 0].view(docs.shape)


def most_rows(offsets: Int64Array) -> Int64Array:
    """Return how many rows 0, 1, 2, ... n of n documents, or lists, have at most: (n + 1,) int64."""
    longest_first = np.sort(np.diff(offsets))[::-1]
    return np.concatenate([[0], np.cumsum(longest_first)])


_COPIES = 3  # float64 copies of a row during a product


class DeviceRows:
    """The stored centroids of one segment, "int8" or "float16".

    Attributes:
        documents: the rows of each document.
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for float16.
        largest_norm: upper bound of the norms of the centroids.
        distance_dim: see `quarry.formats.snapshot.OpenSegment`.
        half_squares: (n_rows,) float32, half of the squared norms of the vectors, if distances are compared.
    """

    def __init__(self, table: CentroidTable, device: Device, distance_dim: int | None = None) -> None:
        place = device.place
        self.distance_dim = distance_dim
        self.documents = DocumentRows(table.offsets, place)
        self.largest_norm = table.largest_norm
        self.values = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place)
        self.scales: torch.Tensor | None = None
        if table.kind == "int8":
            self.scales = upload(lambda low, high: table.stored_slice(low, high)[1], table.n_rows, place)
        self._pair_scores = device.kernel("pair_scores")
        self._batch_rows = max(1, device.work_bytes // (_COPIES * 8 * table.dim))
        self.half_squares = None if distance_dim is None else self._half_squares()

    def document_scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        """Return exact aggregated scores of some documents for each query, see `DocumentScores`.

        Products are summed in float64, so that the rounded score does not depend on order or batch.
        """
        if self.distance_dim is not None:
            compared = partial(self._distance_scores, queries[:, : self.distance_dim].double())
            return self.documents.scores(docs, beta, self._batch_rows, compared)
        exact = ExactQueries.of(queries, for_int8=self.scales is not None)
        if self._pair_scores is None:
            return self.documents.scores(docs, beta, self._batch_rows, partial(self._row_scores, exact))
        scores: torch.Tensor = self._pair_scores(
            self.values, self.scales, self.documents.starts, docs, exact.values, exact.scales, beta
        )
        return scores

    def _half_squares(self) -> torch.Tensor:
        parts = torch.arange(len(self.values), device=self.values.device).split(self._batch_rows)
        return torch.cat([self._vectors(rows).square().sum(1).float() / 2 for rows in parts])

    def _vectors(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the vectors of (n,) rows whose distances are compared: (n, distance_dim) float64."""
        vectors = self.values[rows, : self.distance_dim].float()  # rounded as on the CPU
        if self.scales is not None:
            vectors *= self.scales[rows, None]
        return vectors.double()

    def _distance_scores(self, queries: torch.Tensor, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return minus half of the squared distances, as `StoredVectors.scores` does."""
        scores = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        for low in range(0, len(rows), self._batch_rows):
            part = slice(low, low + self._batch_rows)
            scores[part] = -(self._vectors(rows[part]) - queries[numbers[part]]).square().sum(1) / 2
        return scores.clamp_(min=-LARGEST_HALF_SQUARE).float()

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
