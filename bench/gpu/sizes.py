"""Measures the GPU backend: stage 1, stage 2 and both, by batch size, with and without kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import device_on, guarded, kernel_settings, median_ms, open_on
from bench.gpu.synthetic import MadeTable, made_quantizer, made_segment
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.backends.gpu.scan import DeviceScan
from quarry.engine.backends.protocol import SearchParameters

__all__ = ["Size", "made_queries", "timings"]

_N_HITS, _N_CANDIDATES = 10, 100
_CODE_BYTES = 48
_NPROBE_SHARE = 64  # one list in so many is read
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        n_rows: centroids.
        dim: dimension of a vector.
        per_document: centroids of each document.
        batches: queries at a time.
        n_calls: calls whose median is taken.
        n_documents: documents of text that become centroids at a time.
    """

    n_rows: int
    dim: int
    per_document: int
    batches: tuple[int, ...]
    n_calls: int
    n_documents: int

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(n_docs,) int64, centroids of each document."""
        return np.full(self.n_rows // self.per_document, self.per_document)


def made_queries(n: int, dim: int) -> Floats:
    """Random queries of length 1: (n, dim) float32."""
    queries = np.random.default_rng(n).standard_normal((n, dim))
    scaled: Floats = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def timings(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield a record for each timing: milliseconds, and the bytes and operations a second that they come to."""
    first, *others = kernel_settings(place)
    for kernels in (first, *others):  # without kernels only what is needed to compare
        for kind in ("float16", "int8") if kernels == first else ("float16",):
            about: Record = {"stored": kind, "kernels": kernels, "n_rows": size.n_rows, "dim": size.dim}
            yield from guarded(about, partial(_scanned, place, size, kind, kernels=kernels))
        for nbits in (4, 8) if kernels == first else (4,):
            about = {"what": "lists", "nbits": nbits, "kernels": kernels, "n_rows": size.n_rows, "dim": size.dim}
            yield from guarded(about, partial(_listed, place, size, nbits, kernels=kernels))


def _scanned(place: torch.device, size: Size, kind: str, *, kernels: bool) -> Iterator[Record]:
    """Measure a scan of all centroids: the backend, then its two stages one by one."""
    table = MadeTable(size.lengths, size.dim, kind)
    started = time.perf_counter()
    backend = open_on(place, made_segment(table), kernels=kernels)
    seconds = time.perf_counter() - started
    yield {"what": "open", "s": seconds, "device_bytes": backend.device_bytes}  # includes making up the rows
    yield from _for_each_batch(size, partial(_both_stages, backend, table, place, size))
    del backend  # its memory is needed for the rows below
    device = device_on(place, kernels=kernels)
    rows = DeviceRows(table, device)  # type: ignore[arg-type]
    scan = DeviceScan(rows, device)
    yield from _for_each_batch(size, partial(_single_stages, rows, scan, table, place, size))


def _for_each_batch(size: Size, measure: Callable[[int, float | None], Iterator[Record]]) -> Iterator[Record]:
    for batch in size.batches:
        for beta in (None, 8.0):
            yield from guarded({"batch": batch, "beta": beta}, partial(measure, batch, beta))


def _both_stages(
    backend: GpuBackend, table: MadeTable, place: torch.device, size: Size, batch: int, beta: float | None
) -> Iterator[Record]:
    queries = made_queries(batch, size.dim)
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, beta=beta)
    ms = median_ms(partial(backend.candidates, queries, parameters), place, size.n_calls)
    yield {"what": "both stages", "ms": ms, "queries_s": batch / ms * 1e3, **_rates(table, batch, ms)}


def _single_stages(
    rows: DeviceRows,
    scan: DeviceScan,
    table: MadeTable,
    place: torch.device,
    size: Size,
    batch: int,
    beta: float | None,
) -> Iterator[Record]:
    queries = torch.from_numpy(made_queries(batch, size.dim)).to(place)
    find = partial(scan.find, queries, _N_CANDIDATES, None, beta)
    with torch.inference_mode():
        ms = median_ms(find, place, size.n_calls)
        docs, _ = find()
    yield {"what": "stage 1", "ms": ms, **_rates(table, batch, ms)}
    with torch.inference_mode():
        ms = median_ms(partial(rows.document_scores, queries, docs, beta), place, size.n_calls)
    yield {"what": "stage 2", "ms": ms, "n_candidates": _N_CANDIDATES}


def _rates(table: MadeTable, batch: int, ms: float) -> dict[str, float]:
    """Return what a scan of the whole table in `ms` milliseconds comes to."""
    return {"gb_s": table.n_bytes / ms / 1e6, "tflop_s": 2.0 * table.n_rows * table.dim * batch / ms / 1e9}


def _listed(place: torch.device, size: Size, nbits: int, *, kernels: bool) -> Iterator[Record]:
    """Inverted lists of random codes, both stages: as much work as with good ones."""
    nlist = max(16, round(size.n_rows**0.5))
    code_bytes = min(_CODE_BYTES, size.dim // 8)
    table = MadeTable(size.lengths, size.dim, "none")
    backend = open_on(
        place, made_segment(table, made_quantizer(size.dim, nlist, code_bytes, nbits)), kernels=kernels
    )
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, max(1, nlist // _NPROBE_SHARE), 1)
    about: Record = {"code_bytes": code_bytes, "nlist": nlist, "nprobe": parameters.nprobe}
    for batch in size.batches:
        ms = median_ms(partial(backend.candidates, made_queries(batch, size.dim), parameters), place, size.n_calls)
        numbers = {"ms": ms, "queries_s": batch / ms * 1e3, "device_bytes": backend.device_bytes}
        yield {**about, "batch": batch, **numbers}
