"""Measures the GPU backend: stage 1, stage 2 and both, by batch size, with and without Triton kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, list_kernel_settings, make_device, median_ms, open_backend
from bench.gpu.synthetic import SyntheticTable, make_quantizer, make_segment
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.backends.gpu.scan import DeviceScan
from quarry.engine.backends.protocol import SearchParameters

__all__ = ["Size", "make_queries", "measure_sizes"]

_N_HITS, _N_CANDIDATES = 10, 100
_CODE_BYTES = 48
_NPROBE_SHARE = 64  # share of probed lists
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    """The sizes of a measurement.

    Attributes:
        n_rows: number of centroids.
        dim: dimension of a vector.
        per_document: number of centroids per document.
        batches: numbers of queries per batch.
        n_calls: number of calls to take the median of.
        n_documents: number of texts to encode at once.
        checked_batches: numbers of queries per batch in comparisons with oracles.
    """

    n_rows: int
    dim: int
    per_document: int
    batches: tuple[int, ...]
    n_calls: int
    n_documents: int
    checked_batches: tuple[int, ...]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of centroids of each document, (n_docs,) int64."""
        return np.full(self.n_rows // self.per_document, self.per_document)


def make_queries(n: int, dim: int) -> Floats:
    """Return random queries with L2 norm 1, (n, dim) float32."""
    queries = np.random.default_rng(n).standard_normal((n, dim))
    scaled: Floats = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def measure_sizes(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield a record for each timing: milliseconds, bytes and operations per second."""
    first, *others = list_kernel_settings(place)
    for kernels in (first, *others):  # without kernels only a part, to compare
        for kind in ("float16", "int8") if kernels == first else ("float16",):
            about: Record = {"stored": kind, "kernels": kernels, "n_rows": size.n_rows, "dim": size.dim}
            yield from guarded(about, partial(_time_scan, place, size, kind, kernels=kernels))
        for nbits in (4, 8) if kernels == first else (4,):
            about = {"what": "lists", "nbits": nbits, "kernels": kernels, "n_rows": size.n_rows, "dim": size.dim}
            yield from guarded(about, partial(_time_lists, place, size, nbits, kernels=kernels))


def _time_scan(place: torch.device, size: Size, kind: str, *, kernels: bool) -> Iterator[Record]:
    """Measure a scan of all centroids: the backend, then its two stages one by one."""
    table = SyntheticTable(size.lengths, size.dim, kind)
    started = time.perf_counter()
    backend = open_backend(place, make_segment(table), kernels=kernels)
    seconds = time.perf_counter() - started
    yield {"what": "open", "s": seconds, "device_bytes": backend.device_bytes}  # includes creating the rows
    yield from _for_each_batch(size, partial(_time_both_stages, backend, table, place, size))
    del backend  # frees memory for the rows below
    device = make_device(place, kernels=kernels)
    rows = DeviceRows(table, device)  # type: ignore[arg-type]
    scan = DeviceScan(rows, device)
    yield from _for_each_batch(size, partial(_time_single_stages, rows, scan, table, place, size))


def _for_each_batch(size: Size, measure: Callable[[int, float | None], Iterator[Record]]) -> Iterator[Record]:
    for batch in size.batches:
        for beta in (None, 8.0):
            yield from guarded({"batch": batch, "beta": beta}, partial(measure, batch, beta))


def _time_both_stages(
    backend: GpuBackend, table: SyntheticTable, place: torch.device, size: Size, batch: int, beta: float | None
) -> Iterator[Record]:
    queries = make_queries(batch, size.dim)
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, beta=beta)
    ms = median_ms(partial(backend.candidates, queries, parameters), place, size.n_calls)
    yield {"what": "both stages", "ms": ms, "queries_s": batch / ms * 1e3, **_rates(table, batch, ms)}


def _time_single_stages(
    rows: DeviceRows,
    scan: DeviceScan,
    table: SyntheticTable,
    place: torch.device,
    size: Size,
    batch: int,
    beta: float | None,
) -> Iterator[Record]:
    queries = torch.from_numpy(make_queries(batch, size.dim)).to(place)
    find = partial(scan.find, queries, _N_CANDIDATES, None, beta)
    with torch.inference_mode():
        ms = median_ms(find, place, size.n_calls)
        docs, _ = find()
    yield {"what": "stage 1", "ms": ms, **_rates(table, batch, ms)}
    with torch.inference_mode():
        ms = median_ms(partial(rows.document_scores, queries, docs, beta), place, size.n_calls)
    yield {"what": "stage 2", "ms": ms, "n_candidates": _N_CANDIDATES}


def _rates(table: SyntheticTable, batch: int, ms: float) -> dict[str, float]:
    """Return the rates of a scan of the whole table in `ms` milliseconds."""
    return {"gb_s": table.n_bytes / ms / 1e6, "tflop_s": 2.0 * table.n_rows * table.dim * batch / ms / 1e9}


def _time_lists(place: torch.device, size: Size, nbits: int, *, kernels: bool) -> Iterator[Record]:
    """Time both stages with inverted lists of random codes, which take as long as real ones."""
    nlist = max(16, round(size.n_rows**0.5))
    code_bytes = min(_CODE_BYTES, size.dim // 8)
    table = SyntheticTable(size.lengths, size.dim, "none")
    backend = open_backend(
        place, make_segment(table, make_quantizer(size.dim, nlist, code_bytes, nbits)), kernels=kernels
    )
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, max(1, nlist // _NPROBE_SHARE), 1)
    about: Record = {"code_bytes": code_bytes, "nlist": nlist, "nprobe": parameters.nprobe}
    for batch in size.batches:
        ms = median_ms(partial(backend.candidates, make_queries(batch, size.dim), parameters), place, size.n_calls)
        numbers = {"ms": ms, "queries_s": batch / ms * 1e3, "device_bytes": backend.device_bytes}
        yield {**about, "batch": batch, **numbers}
