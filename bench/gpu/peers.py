"""Measures torch, FAISS and cuVS on the same centroids, as single vectors without documents.

FAISS and cuVS need a GPU and have not been run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, median_ms
from bench.harness.records import Record

if TYPE_CHECKING:
    from bench.gpu.sizes import Size

__all__ = ["measure_peers"]

_N_BEST = 300
_ADDED_ROWS = 1 << 18
Floats = npt.NDArray[np.float32]
Search = Callable[[torch.Tensor, int], object]


def measure_peers(rows: torch.Tensor, size: Size, queries: Mapping[int, Floats]) -> Iterator[Record]:
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
