"""Measures the GPU backend over 10 million centroids, by stage and batch size, beside other libraries.

Centroids are copied to the device once for each way to store them, and codes once: kernels and plain torch, one
stage and both, codes of 4 and of 8 bits, and other libraries are measured on the same memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, list_kernel_settings, median_ms, open_backend, use_kernels
from bench.gpu.synthetic import SyntheticTable, make_quantizer, make_segment
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.gpu.quantizer import DeviceQuantizer
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.backends.protocol import SearchParameters

__all__ = ["DRY", "FULL", "Size", "make_queries", "measure_sizes"]

_N_ROWS, _DIM, _PER_DOCUMENT = 10_000_000, 384, 4
_N_HITS, _N_CANDIDATES = 10, 100
_CODE_BYTES = 48
_NPROBE_SHARE = 64  # share of probed lists
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    """The sizes of a run.

    Attributes:
        divisor: divides numbers of rows, documents and texts: 1, or 1000 in a dry run.
        batches: numbers of queries per batch.
        n_calls: number of calls to take the median of.
        checked_batches: numbers of queries per batch in comparisons with oracles.
    """

    divisor: int
    batches: tuple[int, ...]
    n_calls: int
    checked_batches: tuple[int, ...]

    @property
    def is_dry(self) -> bool:
        """Whether this is a dry run."""
        return self.divisor > 1

    def count(self, n: int, least: int = 1) -> int:
        """Return a number of the full run in this run."""
        return max(least, n // self.divisor)


FULL = Size(divisor=1, batches=(1, 256), n_calls=20, checked_batches=(1, 7, 256))
DRY = Size(divisor=1000, batches=(1, 8), n_calls=1, checked_batches=(1, 8))


def make_queries(n: int, dim: int) -> Floats:
    """Return random queries with L2 norm 1, (n, dim) float32."""
    queries = np.random.default_rng(n).standard_normal((n, dim))
    scaled: Floats = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def measure_sizes(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield a record for each timing: milliseconds, bytes and operations per second."""
    del work
    lengths = np.full(size.count(_N_ROWS) // _PER_DOCUMENT, _PER_DOCUMENT)
    for kind in ("float16", "int8"):
        table = SyntheticTable(lengths, _DIM, kind)
        about: Record = {"stored": kind, "n_rows": table.n_rows, "dim": _DIM}
        yield from guarded(about, partial(_time_scans, place, size, table))
    about = {"what": "lists", "n_rows": int(lengths.sum()), "dim": _DIM}
    yield from guarded(about, partial(_time_lists, place, size, SyntheticTable(lengths, _DIM, "none")))


def _time_scans(place: torch.device, size: Size, table: SyntheticTable) -> Iterator[Record]:
    """Measure scans of all centroids, float16 also in plain torch and by other libraries."""
    started = time.perf_counter()
    backend = open_backend(place, make_segment(table), kernels=True)
    yield {"what": "open", "s": time.perf_counter() - started, "device_bytes": backend.device_bytes}
    for kernels in list_kernel_settings(place)[: None if table.kind == "float16" else 1]:
        use_kernels(backend, place, kernels=kernels)
        for batch in size.batches:
            for beta in (None, 8.0):
                about: Record = {"kernels": kernels, "batch": batch, "beta": beta}
                yield from guarded(about, partial(_time_stages, backend, table, place, size, batch, beta))
    if table.kind == "float16":
        assert isinstance(backend._final, DeviceRows)
        yield from _measure_peers(backend._final.values, size, {n: make_queries(n, _DIM) for n in size.batches})


def _time_stages(
    backend: GpuBackend, table: SyntheticTable, place: torch.device, size: Size, batch: int, beta: float | None
) -> Iterator[Record]:
    """Measure both stages with queries of main memory, then each alone with queries of the device."""
    queries = make_queries(batch, _DIM)
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, beta=beta)
    ms = median_ms(partial(backend.candidates, queries, parameters), place, size.n_calls)
    yield {"what": "both stages", "ms": ms, "queries_s": batch / ms * 1e3, **_rates(table, batch, ms)}
    assert backend._final is not None
    there = torch.from_numpy(queries).to(place)
    find = partial(backend._scan.find, there, _N_CANDIDATES, None, beta)
    with torch.inference_mode():
        ms = median_ms(find, place, size.n_calls)
        docs, _ = find()
    yield {"what": "stage 1", "ms": ms, **_rates(table, batch, ms)}
    with torch.inference_mode():
        ms = median_ms(partial(backend._final.document_scores, there, docs, beta), place, size.n_calls)
    yield {"what": "stage 2", "ms": ms, "n_candidates": _N_CANDIDATES}


