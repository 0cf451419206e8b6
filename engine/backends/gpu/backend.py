"""Stage 1 on a GPU, and stage 2 where the centroids fit into its memory: torch, with Triton where it is there.

Where the centroids of a segment fit into the memory budget, all of them are scanned, and the final scores come
from the device too; so they do where codes are all that a segment has, and its inverted lists are read. Where
centroids are stored but only the codes fit, the lists are read and stage 2 stays on the CPU: a final score is that
of the centroids as stored.

The same code runs on torch's CPU device, where its tests run. It has not run on a CUDA device yet, though its
kernels compile for one.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.protocol import Candidates, Resources, Wanted
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.scoring.query_vectors import Queries, check_numbers
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import OpenSegment

if TYPE_CHECKING:
    import torch

    from quarry.engine.backends.gpu.document_rows import DocumentScores
    from quarry.engine.backends.gpu.lists import DeviceLists

__all__ = ["GpuBackend"]

_HOST_DOC_BYTES = 13  # of a document: a flag, how many rows so many documents have, its number in a group
_BATCH_PAIRS = 1 << 20  # of a query and a document, whose scores come back together

Docs = npt.NDArray[np.int64]


class GpuBackend:
    """One segment on a device; its memory is free again when the last reference to the backend goes.

    Args:
        segment: is copied to the device.
        resources: the device, and how much of its memory may be used.

    Attributes:
        device_bytes: of the device's memory.
        resident_bytes: of main memory.

    Raises:
        ImportError: there is no torch.
        BackendUnavailable: there is no such device.
        InvalidSetting: the segment does not fit into what is left of the device's budget.
    """

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self._device = resources.device
        self._live = np.ones(segment.reader.n_docs, bool) if segment.deleted is None else ~segment.deleted
        self._n_live = int(self._live.sum())
        self._live_here: torch.Tensor | None = None  # on the device, where documents are deleted
        self._final: DocumentScores | None = None  # of what is on the device; None: stage 2 is the CPU's
        self._lists: DeviceLists | None = None  # else all centroids are scanned
        self.resident_bytes = self.needed_bytes(segment)
        self.device_bytes = self._reserved(segment)
        weakref.finalize(self, self._device.release, self.device_bytes)
        self._upload(segment)

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`: which documents are live, in which order they are read."""
        return _HOST_DOC_BYTES * segment.reader.n_docs

    def _reserved(self, segment: OpenSegment) -> int:
        """Bytes taken of the budget: what the centroids need, or else what the codes need."""
        needs = [need for need in (_rows_bytes(segment), _lists_bytes(segment)) if need]
        for need in needs:
            if self._device.reserve(need):
                return need
        raise InvalidSetting(
            f"a segment does not fit into the memory budget of device {self._device.name}",
            path=segment.reader.path,
            expected=f"{min(needs)} bytes left",
            actual=self._device.left_bytes,
        )

    def _upload(self, segment: OpenSegment) -> None:
        import torch

        try:
            with self._device.active():
                if self.device_bytes == _rows_bytes(segment):
                    self._take_rows(segment)
                else:
                    self._take_lists(segment)
                if self._n_live < len(self._live):
                    self._live_here = torch.from_numpy(self._live).to(self._device.place)
        except torch.OutOfMemoryError as error:
            raise InvalidSetting(
                f"device {self._device.name} has less memory than its budget says",
                path=segment.reader.path,
                expected=f"{self.device_bytes} bytes",
                actual=error,
            ) from error

    def _take_rows(self, segment: OpenSegment) -> None:
        from quarry.engine.backends.gpu.rows import DeviceRows
        from quarry.engine.backends.gpu.scan import DeviceScan

        self._final = rows = DeviceRows(segment.reader.centroids, self._device)
        self._scan = DeviceScan(rows, self._device)

    def _take_lists(self, segment: OpenSegment) -> None:
        from quarry.engine.backends.gpu.coded_rows import CodedRows
        from quarry.engine.backends.gpu.lists import DeviceLists

        self._lists = DeviceLists(segment, self._device)
        if segment.reader.centroids.kind == "none":
            self._final = CodedRows(segment, self._lists, self._device)

    def takes(self, queries: DeviceVectors) -> bool:
        """See `quarry.engine.backends.protocol.DeviceBackend`: from all devices of the kind of its own."""
        return bool(queries.values.device.type == self._device.place.type)

    def candidates(self, queries: Queries, wanted: Wanted) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.DeviceBackend`.

        Where centroids are on the device, exactly `wanted.n` where there are as many. Where they are, or codes are
        all there is, with final scores: all that is read back are documents, scores and ceilings, or how many
        documents there are, together; and once more where the probed lists hold fewer than `wanted.k`.

        Raises:
            InvalidQuery: a number of a query that comes from a device is not finite, or above 1e18.
            BackendUnavailable: the device failed.
        """
        import torch

        try:
            with torch.inference_mode(), self._device.active():
                return self._candidates(queries, wanted)
        except self._device.failures as error:
            raise BackendUnavailable(f"device {self._device.name} failed", actual=error) from error

    def _candidates(self, queries: Queries, wanted: Wanted) -> list[Candidates]:
        n_allowed = self._n_live if wanted.allowed is None else int(np.count_nonzero(wanted.allowed))
        batch = max(1, _BATCH_PAIRS // max(1, min(wanted.n, n_allowed)))
        found: list[Candidates] = []
        for first in range(0, len(queries), batch):
            here = self._here(queries[first : first + batch])
            if n_allowed <= wanted.n:
                found += self._all(here, first, wanted)
            elif self._lists is None:
                found += self._scanned(here, first, wanted)
            else:
                found += self._listed(here, first, wanted, self._mask(wanted))
        return found

    def _here(self, queries: Queries) -> torch.Tensor:
        """(n, dim) float32 queries on the device."""
        from quarry.engine.gpu.transfer import send

        if isinstance(queries, DeviceVectors):
            return queries.values.to(self._device.place)
        return send(queries, self._device.place)

    def _all(self, queries: torch.Tensor, first: int, wanted: Wanted) -> list[Candidates]:
        """All documents that may be found; `first` is the number of the first query."""
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download, send

        allowed = self._all_allowed(wanted)
        if self._final is None:
            check_numbers(download(usable_queries(queries))[0], first)
            return [Candidates(allowed, -np.inf)] * len(queries)
        docs = send(allowed, self._device.place).expand(len(queries), -1)
        usable, scores = download(usable_queries(queries), self._final.document_scores(queries, docs, wanted.beta))
        check_numbers(usable, first)
        return [Candidates(allowed, -np.inf, each) for each in scores]

    def _scanned(self, queries: torch.Tensor, first: int, wanted: Wanted) -> list[Candidates]:
        """Of more than `wanted.n` the best by their centroids, with their final scores."""
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download

        assert self._final is not None
        docs, ceilings = self._scan.find(queries, wanted.n, self._mask(wanted), wanted.beta)
        scores = self._final.document_scores(queries, docs, wanted.beta)
        usable, *columns = download(usable_queries(queries), docs, ceilings, scores)
        check_numbers(usable, first)
        return [Candidates(doc, float(ceiling), score) for doc, ceiling, score in zip(*columns, strict=True)]

    def _all_allowed(self, wanted: Wanted) -> Docs:
        return np.flatnonzero(self._live if wanted.allowed is None else wanted.allowed)

    def _mask(self, wanted: Wanted) -> torch.Tensor | None:
        """(n_docs,) bool on the device, the documents that may be found; None: all."""
        from quarry.engine.gpu.transfer import send

        if wanted.allowed is None:
            return self._live_here
        return send(wanted.allowed, self._device.place)

    def _listed(
        self, queries: torch.Tensor, first: int, wanted: Wanted, mask: torch.Tensor | None
    ) -> list[Candidates]:
        """Of more than `wanted.n` the best by their codes.

        Where the probed lists hold fewer than `wanted.k`, more lists are read.
        """
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download, send

        assert self._lists is not None
        nlist = self._lists.nlist
        nprobe = min(wanted.nprobe or self._lists.default_nprobe(wanted.k), nlist)
        docs, counts = self._lists.find(queries, wanted.n, nprobe, mask)
        scored = [] if self._final is None else [self._final.document_scores(queries, docs, wanted.beta)]
        usable, n_found, *columns = download(usable_queries(queries), counts, docs, *scored)
        check_numbers(usable, first)
        found = [_of_lists(*each) for each in zip(n_found.tolist(), *columns, strict=True)]
        short = np.flatnonzero(n_found < wanted.k)
        if len(short):
            more = replace(wanted, nprobe=min(2 * nprobe, nlist))
            some = queries[send(short, queries.device)]
            for number, each in zip(short.tolist(), self._listed(some, 0, more, mask), strict=True):
                found[number] = each
        return found


def _of_lists(n: int, docs: Docs, scores: npt.NDArray[np.float32] | None = None) -> Candidates:
    """The first n documents, those of the probed lists."""
    return Candidates(docs[:n], np.inf, None if scores is None else scores[:n])


def _rows_bytes(segment: OpenSegment) -> int:
    """Bytes that the centroids take on a device; 0 where they are not stored."""
    table, n_docs = segment.reader.centroids, segment.reader.n_docs
    if table.kind == "none":
        return 0
    row_bytes = table.dim + 4 if table.kind == "int8" else 2 * table.dim
    return table.n_rows * row_bytes + 8 * (n_docs + 1) + 5 * n_docs


def _lists_bytes(segment: OpenSegment) -> int:
    """Bytes that the codes take on a device; 0 where there are none."""
    lists, quantizer = segment.reader.lists, segment.quantizer
    if lists is None or quantizer is None:
        return 0
    n_rows, n_docs = segment.reader.n_rows, segment.reader.n_docs
    tables = quantizer.coarse.nbytes + quantizer.score_codebook.nbytes
    tables += 0 if quantizer.rotation is None else quantizer.rotation.nbytes
    n_bytes = n_rows * (lists.code_bytes + 4) + tables + 8 * (quantizer.nlist + 1) + n_docs
    if segment.reader.centroids.kind == "none":  # where each row's code is, and where each document's rows start
        n_bytes += 4 * n_rows + 8 * (n_docs + 1)
    return n_bytes
