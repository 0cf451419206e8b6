"""Stage 1, and if possible stage 2, on a GPU with torch, and with Triton if it is installed.

If the centroids of a segment fit into the memory budget, all of them are scanned, and final scores are computed on
the device. Otherwise its inverted lists are searched; final scores are computed on the device if the segment has
codes only, and on the CPU if it has centroids, or if Euclidean distances are compared.

The same code runs on torch's CPU device, for tests. It has not been run on a CUDA device yet; its kernels compile.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from quarry.engine.backends.gpu.length_terms import length_terms_bytes
from quarry.engine.backends.protocol import (
    Candidates,
    Resources,
    ScoredCandidates,
    SearchParameters,
    UnscoredCandidates,
)
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.scoring.query_vectors import Queries, VectorsOnDevice, check_numbers, to_host_vectors
from quarry.engine.scoring.ranking import Exactness
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import OpenSegment

if TYPE_CHECKING:
    import torch

    from quarry.engine.backends.gpu.lists import DeviceLists
    from quarry.engine.backends.gpu.rows import DocumentScores

__all__ = ["GpuBackend"]

_HOST_DOC_BYTES = 13  # for a document: a flag, cumulated numbers of rows, its number in a group
_BATCH_PAIRS = 1 << 20  # pairs of a query and a document whose scores are downloaded together


class GpuBackend:
    """One segment on a device; its memory is freed with the last reference to the backend.

    Args:
        segment: the segment, which is copied to the device.
        resources: the device with its memory budget.

    Attributes:
        device_bytes: memory of the device in bytes.
        resident_bytes: main memory in bytes.

    Raises:
        ImportError: torch is not installed.
        BackendUnavailable: there is no such device.
        InvalidSetting: the segment does not fit into the remaining budget of the device.
    """

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        device = resources.device or Device()
        assert isinstance(device, Device)
        self._device = device
        self._live = segment.live_passages
        self._n_live = int(self._live.sum())
        self._live_mask: torch.Tensor | None = None  # mask on the device, if documents are deleted
        self._final: DocumentScores | None = None  # None: stage 2 runs on the CPU
        self._lists: DeviceLists | None = None  # None: all centroids are scanned
        self.resident_bytes = self.needed_bytes(segment)
        self.device_bytes = self._reserve(segment)
        weakref.finalize(self, self._device.release, self.device_bytes)
        self._upload(segment)

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`: flags of live documents, and tables for reading them in batches."""
        return _HOST_DOC_BYTES * segment.reader.passages.n_passages

    def _reserve(self, segment: OpenSegment) -> int:
        """Reserve memory for the centroids, or if they do not fit for the codes; return the bytes."""
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
                    self._upload_rows(segment)
                else:
                    self._upload_lists(segment)
                if self._n_live < len(self._live):
                    self._live_mask = torch.from_numpy(self._live).to(self._device.place)
        except torch.OutOfMemoryError as error:
            raise InvalidSetting(
                f"device {self._device.name} has less memory than its budget",
                path=segment.reader.path,
                expected=f"{self.device_bytes} bytes",
                actual=error,
            ) from error

    def _upload_rows(self, segment: OpenSegment) -> None:
        from quarry.engine.backends.gpu.rows import DeviceRows
        from quarry.engine.backends.gpu.scan import DeviceScan
        from quarry.engine.backends.gpu.scores import fastest_scores

        self._final = rows = DeviceRows(segment.reader.centroids, self._device, segment.distance_dim)
        self._scan = DeviceScan(rows, fastest_scores(rows, self._device), self._device.work_bytes)

    def _upload_lists(self, segment: OpenSegment) -> None:
        from quarry.engine.backends.gpu.coded_rows import CodedRows
        from quarry.engine.backends.gpu.lists import DeviceLists

        self._lists = DeviceLists(segment, self._device)
        if _scores_codes(segment):
            self._final = CodedRows(segment, self._lists, self._device)

    def accepts(self, queries: VectorsOnDevice) -> bool:
        """Return whether queries are on a device of the same type."""
        return isinstance(queries, DeviceVectors) and queries.values.device.type == self._device.place.type

    def candidates(self, queries: Queries, parameters: SearchParameters) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.DeviceBackend`.

        If centroids are on the device, exactly `parameters.n` candidates, or all if there are fewer. Documents,
        final scores and upper bounds are downloaded together, once for each batch of queries, and again for those
        queries whose lists hold fewer than `parameters.k` documents.

        Raises:
            InvalidQuery: a number of a query on a device is not finite, or above 1e18.
            BackendUnavailable: the device failed.
        """
        import torch

        try:
            with torch.inference_mode(), self._device.active():
                return self._search_batches(queries, parameters)
        except self._device.failures as error:
            raise BackendUnavailable(f"device {self._device.name} failed", actual=error) from error

    def _search_batches(self, queries: Queries, parameters: SearchParameters) -> list[Candidates]:
        n_allowed = self._n_live if parameters.allowed is None else int(np.count_nonzero(parameters.allowed))
        batch = max(1, _BATCH_PAIRS // max(1, min(parameters.n, n_allowed)))
        candidates: list[Candidates] = []
        for first in range(0, len(queries), batch):
            stop_if_cancelled()
            batch_queries = self._to_device(queries[first : first + batch])
            if n_allowed <= parameters.n:
                candidates += self._score_all(batch_queries, first, parameters)
            elif self._lists is None:
                candidates += self._scan_rows(batch_queries, first, parameters)
            else:
                candidates += self._search_lists(batch_queries, first, parameters, self._mask(parameters))
        return candidates

    def _to_device(self, queries: Queries) -> torch.Tensor:
        """Return (n, dim) float32 queries on the device."""
        from quarry.engine.gpu.transfer import send

        if isinstance(queries, DeviceVectors):
            return queries.values.to(self._device.place)
        return send(to_host_vectors(queries), self._device.place)

    def _score_all(self, queries: torch.Tensor, first: int, parameters: SearchParameters) -> list[Candidates]:
        """Return all allowed documents; `first` is the number of the first query."""
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download, send

        allowed = self._all_allowed(parameters)
        if self._final is None:
            check_numbers(download(usable_queries(queries))[0], first)
            return [UnscoredCandidates(allowed, Exactness.EXACT)] * len(queries)
        docs = send(allowed, self._device.place).expand(len(queries), -1)
        usable, scores = download(
            usable_queries(queries), self._final.document_scores(queries, docs, parameters.beta)
        )
        check_numbers(usable, first)
        return [ScoredCandidates(allowed, each, -np.inf) for each in scores]

    def _scan_rows(self, queries: torch.Tensor, first: int, parameters: SearchParameters) -> list[Candidates]:
        """Return the best `parameters.n` of more documents by all their centroids, with final scores."""
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download

        assert self._final is not None
        docs, upper_bounds = self._scan.find(queries, parameters.n, self._mask(parameters), parameters.beta)
        scores = self._final.document_scores(queries, docs, parameters.beta)
        usable, *columns = download(usable_queries(queries), docs, upper_bounds, scores)
        check_numbers(usable, first)
        return [ScoredCandidates(doc, score, float(bound)) for doc, bound, score in zip(*columns, strict=True)]

    def _all_allowed(self, parameters: SearchParameters) -> Int64Array:
        return np.flatnonzero(self._live if parameters.allowed is None else parameters.allowed)

    def _mask(self, parameters: SearchParameters) -> torch.Tensor | None:
        """Return the allowed documents on the device: (n_docs,) bool, or None for all."""
        from quarry.engine.gpu.transfer import send

        if parameters.allowed is None:
            return self._live_mask
        return send(parameters.allowed, self._device.place)

    def _search_lists(
        self, queries: torch.Tensor, first: int, parameters: SearchParameters, mask: torch.Tensor | None
    ) -> list[Candidates]:
        """Return the best `parameters.n` of more documents by their codes.

        For queries whose lists hold fewer than `parameters.k` documents, more lists are read.
        """
        from quarry.engine.backends.gpu.queries import usable_queries
        from quarry.engine.gpu.transfer import download, send

        assert self._lists is not None
        nlist = self._lists.nlist
        nprobe = min(parameters.nprobe or self._lists.default_nprobe(parameters.k), nlist)
        docs, counts = self._lists.find(queries, parameters.n, nprobe, mask)
        scored = [] if self._final is None else [self._final.document_scores(queries, docs, parameters.beta)]
        usable, n_found, *columns = download(usable_queries(queries), counts, docs, *scored)
        check_numbers(usable, first)
        candidates = [_first_found(*each) for each in zip(n_found.tolist(), *columns, strict=True)]
        short = np.flatnonzero(n_found < parameters.k)
        if len(short):
            wider = replace(parameters, nprobe=min(2 * nprobe, nlist))
            some = queries[send(short, queries.device)]
            for number, each in zip(short.tolist(), self._search_lists(some, 0, wider, mask), strict=True):
                candidates[number] = each
        return candidates


def _first_found(n: int, docs: Int64Array, scores: Float32Array | None = None) -> Candidates:
    """Return the first n documents, those in the lists that were read."""
    if scores is None:
        return UnscoredCandidates(docs[:n], Exactness.APPROXIMATE)
    return ScoredCandidates(docs[:n], scores[:n], np.inf)


def _rows_bytes(segment: OpenSegment) -> int:
    """Return the device memory of the centroids in bytes; 0 if they are not stored."""
    table, n_docs = segment.reader.centroids, segment.reader.passages.n_passages
    if table.kind == "none":
        return 0
    row_bytes = table.dim + 4 if table.kind == "int8" else 2 * table.dim
    if segment.distance_dim is not None:
        row_bytes += 4  # squared norms
    return table.n_rows * row_bytes + 8 * (n_docs + 1) + 5 * n_docs


def _scores_codes(segment: OpenSegment) -> bool:
    """Return whether codes give the final scores, on the device."""
    return segment.reader.centroids.kind == "none" and segment.distance_dim is None


def _lists_bytes(segment: OpenSegment) -> int:
    """Return the device memory of the codes in bytes; 0 if there are none."""
    lists, quantizer = segment.reader.lists, segment.quantizer
    if lists is None or quantizer is None:
        return 0
    n_rows, n_docs = segment.reader.n_rows, segment.reader.passages.n_passages
    tables = quantizer.coarse.nbytes + quantizer.score_codebook.nbytes
    tables += 0 if quantizer.rotation is None else quantizer.rotation.nbytes
    n_bytes = n_rows * (lists.code_bytes + 4) + tables + 8 * (quantizer.nlist + 1) + n_docs
    if _scores_codes(segment):  # the place of each code, and the offset of each document
        n_bytes += 4 * n_rows + 8 * (n_docs + 1) + length_terms_bytes(quantizer)
    return n_bytes
