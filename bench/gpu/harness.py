"""Helpers of all measurements on a device.

`median_ms` times a call until the device has finished, `guarded` turns an exception into a record so that later
measurements still run, `open_backend` opens the GPU backend with Triton kernels or only torch.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

import torch

from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.backends.gpu.scan import DeviceScan
from quarry.engine.backends.gpu.scores import fastest_scores
from quarry.engine.backends.protocol import Resources
from quarry.engine.gpu.device import Device
from quarry.formats.snapshot import OpenSegment

__all__ = ["guarded", "list_kernel_settings", "make_device", "median_ms", "open_backend", "use_kernels"]

_WARM_UPS = 3
_LEAST_CALLS = 2
_MOST_S = 3.0
_MOST_CHARACTERS = 300  # of an error in a record


def median_ms(call: Callable[[], object], place: torch.device, n_calls: int) -> float:
    """Return the median time of a call in milliseconds, until the device has finished.

    Three warm-up calls, or as many as are counted, are left out. Slow calls are repeated less often: after three
    seconds, one warm-up call and two counted calls suffice.
    """
    times: list[float] = []
    n_warm_ups = min(_WARM_UPS, n_calls)
    first_started = time.perf_counter()
    for number in range(n_warm_ups + n_calls):
        started = time.perf_counter()
        call()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        times.append((time.perf_counter() - started) * 1e3)
        if number >= _LEAST_CALLS and time.perf_counter() - first_started > _MOST_S:
            break
    return statistics.median(times[min(n_warm_ups, max(0, len(times) - _LEAST_CALLS)) :])


def guarded(
    about: Record,
    measure: Callable[[], Iterable[Record]],
    absent: tuple[type[Exception], ...] = (ImportError,),
) -> Iterator[Record]:
    """Yield the records of a measurement and, if it raises an exception, a record of it.

    Args:
        about: fields added to each of its records.
        measure: makes the records.
        absent: exceptions for something that is not installed; their record has the field "missing". Other
            exceptions give the fields "failed" and "traceback".
    """
    try:
        for record in measure():
            yield {**about, **record}
    except absent as error:
        yield {**about, "missing": repr(error)[:_MOST_CHARACTERS]}
    except Exception as error:  # libraries and drivers raise exceptions of many kinds
        yield {**about, "failed": repr(error)[:_MOST_CHARACTERS], "traceback": traceback.format_exc()}


def list_kernel_settings(place: torch.device) -> list[bool]:
    """Return the values of ``kernels`` to measure: True and False, or only False without Triton."""
    return [False] if Device(str(place)).kernels is None else [True, False]


def open_backend(
    place: torch.device, segment: OpenSegment, *, kernels: bool, limit_bytes: int | None = None
) -> GpuBackend:
    """Open the GPU backend; without `kernels` it uses only torch even if Triton is installed."""
    return GpuBackend(segment, Resources(device=make_device(place, kernels=kernels, limit_bytes=limit_bytes)))


def make_device(place: torch.device, *, kernels: bool, limit_bytes: int | None = None) -> Device:
    """Return a device with a memory limit; without `kernels` it uses only torch."""
    device = Device(str(place), limit_bytes)
    if not kernels:
        device.disable_kernels()
    return device


def use_kernels(backend: GpuBackend, place: torch.device, *, kernels: bool) -> None:
    """Let an open backend search with Triton kernels, or with plain torch, without copying its segment again."""
    device = make_device(place, kernels=kernels)
    if backend._lists is not None:
        backend._lists._score_lists = device.kernel("score_lists")
    elif isinstance(backend._final, DeviceRows):
        backend._final._pair_scores = device.kernel("pair_scores")
        scores = fastest_scores(backend._final, device)
        backend._scan = DeviceScan(backend._final, scores, device.work_bytes)
