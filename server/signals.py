"""Signals that end a server: the first lets requests finish, a second one ends it at once."""

from __future__ import annotations

import time

__all__ = ["StopSignals"]

_SAME_S = 1.0  # timeout(1) sends its signal to a process and then to its group, terminals and supervisors to all


class StopSignals:
    """Tells a second signal from a first one that arrives several times."""

    def __init__(self) -> None:
        self._first: float | None = None

    def is_second(self) -> bool:
        """Return whether the signal that has just arrived is a second one."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now > self._first + _SAME_S
