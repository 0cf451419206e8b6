"""Prints progress and the remaining time of a measurement."""

from __future__ import annotations

import sys
import time

__all__ = ["Clock"]

_EVERY_S = 5.0


class Clock:
    """Counts finished items and prints a line to standard error every few seconds and at the end.

    Args:
        n_total: number of items.
        what: what the items are, in the plural.
    """

    def __init__(self, n_total: int, what: str) -> None:
        self._n_total = n_total
        self._what = what
        self._n_done = 0
        self._started = self._said = time.perf_counter()

    def tick(self) -> None:
        """Count one finished item."""
        self._n_done += 1
        now = time.perf_counter()
        if now - self._said < _EVERY_S and self._n_done < self._n_total:
            return
        self._said = now
        left_s = (now - self._started) / self._n_done * (self._n_total - self._n_done)
        line = f"{self._n_done} of {self._n_total} {self._what}, about {left_s:.0f} s left"
        print(line, file=sys.stderr, flush=True)
