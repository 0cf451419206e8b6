"""How long a call takes whose work is done by a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

__all__ = ["median_ms"]

_WARM_UPS = 3
_LEAST_CALLS = 2
_MOST_S = 3.0


def median_ms(call: Callable[[], object], place: torch.device, n_calls: int) -> float:
    """Median milliseconds of a call, until the device has finished; after three calls that do not count.

    Of calls that take long there are fewer: after three seconds one that does not count and two that do suffice.
    """
    times: list[float] = []
    began = time.perf_counter()
    for number in range(_WARM_UPS + n_calls):
        started = time.perf_counter()
        call()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        times.append((time.perf_counter() - started) * 1e3)
        if number >= _LEAST_CALLS and time.perf_counter() - began > _MOST_S:
            break
    return statistics.median(times[min(_WARM_UPS, len(times) - _LEAST_CALLS) :])
