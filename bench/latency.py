"""How long calls take, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

__all__ = ["latency_ms"]

T = TypeVar("T")


def latency_ms(call: Callable[[T], object], arguments: Iterable[T], prefix: str = "") -> dict[str, float]:
    """Time ``call(argument)`` for each argument.

    Returns:
        p50_ms, p95_ms, p99_ms and qps (calls a second, one after another), each after ``prefix``.
    """
    times = []
    for argument in arguments:
        started = time.perf_counter()
        call(argument)
        times.append(time.perf_counter() - started)
    p50, p95, p99 = (np.quantile(times, (0.5, 0.95, 0.99)) * 1e3).tolist()
    numbers = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "qps": len(times) / sum(times)}
    return {prefix + name: value for name, value in numbers.items()}
