"""Checks the GPU backend's use of memory: its limit, too little of it, and what closing frees."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from bench.gpu.engine import build_vectors, search_both
from bench.gpu.harness import guarded, open_backend
from bench.gpu.sizes import Size, make_queries
from bench.gpu.synthetic import SyntheticTable, make_segment
from bench.harness.records import Record
from quarry.engine import Engine
from quarry.engine.backends.protocol import SearchParameters
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import BackendUnavailable, InvalidSetting

__all__ = ["check_memory"]

_N_DOCS, _DIM = 100_000, 384
_LIMIT = 600 << 20
_TOO_MUCH = 1 << 50  # bytes, of a tensor that no device holds
_TO_GPU = Thresholds(graph_rows=0)  # every segment is large enough for "auto" to choose a device
_FIND = "quarry.engine.backends.gpu.scan.DeviceScan.find"


def check_memory(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield a record for each check."""
    table = SyntheticTable(np.full(size.count(_N_DOCS), 4), _DIM, "float16")
    n_queries = size.count(300, 8)
    _search(place, table, n_queries)  # libraries allocate workspaces at first use, which they keep
    yield from guarded({"what": "check budget"}, lambda: [_check_limit(place, table, n_queries)])
    path = build_vectors(work / "memory", "ip", 2000)
    yield from guarded({"what": "check out of memory"}, lambda: _check_too_little(place, path))
    yield from guarded({"what": "check closing"}, lambda: [_check_closing(place, path)])


def _search(place: torch.device, table: SyntheticTable, n_queries: int) -> None:
    """Open a backend, search with many queries, and drop it."""
    backend = open_backend(place, make_segment(table), kernels=True, limit_bytes=_LIMIT)
    backend.candidates(make_queries(n_queries, _DIM), SearchParameters(20, 60, None, 1, None, 8.0))


def _check_limit(place: torch.device, table: SyntheticTable, n_queries: int) -> Record:
    """Check that memory stays within the limit, intermediate results included; only CUDA counts the peak."""
    before, peak = _allocated(place), 0
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    _search(place, table, n_queries)
    if place.type == "cuda":
        peak = torch.cuda.max_memory_allocated(place) - before
    kept = _allocated(place) - before
    return {"limit_bytes": _LIMIT, "peak_bytes": peak, "kept_bytes": kept, "sound": peak <= _LIMIT and kept == 0}


def _check_too_little(place: torch.device, path: Path) -> Iterator[Record]:
    """Yield whether a device that lacks memory is an error if it was asked for, and replaced if it was chosen."""
    try:
        with Engine.open(path, backend="gpu", device=str(place), device_bytes=1000) as index:
            index.search_vectors(make_queries(1, 32), k=10)
        refused = False
    except (InvalidSetting, BackendUnavailable):
        refused = True
    yield {"case": "asked for, at opening", "sound": refused}

    def fail(*_: object) -> None:
        torch.empty(_TOO_MUCH, dtype=torch.uint8, device=place)

    logging.getLogger("quarry").setLevel(logging.ERROR)  # the fallback is logged
    with patch("quarry.engine.backends.selection.has_cuda", lambda: True):
        yield {"case": "chosen, at opening", **_compare(path, place, device_bytes=1000)}
        with patch(_FIND, fail):
            yield {"case": "chosen, at a search", **_compare(path, place, device_bytes=None)}


def _compare(path: Path, place: torch.device, device_bytes: int | None) -> Record:
    """Return whether an index whose backend is chosen answers as the exact one does."""
    options = {"backend": "auto", "device": str(place), "device_bytes": device_bytes, "thresholds": _TO_GPU}
    return search_both(path, make_queries(20, 32), options)


def _check_closing(place: torch.device, path: Path) -> Record:
    """Check that a closed index leaves nothing on the device."""
    before = _allocated(place)
    with Engine.open(path, backend="gpu", device=str(place)) as index:
        index.search_vectors(make_queries(20, 32), k=10)
        during = _allocated(place)
    after = _allocated(place)
    return {"held_bytes": during - before, "kept_bytes": after - before, "sound": after == before < during}


def _allocated(place: torch.device) -> int:
    """Return the bytes of all tensors on a device, without the workspaces of cuBLAS, which belong to torch."""
    gc.collect()
    if place.type == "cuda":
        torch.cuda.synchronize(place)
        torch._C._cuda_clearCublasWorkspaces()
        return int(torch.cuda.memory_allocated(place))
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())
