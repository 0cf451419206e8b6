"""How long a call takes whose work is done by a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

__all__ = ["median_ms"]

_WARM_UPS = 3


def median_ms(call: Callable[[], object], place: torch.device, n_calls: int) -> float:
    """Median milliseconds of a call, until the device has finished; after three calls that do not count."""
    times = []
    for number in range(_WARM_UPS + n_calls):
        started = time.perf_counter()
        call()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        if number >= _WARM_UPS:
            times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)
