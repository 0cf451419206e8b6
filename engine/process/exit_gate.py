"""Lets the interpreter exit between calls into native libraries, not in the middle of them.

Up to Python 3.13 a daemon thread ends as soon as it requests the interpreter's lock while the interpreter exits:
its stack is unwound. C++ code that takes the lock back in a destructor, after working without it, then aborts the
process ("terminate called without an active exception"). ONNX Runtime does so, as do all libraries bound with
pybind11, and `numpy.unique` since NumPy 2.4.

Calls that may get there are marked with `in_progress` or `finishes_before_exit`. When the interpreter exits, those
of other threads that have begun are waited for, and a daemon thread that begins another one ends.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["ExitGate", "finishes_before_exit", "in_progress"]

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_WAIT_S = 10.0
"""A call that takes longer than this after the interpreter began to exit is not waited for."""

_PAUSE_S = 0.001  # between two looks whether calls have ended


class ExitGate:
    """Counts the calls in progress in each thread; a context manager around a call, which may be nested.

    It works without a lock, because signal handlers and finalizers of garbage may make calls at any point of it: a
    thread changes nothing but its own entry.
    """

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}  # of threads with calls in progress, by their identifiers
        self._closed_by: int | None = None  # the thread on which the interpreter exits

    @property
    def is_closed(self) -> bool:
        """Whether the interpreter is exiting, and waits for no other thread than those with calls in progress."""
        return self._closed_by is not None

    def __enter__(self) -> None:
        """Begin a call, or end the thread if it is a daemon thread and the gate is closed to it.

        Raises:
            SystemExit: which a thread ends by, without a message, and releases the locks that it holds.
        """
        if not self.begin():
            if threading.current_thread().daemon:
                raise SystemExit
            self._depths[threading.get_ident()] = 1  # started by an exit handler, which waits for it

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> bool:
        """Begin a call that `end` ends, unless the gate is closed to this thread; whether it has begun."""
        thread = threading.get_ident()
        depth = self._depths.get(thread, 0)
        # Count first, then look at the gate. `close` does it the other way round, so one of the two sees the
        # other: a call is waited for, or does not begin.
        self._depths[thread] = depth + 1
        if depth == 0 and self._closed_by is not None and self._closed_by != thread:
            del self._depths[thread]
            return False
        return True

    def end(self) -> None:
        """End the call that this thread began last."""
        thread = threading.get_ident()
        depth = self._depths.get(thread, 0)
        if depth > 1:
            self._depths[thread] = depth - 1
        else:
            self._depths.pop(thread, None)

    def close(self, longest_s: float = _LONGEST_WAIT_S) -> None:
        """Let other threads begin no more calls, and wait for those in progress.

        Args:
            longest_s: how many seconds to wait at most.
        """
        self._closed_by = threading.get_ident()
        end = time.monotonic() + longest_s
        # Asked again and again: the last call that ends would need a lock to wake this thread.
        while set(self._depths) - {self._closed_by} and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def after_fork(self) -> None:
        """Forget the threads that a forked child does not have, and the exit of its parent."""
        self._closed_by = None
        thread = threading.get_ident()
        self._depths = {thread: self._depths[thread]} if thread in self._depths else {}


in_progress = ExitGate()
"""The gate of this process."""


def finishes_before_exit(call: F) -> F:
    """Mark a function whose calls the exiting interpreter waits for."""

    @functools.wraps(call)
    def counted(*args: object, **keywords: object) -> object:
        with in_progress:
            return call(*args, **keywords)

    return cast(F, counted)


atexit.register(in_progress.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=in_progress.after_fork)
