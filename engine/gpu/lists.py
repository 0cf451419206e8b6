"""Stage 1 on a device by codes: inverted lists of 4-bit or 8-bit PQ codes, for what does not fit otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.gpu.device import Device
from engine.gpu.download import download
from engine.gpu.scan import best_documents
from engine.gpu.upload import upload
from engine.probe_curve import default_nprobe
from formats.quantizer import Quantizer
from formats.snapshot import OpenSegment

__all__ = ["DeviceLists"]

_LOOKUP_BYTES = 24  # of a look-up in flight: a place of 8 bytes twice, a code, a number
_DOCUMENT_BYTES = 12  # of a document and a query: its score, and what choosing the best takes


@dataclass(frozen=True, eq=False)
class _Tables:
    """What a batch of queries looks up.

    Attributes:
        scores: (n_queries, M, ksub) float32, the score of each sub-vector.
        probed: (n_queries, nprobe) int64, the lists to read.
        lists: (n_queries, nprobe) float32, what each list adds to the scores of its rows.
    """

    scores: torch.Tensor
    probed: torch.Tensor
    lists: torch.Tensor


class DeviceLists:
    """The inverted lists of one segment on a device; scores are those of codes (asymmetric distances)."""

    def __init__(self, segment: OpenSegment, device: Device) -> None:
        assert segment.reader.lists is not None
        assert segment.quantizer is not None
        lists, place = segment.reader.lists, device.place
        self._quantizer = _DeviceQuantizer(segment.quantizer, place)
        self._kernels = device.kernels
        self._longest = int(np.diff(lists.offsets).max())
        self._work_bytes = device.work_bytes
        self.n_docs = segment.reader.n_docs
        self.nlist = segment.quantizer.nlist
        self.default_nprobe = default_nprobe(segment.quantizer)
        offsets = segment.reader.centroids.offsets
        rows, codes = lists.rows(), lists.codes()
        self._owners = upload(
            lambda low, high: (np.searchsorted(offsets, rows[low:high], side="right") - 1).astype(np.int32),
            len(rows),
            place,
        )
        self._codes = upload(lambda low, high: codes[low:high], len(codes), place)
        self._starts = torch.tensor(lists.offsets, device=place)

    def find(
        self, queries: torch.Tensor, n: int, nprobe: int, allowed: torch.Tensor | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The n documents that score best in the `nprobe` best lists for each query.

        Args:
            queries: (n_queries, dim) float32 on the device.
            n: at most the number of documents.
            nprobe: at most `nlist`.
            allowed: (n_docs,) bool on the device, or None for all.

        Returns:
            (n_queries, n) int64 documents, best first, and how many of them the probed lists hold for each query:
            (n_queries,) int64; those behind mean nothing.
        """
        batch = max(1, self._work_bytes // (2 * _DOCUMENT_BYTES * self.n_docs))
        parts = [self._find(some, n, nprobe, allowed) for some in queries.split(batch)]
        return np.concatenate([docs for docs, _ in parts]), np.concatenate([counts for _, counts in parts])

    def _find(
        self, queries: torch.Tensor, n: int, nprobe: int, allowed: torch.Tensor | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        tables = self._quantizer.tables(queries, nprobe)
        best = torch.full((len(queries), self.n_docs), -torch.inf, device=self._codes.device)
        self._read(tables, best)
        if allowed is not None:
            best.masked_fill_(~allowed, -torch.inf)
        scores, docs = best_documents(best.T, n)
        found, counts = download(docs, (scores > -torch.inf).sum(1))
        return found, counts

    def _read(self, tables: _Tables, best: torch.Tensor) -> None:
        """Raise the scores of all documents with a row in a probed list."""
        if self._kernels is None:
            for numbers, places in self._batches(tables.probed):
                self._score(tables, numbers, places, best)
        else:
            self._kernels.score_lists(
                self._codes,
                self._owners,
                self._starts,
                self._longest,
                tables.scores,
                tables.probed,
                tables.lists,
                best,
            )

    def _batches(self, probed: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All rows of all probed lists, a bounded number at a time: pairs of list (flat) and place, (n,) each."""
        starts = self._starts[probed.ravel()]
        lengths = self._starts[probed.ravel() + 1] - starts
        ends = torch.cumsum(lengths, 0)
        n_rows = int(ends[-1])
        batch = max(1, self._work_bytes // (2 * _LOOKUP_BYTES * self._quantizer.n_sub))
        for low in range(0, n_rows, batch):
            rows = torch.arange(low, min(low + batch, n_rows), device=probed.device)
            numbers = torch.searchsorted(ends, rows, right=True)
            yield numbers, rows - (ends - lengths - starts)[numbers]

    def _score(self, tables: _Tables, numbers: torch.Tensor, places: torch.Tensor, best: torch.Tensor) -> None:
        """Raise the scores of the documents that own the rows at `places` to those of these rows."""
        queries = numbers // tables.probed.shape[1]
        scores = self._quantizer.looked_up(tables.scores, queries, self._codes[places])
        scores += tables.lists.ravel()[numbers]
        cells = queries * self.n_docs + self._owners[places]
        best.view(-1).scatter_reduce_(0, cells, scores, "amax")


class _DeviceQuantizer:
    """Coarse centroids and sub-vectors on a device."""

    def __init__(self, quantizer: Quantizer, place: torch.device) -> None:
        self._coarse = torch.tensor(quantizer.coarse, device=place)
        self._codebook = torch.tensor(quantizer.score_codebook, device=place)
        self._rotation = None if quantizer.rotation is None else torch.tensor(quantizer.rotation, device=place)
        self._by_residual = quantizer.by_residual
        self._nbits = quantizer.nbits
        self.n_sub = len(quantizer.score_codebook)

    def tables(self, queries: torch.Tensor, nprobe: int) -> _Tables:
        """What (n_queries, dim) float32 queries look up in their `nprobe` best lists."""
        turned = queries if self._rotation is None else queries @ self._rotation.T
        lists, probed = (turned @ self._coarse.T).topk(nprobe, dim=1)
        parts = turned.view(len(turned), self.n_sub, -1)
        scores = torch.einsum("mkd,nmd->nmk", self._codebook, parts).contiguous()
        return _Tables(scores, probed, lists if self._by_residual else torch.zeros_like(lists))

    def looked_up(self, tables: torch.Tensor, queries: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """(n,) float32 scores of (n, code_bytes) codes, each with the table of its query."""
        if self._nbits == 4:
            codes = torch.stack([codes & 0x0F, codes >> 4], dim=2).view(len(codes), -1)
        ksub = tables.shape[2]
        cells = torch.arange(self.n_sub, device=codes.device) * ksub + codes
        cells += queries[:, None] * (self.n_sub * ksub)
        return tables.view(-1)[cells].sum(1)
