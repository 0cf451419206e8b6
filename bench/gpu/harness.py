"""What every measurement on a device shares: time of a call, failures as records, the backend opened.

`median_ms` times a call until the device has finished, `guarded` turns an exception into a record so that later
measurements still run, `open_on` opens the GPU backend with Triton kernels or in plain torch.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

import torch

from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Resources
from quarry.engine.gpu.device import Device
from quarry.formats.snapshot import OpenSegment

__all__ = ["device_on", "guarded", "kernel_settings", "median_ms", "open_on"]

_WARM_UPS = 3
_LEAST_CALLS = 2
_MOST_S = 3.0
_MOST_CHARACTERS = 300  # of an error in a record


def median_ms(call: Callable[[], object], place: torch.device, n_calls: int) -> float:
    """Return the median time of a call in milliseconds, until the device has finished.

    Three calls to warm up are not counted. A slow call is repeated less often: after three seconds, one call to
    warm up and two that count are enough.
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


def guarded(
    about: Record,
    measure: Callable[[], Iterable[Record]],
    absent: tuple[type[Exception], ...] = (ImportError,),
) -> Iterator[Record]:
    """Yield the records of a measurement, and a record of the exception if it raises one.

    Args:
        about: fields added to each of its records.
        measure: makes the records.
        absent: exceptions that say that something is not installed; their record has the field "missing". Any
            other exception gives the fields "failed" and "traceback".
    """
    try:
        for record in measure():
            yield {**about, **record}
    except absent as error:
        yield {**about, "missing": repr(error)[:_MOST_CHARACTERS]}
    except Exception as error:  # libraries and drivers raise exceptions of many kinds
        yield {**about, "failed": repr(error)[:_MOST_CHARACTERS], "traceback": traceback.format_exc()}


def kernel_settings(place: torch.device) -> list[bool]:
    """Return the settings of ``kernels`` to measure: with and without, or only without if there are none."""
    return [False] if Device(str(place)).kernels is None else [True, False]


def open_on(
    place: torch.device, segment: OpenSegment, *, kernels: bool, limit_bytes: int | None = None
) -> GpuBackend:
    """Open the GPU backend; without `kernels` it computes in plain torch even if Triton is installed."""
    return GpuBackend(segment, Resources(device=device_on(place, kernels=kernels, limit_bytes=limit_bytes)))


def device_on(place: torch.device, *, kernels: bool, limit_bytes: int | None = None) -> Device:
    """Return a device with a memory limit; without `kernels` it computes in plain torch."""
    device = Device(str(place), limit_bytes)
    if not kernels:
        device.disable_kernels()
    return device
