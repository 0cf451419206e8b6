"""What the device can do at best: bytes copied and products summed up a second, measured in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from bench.gpu_clock import median_ms
from bench.gpu_sizes import Size
from bench.records import Record

__all__ = ["ceilings"]

_COPY_BYTES = 1 << 32
_SIDE = 8192  # of square matrices
_SMALL_COPY_BYTES = 1 << 24
_SMALL_SIDE = 256


def ceilings(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield the rate of a copy within the device (bytes read and written), and that of a matrix product."""
    small = place.type == "cpu"
    source = torch.randint(0, 255, (_SMALL_COPY_BYTES if small else _COPY_BYTES,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    ms = median_ms(partial(target.copy_, source), place, size.n_calls)
    yield {"what": "copy", "n_bytes": 2 * len(source), "ms": ms, "gb_s": 2 * len(source) / ms / 1e6}
    del source, target
    side = _SMALL_SIDE if small else _SIDE
    kind = torch.float32 if small else torch.float16
    one, other = (torch.randn((side, side), device=place).to(kind) for _ in range(2))
    ms = median_ms(partial(torch.matmul, one, other), place, size.n_calls)
    yield {"what": "matrix product", "kind": str(kind), "side": side, "ms": ms, "tflop_s": 2 * side**3 / ms / 1e9}
