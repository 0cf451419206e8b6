"""Measures the limits of the device: bandwidth of copies and uploads, rate of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.gpu.harness import guarded, median_ms
from bench.gpu.sizes import Size
from bench.harness.records import Record
from quarry.engine.gpu.transfer import upload

__all__ = ["measure_ceilings", "time_matrix_product"]

_COPY_BYTES = 1 << 32
_SMALL_COPY_BYTES = 1 << 24
_UPLOAD_SHARE = 4  # uploads are a quarter of that
_ROW_BYTES = 1 << 10
_SIDE = 8192  # rows of square matrices
_SMALL_SIDE = 256


def measure_ceilings(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield the rates of a copy within the device (bytes read and written), an upload and a matrix product."""
    del work
    n_bytes = _SMALL_COPY_BYTES if place.type == "cpu" else _COPY_BYTES
    yield from guarded({"what": "copy"}, lambda: [_time_copy(place, n_bytes, size.n_calls)])
    yield from guarded({"what": "upload"}, lambda: [_time_upload(place, n_bytes // _UPLOAD_SHARE, size.n_calls)])
    yield from guarded({"what": "matrix product"}, lambda: [time_matrix_product(place, size)])


def _time_copy(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    source = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    ms = median_ms(partial(target.copy_, source), place, n_calls)
    return {"n_bytes": 2 * n_bytes, "ms": ms, "gb_s": 2 * n_bytes / ms / 1e6}


def _time_upload(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    host = np.random.default_rng(0).integers(0, 255, (n_bytes // _ROW_BYTES, _ROW_BYTES), np.uint8)
    ms = median_ms(lambda: upload(lambda low, high: host[low:high], len(host), place), place, n_calls)
    return {"n_bytes": n_bytes, "ms": ms, "gb_s": n_bytes / ms / 1e6}


def time_matrix_product(place: torch.device, size: Size) -> Record:
    """Time a product of square matrices, in float16 on a GPU and in float32 on a CPU."""
    small = place.type == "cpu"
    side, kind = (_SMALL_SIDE, torch.float32) if small else (_SIDE, torch.float16)
    one, other = (torch.randn((side, side), device=place).to(kind) for _ in range(2))
    ms = median_ms(partial(torch.matmul, one, other), place, size.n_calls)
    return {"kind": str(kind), "side": side, "ms": ms, "tflop_s": 2 * side**3 / ms / 1e9}
