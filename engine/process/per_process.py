"""Objects that a process must not share with its children: sessions of libraries, locks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from quarry.engine.process.exit_gate import in_progress

__all__ = ["PerProcess"]

T = TypeVar("T")


class PerProcess(Generic[T]):
    """An object that is created at first use, once per process: after a fork the child creates its own.

    Args:
        make: creates it; called by one thread at a time.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # By process id. A session inherited by a fork is kept and not used, because destroying it is not safe when
        # it has threads. An inherited lock is not safe either: another thread of the parent may hold it.
        self._made: dict[int, T] = {}
        self._locks: dict[int, threading.Lock] = {}

    def get(self) -> T:
        """Return the object of this process; an error of ``make`` is raised, and the next call tries again."""
        process = os.getpid()
        made = self._made.get(process)
        if made is None:
            with in_progress, self._locks.setdefault(process, threading.Lock()):
                made = self._made.get(process)
                if made is None:
                    made = self._made[process] = self._make()
        return made