def _rates(table: SyntheticTable, batch: int, ms: float) -> dict[str, float]:
    """Return the rates of a scan of the whole table in `ms` milliseconds."""
    return {"gb_s": table.n_bytes / ms / 1e6, "tflop_s": 2.0 * table.n_rows * table.dim * batch / ms / 1e9}


def _time_lists(place: torch.device, size: Size, table: SyntheticTable) -> Iterator[Record]:
    """Time both stages with inverted lists of random codes, which take as long as real ones."""
    nlist = max(16, round(table.n_rows**0.5))
    quantizers = {nbits: make_quantizer(_DIM, nlist, _CODE_BYTES, nbits) for nbits in (4, 8)}
    backend = open_backend(place, make_segment(table, quantizers[4]), kernels=True)
    assert backend._lists is not None
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, max(1, nlist // _NPROBE_SHARE), 1)
    about: Record = {"code_bytes": _CODE_BYTES, "nlist": nlist, "nprobe": parameters.nprobe}
    for nbits, quantizer in quantizers.items():
        backend._lists.quantizer = DeviceQuantizer(quantizer, place)  # the same bytes as other codes
        for kernels in list_kernel_settings(place)[: None if nbits == 4 else 1]:
            use_kernels(backend, place, kernels=kernels)
            for batch in size.batches:
                search = partial(backend.candidates, make_queries(batch, _DIM), parameters)
                ms = median_ms(search, place, size.n_calls)
                numbers = {"ms": ms, "queries_s": batch / ms * 1e3, "device_bytes": backend.device_bytes}
                yield {**about, "nbits": nbits, "kernels": kernels, "batch": batch, **numbers}


_N_BEST = 300
_ADDED_ROWS = 1 << 18
Search = Callable[[torch.Tensor, int], object]


def _measure_peers(rows: torch.Tensor, size: Size, queries: Mapping[int, Floats]) -> Iterator[Record]:
    """Yield search times of each library, or why it could not be measured.

    Args:
        rows: (n, dim) float16 on the device.
        size: the size of the run.
        queries: (batch, dim) float32 by their number.
    """
    builders = {"torch": _build_torch, "faiss flat": _build_faiss, "cuvs brute force": _build_cuvs}
    for name, build in builders.items():
        measure = partial(_time_search, build, rows, size, queries)
        yield from guarded({"what": f"peer {name}"}, measure, (ImportError, AttributeError))


def _time_search(
    build: Callable[[torch.Tensor], Search], rows: torch.Tensor, size: Size, queries: Mapping[int, Floats]
) -> Iterator[Record]:
    search = build(rows)
    for batch, some in queries.items():
        call = partial(search, torch.from_numpy(some).to(rows.device), _N_BEST)
        ms = median_ms(call, rows.device, size.n_calls)
        yield {"batch": batch, "ms": ms, "queries_s": batch / ms * 1e3}


def _build_torch(rows: torch.Tensor) -> Search:
    """A matrix product and `topk`, which writes all scores to memory."""
    return lambda queries, n: (queries.to(rows.dtype) @ rows.T).topk(min(n, len(rows)), dim=1)


def _build_faiss(rows: torch.Tensor) -> Search:
    """`GpuIndexFlatIP`, vectors in float16."""
    import faiss

    settings = faiss.GpuIndexFlatConfig()
    settings.useFloat16, settings.device = True, rows.device.index or 0
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), rows.shape[1], settings)
    for part in rows.split(_ADDED_ROWS):
        index.add(part.float().cpu().numpy())
    return lambda queries, n: index.search(queries.cpu().numpy(), n)


def _build_cuvs(rows: torch.Tensor) -> Search:
    """CuVS brute force, vectors in float16."""
    from cuvs.neighbors import brute_force

    index = brute_force.build(rows, metric="inner_product")
    return lambda queries, n: brute_force.search(index, queries.half(), n)
