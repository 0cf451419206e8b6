"""Measures how long calls take: one after another, several functions in turn, or several callers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Timing", "concurrent_latency_ms", "latency_ms", "summarize_ms", "time_in_turn"]

T = TypeVar("T")
R = TypeVar("R")


class Timing(NamedTuple, Generic[R]):
    """Times and results of the calls of one function.

    Attributes:
        wall_ms: (n,) float64, milliseconds on the clock.
        cpu_ms: (n,) float64, milliseconds of processor time of this process: other processes do not add to it.
        results: what the calls returned.
    """

    wall_ms: npt.NDArray[np.float64]
    cpu_ms: npt.NDArray[np.float64]
    results: list[R]


def time_in_turn(calls: Mapping[str, Callable[[T], R]], arguments: Iterable[T]) -> dict[str, Timing[R]]:
    """Call every function with every argument and return the times and results by the function's name.

    All functions are called with an argument before the next one is taken, each time in another random order (the
    same in every run). So other load on the machine affects all alike, and none profits from caches that another
    one filled.
    """
    generator = np.random.default_rng(0)
    names = list(calls)
    runs: dict[str, list[tuple[float, float, R]]] = {name: [] for name in names}
    for argument in arguments:
        for number in generator.permutation(len(names)).tolist():
            wall, cpu = time.perf_counter(), time.process_time()
            result = calls[names[number]](argument)
            cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
            runs[names[number]].append((wall_s * 1e3, cpu_s * 1e3, result))
    return {
        name: Timing(
            np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), [row[2] for row in rows]
        )
        for name, rows in runs.items()
    }


def latency_ms(call: Callable[[T], object], arguments: Iterable[T], prefix: str = "") -> dict[str, float]:
    """Time ``call(argument)`` for each argument.

    Returns:
        p50_ms, p95_ms, p99_ms and qps (calls per second, one after another), each after ``prefix``.
    """
    times = [_seconds(call, argument) for argument in arguments]
    return {**summarize_ms(times, prefix), f"{prefix}qps": len(times) / sum(times)}


def concurrent_latency_ms(
    call: Callable[[T], object], arguments: Sequence[T], n_callers: int, prefix: str = ""
) -> dict[str, float]:
    """Time ``call(argument)`` for each argument, called by ``n_callers`` threads.

    Returns:
        As `latency_ms`; qps counts the calls of all threads.
    """
    with ThreadPoolExecutor(n_callers) as pool:
        started = time.perf_counter()
        times = list(pool.map(lambda argument: _seconds(call, argument), arguments))
        duration_s = time.perf_counter() - started
    return {**summarize_ms(times, prefix), f"{prefix}qps": len(times) / duration_s}


def summarize_ms(times_s: Sequence[float], prefix: str = "") -> dict[str, float]:
    """Return p50_ms, p95_ms and p99_ms of times in seconds, each after ``prefix``."""
    p50, p95, p99 = (np.quantile(times_s, (0.5, 0.95, 0.99)) * 1e3).tolist()
    return {f"{prefix}p50_ms": p50, f"{prefix}p95_ms": p95, f"{prefix}p99_ms": p99}


def _seconds(call: Callable[[T], object], argument: T) -> float:
    started = time.perf_counter()
    call(argument)
    return time.perf_counter() - started
