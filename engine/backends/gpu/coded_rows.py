"""Exact scores of the centroids of a segment that stores codes only, on a device."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from quarry.engine.backends.gpu.lists import DeviceLists
from quarry.engine.backends.gpu.rows import DocumentRows
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.transfer import upload
from quarry.engine.scoring.stored_vectors import mean_share
from quarry.formats.snapshot import OpenSegment

__all__ = ["CodedRows"]

_LOOKUP_BYTES = 64  # work memory for the table lookups of a sub-vector: of its score, and of its length
_COPIES = 3  # float64 copies of a coarse centroid during a product
_UNSIGNED = (1 << 32) - 1  # the bits of a uint32, which torch reads as an int32
_TABLE_SHARE = 4  # a quarter of the work memory is for lookup tables


class CodedRows:
    """The place of the code of each centroid in the inverted lists.

    Args:
        segment: a segment with lists and without centroids.
        lists: its lists on the device.
        device: the device.
    """

    def __init__(self, segment: OpenSegment, lists: DeviceLists, device: Device) -> None:
        assert segment.reader.lists is not None
        offsets = segment.reader.centroids.offsets
        self._documents = DocumentRows(offsets, device.place, mean_share(segment))
        self._lists = lists
        places = segment.reader.lists.places().view(np.int32)  # unsigned, but torch does not index uint32
        self._places = upload(lambda low, high: places[low:high], len(places), device.place)
        quantizer = lists.quantizer
        row_bytes = _LOOKUP_BYTES * quantizer.n_sub + _COPIES * 8 * quantizer.coarse.shape[1]
        self._batch_rows = max(1, device.work_bytes // 2 // row_bytes)
        self._batch_queries = max(1, device.work_bytes // _TABLE_SHARE // quantizer.query_bytes)

    def document_scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        """Return exact aggregated scores of some documents for each query, see `DocumentScores`.

        Tables and sums are float64, so that the rounded score does not depend on order or batch.
        """
        parts = zip(queries.split(self._batch_queries), docs.split(self._batch_queries), strict=True)
        return torch.cat([self._scores(some, of_some, beta) for some, of_some in parts])

    def _scores(self, queries: torch.Tensor, docs: torch.Tensor, beta: float | None) -> torch.Tensor:
        rotated = self._lists.quantizer.rotate(queries.double())
        tables = self._lists.quantizer.sub_scores(rotated)
        return self._documents.scores(docs, beta, self._batch_rows, partial(self._row_scores, rotated, tables))

    def _row_scores(
        self, rotated: torch.Tensor, tables: torch.Tensor, numbers: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """Return (n,) float32 scores of rows, each for the query of that number."""
        scores = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        for low in range(0, len(rows), self._batch_rows):  # one document may have more rows than a batch
            part = slice(low, low + self._batch_rows)
            places = self._places[rows[part]].long() & _UNSIGNED
            scores[part] = self._batch_scores(rotated, tables, numbers[part], places)
        return scores

    def _batch_scores(
        self, rotated: torch.Tensor, tables: torch.Tensor, numbers: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Return (n,) float64 scores of the codes at some places."""
        quantizer = self._lists.quantizer
        codes, lists = self._lists.codes[places], None
        scores = quantizer.look_up(tables, numbers, codes)
        if quantizer.by_residual:
            lists = torch.searchsorted(self._lists.starts, places, right=True) - 1
            scores += (quantizer.coarse[lists].double() * rotated[numbers]).sum(1)
        if quantizer.length_terms is not None:
            tables_of = torch.zeros_like(places) if lists is None else lists
            squares = quantizer.look_up(quantizer.length_terms, tables_of, codes).double().clamp_(min=0)
            scores /= torch.where(squares > 0, squares, 1).sqrt()
        return scores
