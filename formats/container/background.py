"""Work that the writer of a file may leave to another thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

__all__ = ["StartWork", "work_at_once"]

T = TypeVar("T")
R = TypeVar("R")


class StartWork(Protocol):
    """A function that starts work on an item, for example on a thread of a pool; whoever owns the pool ends it."""

    def __call__(self, work: Callable[[T], R], item: T, /) -> Future[R]:
        """Return the future result; an error of the work is in it."""
        ...


def work_at_once(work: Callable[[T], R], item: T, /) -> Future[R]:
    """Do the work on the calling thread; a `StartWork`."""
    future: Future[R] = Future()
    try:
        future.set_result(work(item))
    except Exception as error:
        future.set_exception(error)
    return future
