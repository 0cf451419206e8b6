"""What the device can do at best: bytes copied and sent, products summed up a second, measured in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from bench.gpu.harness import guarded, median_ms
from bench.gpu.sizes import Size
from bench.harness.records import Record
from quarry.engine.gpu.transfer import upload

__all__ = ["ceilings", "matrix_product"]

_COPY_BYTES = 1 << 32
_SMALL_COPY_BYTES = 1 << 24
_UPLOAD_SHARE = 4  # a quarter of that is sent
_ROW_BYTES = 1 << 10
_SIDE = 8192  # of square matrices
_SMALL_SIDE = 256


def ceilings(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield the rates of a copy within the device (bytes read and written), of an upload, of a matrix product."""
    n_bytes = _SMALL_COPY_BYTES if place.type == "cpu" else _COPY_BYTES
    yield from guarded({"what": "copy"}, lambda: [_copy(place, n_bytes, size.n_calls)])
    yield from guarded({"what": "upload"}, lambda: [_upload(place, n_bytes // _UPLOAD_SHARE, size.n_calls)])
    yield from guarded({"what": "matrix product"}, lambda: [matrix_product(place, size)])


def _copy(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    source = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    ms = median_ms(partial(target.copy_, source), place, n_calls)
    return {"n_bytes": 2 * n_bytes, "ms": ms, "gb_s": 2 * n_bytes / ms / 1e6}


def _upload(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    host = np.random.default_rng(0).integers(0, 255, (n_bytes // _ROW_BYTES, _ROW_BYTES), np.uint8)
    ms = median_ms(lambda: upload(lambda low, high: host[low:high], len(host), place), place, n_calls)
    return {"n_bytes": n_bytes, "ms": ms, "gb_s": n_bytes / ms / 1e6}


def matrix_product(place: torch.device, size: Size) -> Record:
    """Of square matrices, in float16 where that is fast."""
    small = place.type == "cpu"
    side, kind = (_SMALL_SIDE, torch.float32) if small else (_SIDE, torch.float16)
    one, other = (torch.randn((side, side), device=place).to(kind) for _ in range(2))
    ms = median_ms(partial(torch.matmul, one, other), place, size.n_calls)
    return {"kind": str(kind), "side": side, "ms": ms, "tflop_s": 2 * side**3 / ms / 1e9}
