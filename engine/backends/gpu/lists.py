"""Stage 1 on a device with inverted lists of 4-bit or 8-bit PQ codes, for centroids that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from quarry.engine.backends.gpu.quantizer import DeviceQuantizer, Tables
from quarry.engine.backends.gpu.rows import most_rows
from quarry.engine.backends.gpu.scan import best_documents
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.transfer import upload
from quarry.engine.quantization.nprobe import default_nprobe
from quarry.formats.snapshot import OpenSegment

__all__ = ["DeviceLists"]

_LOOKUP_BYTES = 24  # work memory for a table lookup
_DOCUMENT_BYTES = 12  # work memory for a document and a query


class DeviceLists:
    """The inverted lists of one segment on a device; codes are scored by asymmetric distance computation.

    Attributes:
        quantizer: quantizer of the codes.
        codes: (n_rows, code_bytes) uint8, list after list.
        starts: (nlist + 1,) int64, offset of each list.
        nlist: number of lists.
        n_docs: number of documents of the segment.
    """

    def __init__(self, segment: OpenSegment, device: Device) -> None:
        assert segment.reader.lists is not None
        assert segment.quantizer is not None
        lists, place = segment.reader.lists, device.place
        self.quantizer = DeviceQuantizer(segment.quantizer, place)
        self._score_lists = device.kernel("score_lists")
        self._most_rows_of = most_rows(lists.offsets)
        self._work_bytes = device.work_bytes
        self.n_docs = segment.reader.passages.n_passages
        self.nlist = segment.quantizer.nlist
        self._measured = segment.quantizer
        offsets = segment.reader.centroids.offsets
        rows, codes = lists.rows(), lists.codes()
        self._owners = upload(
            lambda low, high: (np.searchsorted(offsets, rows[low:high], side="right") - 1).astype(np.int32),
            len(rows),
            place,
        )
        self.codes = upload(lambda low, high: codes[low:high], len(codes), place)
        self.starts = torch.tensor(lists.offsets, device=place)

    def default_nprobe(self, k: int) -> int:
        """Return the default number of lists to read for k hits."""
        return default_nprobe(self._measured, k)

    def find(
        self, queries: torch.Tensor, n: int, nprobe: int, allowed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Find the n best documents in the `nprobe` best lists for each query; nothing is downloaded.

        Args:
            queries: (n_queries, dim) float32 on the device, n_queries at least 1.
            n: at most the number of documents.
            nprobe: at most `nlist`.
            allowed: (n_docs,) bool on the device, or None for all.

        Returns:
            (n_queries, n) int64 documents, best first, those of a query distinct; and (n_queries,) int64, how many
            of them are in the lists that were read: the others are arbitrary.
        """
        query_bytes = _DOCUMENT_BYTES * self.n_docs + self.quantizer.query_bytes
        batch = max(1, self._work_bytes // (2 * query_bytes))
        parts = [self._find(some, n, nprobe, allowed) for some in queries.split(batch)]
        return torch.cat([docs for docs, _ in parts]), torch.cat([counts for _, counts in parts])

    def _find(
        self, queries: torch.Tensor, n: int, nprobe: int, allowed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tables = self.quantizer.tables(queries, nprobe)
        best = self.scores(tables)
        if allowed is not None:
            best.masked_fill_(~allowed, -torch.inf)
        scores, docs = best_documents(best.T, n)
        return docs, (scores > -torch.inf).sum(1)

    def scores(self, tables: Tables) -> torch.Tensor:
        """Return (n_queries, n_docs) scores of the best rows in the lists that are read; -inf without one."""
        best = torch.full((len(tables.probed), self.n_docs), -torch.inf, device=self.codes.device)
        if self._score_lists is None:
            for numbers, places in self._batches(tables.probed):
                self._score(tables, numbers, places, best)
        else:
            self._score_lists(
                self.codes,
                self._owners,
                self.starts,
                int(self._most_rows_of[1]),
                tables.scores,
                tables.probed,
                tables.lists,
                best,
            )
        return best

    def _batches(self, probed: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the rows of all lists that are read, in batches: (n,) flat numbers of lists, (n,) places.

        Only the device knows the number of rows, and the host knows its maximum. Places behind the last row have a
        number behind the last list.
        """
        starts = self.starts[probed.ravel()]
        lengths = self.starts[probed.ravel() + 1] - starts
        ends = torch.cumsum(lengths, 0)
        n_rows = len(probed) * int(self._most_rows_of[probed.shape[1]])
        batch = max(1, self._work_bytes // (2 * _LOOKUP_BYTES * self.quantizer.n_sub))
        for low in range(0, n_rows, batch):
            rows = torch.arange(low, min(low + batch, n_rows), device=probed.device)
            numbers = torch.searchsorted(ends, rows, right=True)
            before = (ends - lengths - starts)[numbers.clamp(max=len(ends) - 1)]
            yield numbers, (rows - before).masked_fill_(numbers == len(ends), 0)

    def _score(self, tables: Tables, numbers: torch.Tensor, places: torch.Tensor, best: torch.Tensor) -> None:
        """Raise the scores of the documents of the rows at `places` to the scores of these rows."""
        beyond = numbers == tables.probed.numel()
        numbers = numbers.clamp(max=tables.probed.numel() - 1)
        queries = numbers // tables.probed.shape[1]
        scores = self.quantizer.look_up(tables.scores, queries, self.codes[places])
        scores += tables.lists.ravel()[numbers]
        cells = queries * self.n_docs + self._owners[places]
        best.view(-1).scatter_reduce_(0, cells, scores.masked_fill_(beyond, -torch.inf), "amax")
