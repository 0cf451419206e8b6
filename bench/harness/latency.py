"""How long calls take: in order, or of several callers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

__all__ = ["concurrent_latency_ms", "latency_ms"]

T = TypeVar("T")


def latency_ms(call: Callable[[T], object], arguments: Iterable[T], prefix: str = "") -> dict[str, float]:
    """Time ``call(argument)`` for each argument.

    Returns:
        p50_ms, p95_ms, p99_ms and qps (calls a second, in order), each after ``prefix``.
    """
    times = [_seconds(call, argument) for argument in arguments]
    return _numbers(times, sum(times), prefix)


def concurrent_latency_ms(
    call: Callable[[T], object], arguments: Sequence[T], n_callers: int, prefix: str = ""
) -> dict[str, float]:
    """Time ``call(argument)`` for each argument, ``n_callers`` of them at a time.

    Returns:
        As `latency_ms`; qps counts the calls of all callers.
    """
    with ThreadPoolExecutor(n_callers) as pool:
        started = time.perf_counter()
        times = list(pool.map(lambda argument: _seconds(call, argument), arguments))
        duration_s = time.perf_counter() - started
    return _numbers(times, duration_s, prefix)


def _seconds(call: Callable[[T], object], argument: T) -> float:
    started = time.perf_counter()
    call(argument)
    return time.perf_counter() - started


def _numbers(times: list[float], duration_s: float, prefix: str) -> dict[str, float]:
    p50, p95, p99 = (np.quantile(times, (0.5, 0.95, 0.99)) * 1e3).tolist()
    numbers = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "qps": len(times) / duration_s}
    return {prefix + name: value for name, value in numbers.items()}
