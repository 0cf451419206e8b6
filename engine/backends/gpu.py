"""Stage 1 on a GPU, and stage 2 where the centroids fit into its memory: torch, with Triton where it is there.

Where the centroids of a segment fit into the memory budget, all of them are scanned, and the final scores come
from the device too. Where only the codes fit, the inverted lists are read, and stage 2 stays on the CPU.

The same code runs on torch's CPU device, where its tests run. It has not run on a CUDA device yet, though its
kernels compile for one.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backends.protocol import Candidates, Wanted
from engine.options import OpenOptions
from formats.errors import InvalidSetting
from formats.snapshot import OpenSegment

if TYPE_CHECKING:
    import torch

    from engine.gpu.lists import DeviceLists
    from engine.gpu.rows import DeviceRows

__all__ = ["GpuBackend"]

_BATCH_PAIRS = 1 << 22  # of a query and a document, rescored at a time

Docs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class GpuBackend:
    """One segment on a device; its memory is free again when the last reference to the backend goes.

    Args:
        segment: is copied to the device.
        options: say which device, and how much of its memory.

    Attributes:
        device_bytes: of the device's memory.
        resident_bytes: of main memory.

    Raises:
        ImportError: there is no torch.
        BackendUnavailable: there is no such device.
        InvalidSetting: the segment does not fit into what is left of the device's budget.
    """

    def __init__(self, segment: OpenSegment, options: OpenOptions) -> None:
        self._device = options.accelerator
        self._live = np.ones(segment.reader.n_docs, bool) if segment.deleted is None else ~segment.deleted
        self._n_live = int(self._live.sum())
        self._live_here: torch.Tensor | None = None  # on the device, where documents are deleted
        self._rows: DeviceRows | None = None
        self._lists: DeviceLists | None = None
        self.resident_bytes = segment.reader.n_docs  # which documents are live
        self.device_bytes = self._reserved(segment)
        weakref.finalize(self, self._device.release, self.device_bytes)
        self._upload(segment)

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `engine.backends.protocol.BackendType`: next to nothing of the main memory."""
        return segment.reader.n_docs

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
        from engine.gpu.rows import DeviceRows
        from engine.gpu.scan import DeviceScan

        self._rows = DeviceRows(segment.reader.centroids, self._device)
        self._scan = DeviceScan(self._rows, self._device)

    def _take_lists(self, segment: OpenSegment) -> None:
        from engine.gpu.lists import DeviceLists

        self._lists = DeviceLists(segment, self._device)

    def candidates(self, queries: Floats, wanted: Wanted) -> list[Candidates]:
        """See `engine.backends.protocol.Backend`.

        Where the centroids are on the device, exactly `wanted.n` where there are as many, with final scores.
        """
        import torch

        n_allowed = self._n_live if wanted.allowed is None else int(np.count_nonzero(wanted.allowed))
        with torch.inference_mode(), self._device.active():
            if n_allowed <= wanted.n:
                docs = np.flatnonzero(self._live if wanted.allowed is None else wanted.allowed)
                return self._rescored(queries, [docs] * len(queries), np.full(len(queries), -np.inf), wanted)
            mask = self._live_here
            if wanted.allowed is not None:
                mask = torch.tensor(wanted.allowed, device=self._device.place)
            if self._rows is not None:
                found, ceilings = self._scan.find(queries, wanted.n, mask, wanted.beta)
                return self._rescored(queries, list(found), ceilings, wanted)
            return [Candidates(each, np.inf) for each in self._listed(queries, wanted, mask)]

    def _rescored(
        self, queries: Floats, docs: list[Docs], ceilings: npt.NDArray[np.float64], wanted: Wanted
    ) -> list[Candidates]:
        """With final scores where the centroids are here; as many documents for each query."""
        if self._rows is None or not docs:
            return [Candidates(*each) for each in zip(docs, ceilings.tolist(), strict=True)]
        scores: list[Floats] = []
        batch = max(1, _BATCH_PAIRS // max(1, len(docs[0])))
        for low in range(0, len(docs), batch):
            part = np.stack(docs[low : low + batch])
            scores += list(self._rows.document_scores(queries[low : low + batch], part, wanted.beta))
        return [Candidates(*each) for each in zip(docs, ceilings.tolist(), scores, strict=True)]

    def _listed(self, queries: Floats, wanted: Wanted, mask: torch.Tensor | None) -> list[Docs]:
        """Documents by their codes, of more than `wanted.n` that may be found.

        Where the probed lists hold fewer than `wanted.k`, more lists are read.
        """
        assert self._lists is not None
        nlist = self._lists.nlist
        nprobe = min(wanted.nprobe or self._lists.default_nprobe, nlist)
        found, counts = self._lists.find(queries, wanted.n, nprobe, mask)
        docs = [each[:count] for each, count in zip(found, counts.tolist(), strict=True)]
        short = np.flatnonzero(counts < wanted.k)
        if len(short):
            more = replace(wanted, nprobe=min(2 * nprobe, nlist))
            widened = self._listed(queries[short], more, mask)
            for number, each in zip(short.tolist(), widened, strict=True):
                docs[number] = each
        return docs


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
    tables = quantizer.coarse.nbytes + quantizer.score_codebook.nbytes
    tables += 0 if quantizer.rotation is None else quantizer.rotation.nbytes
    return (
        segment.reader.n_rows * (lists.code_bytes + 4) + tables + 8 * (quantizer.nlist + 1) + segment.reader.n_docs
    )
