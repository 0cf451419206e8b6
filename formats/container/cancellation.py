"""Work that nobody waits for any more: steps that repeat often ask whether to stop, and raise an error if so.

A thread cannot be stopped from outside. Whoever waits for its work runs it in a `Cancellation`, and cancels that
when the answer is not needed. Work on other threads belongs to it if it runs in a copy of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

__all__ = ["Cancellation", "stop_if_cancelled"]

P = ParamSpec("P")
R = TypeVar("R")


class Cancellation:
    """Work that can be cancelled; it is cancelled too if the work that it is a part of is."""

    def __init__(self) -> None:
        self._larger = _current.get()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Let the work raise an error at its next step; no effect if it has ended."""
        self._is_cancelled = True

    @property
    def is_cancelled(self) -> bool:
        """Whether the work is to stop."""
        return self._is_cancelled or (self._larger is not None and self._larger.is_cancelled)

    def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do the work on this thread and return its result.

        Raises:
            CancelledError: it was cancelled before its end.
            Exception: what the work raised.
        """
        token = _current.set(self)
        try:
            stop_if_cancelled()
            return work(*args, **kwargs)
        finally:
            _current.reset(token)


def stop_if_cancelled() -> None:
    """Do nothing, unless the work on this thread is cancelled.

    Raises:
        CancelledError: it is.
    """
    current = _current.get()
    if current is not None and current.is_cancelled:
        raise CancelledError("nobody waits for the result any more")


_current: ContextVar[Cancellation | None] = ContextVar("quarry_cancellation", default=None)
