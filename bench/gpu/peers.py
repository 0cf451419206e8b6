"""Measures torch, FAISS and cuVS on the same centroids, as single vectors without documents.

FAISS and cuVS need a GPU and have not been run yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from bench.gpu.harness import guarded, median_ms
from bench.gpu.sizes import Size, make_queries
from bench.gpu.synthetic import SyntheticTable
from bench.harness.records import Record
from quarry.engine.gpu.transfer import upload

__all__ = ["measure_peers"]

_N_BEST = 300
_ADDED_ROWS = 1 << 18
_PQ_BITS = 8  # the only size that FAISS has on a GPU
_NPROBE_SHARE = 64  # share of probed lists, as in bench.gpu.sizes
Search = Callable[[torch.Tensor, int], object]


def measure_peers(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield search times of each library, or why it could not be measured."""
    table = SyntheticTable(size.lengths, size.dim, "float16")
    builders = {"torch": _build_torch, "faiss flat": _build_faiss, "faiss IVF-PQ": _build_faiss_lists}
    for name, build in {**builders, "cuvs brute force": _build_cuvs, "cuvs IVF-PQ": _build_cuvs_lists}.items():
        about: Record = {"what": f"peer {name}", "stored": "float16", "n_rows": table.n_rows, "dim": size.dim}
        yield from guarded(about, partial(_time_search, build, table, place, size), (ImportError, AttributeError))


def _time_search(
    build: Callable[[SyntheticTable, torch.device], Search], table: SyntheticTable, place: torch.device, size: Size
) -> Iterator[Record]:
    search = build(table, place)
    for batch in size.batches:
        queries = torch.from_numpy(make_queries(batch, size.dim)).to(place)
        ms = median_ms(partial(search, queries, _N_BEST), place, size.n_calls)
        yield {"batch": batch, "ms": ms, "queries_s": batch / ms * 1e3}


def _build_torch(table: SyntheticTable, place: torch.device) -> Search:
    """A matrix product and `topk`, which writes all scores to memory."""
    kind = torch.float16 if place.type == "cuda" else torch.float32
    rows = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place).to(kind)
    return lambda queries, n: (queries.to(kind) @ rows.T).topk(n, dim=1)


def _build_faiss(table: SyntheticTable, place: torch.device) -> Search:
    """`GpuIndexFlatIP`, vectors in float16."""
    import faiss

    settings = faiss.GpuIndexFlatConfig()
    settings.useFloat16, settings.device = True, place.index or 0
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), table.dim, settings)
    for low in range(0, table.n_rows, _ADDED_ROWS):
        high = min(low + _ADDED_ROWS, table.n_rows)
        index.add(table.stored_slice(low, high)[0].astype(np.float32))
    return lambda queries, n: index.search(queries.cpu().numpy(), n)


def _build_cuvs(table: SyntheticTable, place: torch.device) -> Search:
    """CuVS brute force, vectors in float16."""
    from cuvs.neighbors import brute_force

    rows = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place)
    index = brute_force.build(rows, metric="inner_product")
    return lambda queries, n: brute_force.search(index, queries.half(), n)


def _build_faiss_lists(table: SyntheticTable, place: torch.device) -> Search:
    """`GpuIndexIVFPQ` with codes of dim / 8 bytes; scores are those of the codes."""
    import faiss

    settings = faiss.GpuIndexIVFPQConfig()
    settings.device = place.index or 0
    nlist = _nlist(table)
    index = faiss.GpuIndexIVFPQ(
        faiss.StandardGpuResources(),
        table.dim,
        nlist,
        table.dim // 8,
        _PQ_BITS,
        faiss.METRIC_INNER_PRODUCT,
        settings,
    )
    index.train(table.stored_slice(0, min(_ADDED_ROWS, table.n_rows))[0].astype(np.float32))
    for low in range(0, table.n_rows, _ADDED_ROWS):
        index.add(table.stored_slice(low, min(low + _ADDED_ROWS, table.n_rows))[0].astype(np.float32))
    index.nprobe = max(1, nlist // _NPROBE_SHARE)
    return lambda queries, n: index.search(queries.cpu().numpy(), n)


def _build_cuvs_lists(table: SyntheticTable, place: torch.device) -> Search:
    """CuVS IVF-PQ with codes of the same size."""
    from cuvs.neighbors import ivf_pq

    nlist = _nlist(table)
    rows = upload(lambda low, high: table.stored_slice(low, high)[0], table.n_rows, place)
    settings = ivf_pq.IndexParams(
        n_lists=nlist,
        metric="inner_product",
        pq_dim=table.dim // 8,
        pq_bits=_PQ_BITS,
        kmeans_trainset_fraction=0.1,
    )
    index = ivf_pq.build(settings, rows)
    probing = ivf_pq.SearchParams(n_probes=max(1, nlist // _NPROBE_SHARE))
    return lambda queries, n: ivf_pq.search(probing, index, queries.half(), n)


def _nlist(table: SyntheticTable) -> int:
    return max(16, math.isqrt(table.n_rows))
