"""Threads with an owner, and the results of their work in order, computed a bounded number of items ahead.

Generators own no threads. The garbage collector may finalize a suspended generator at any allocation, in any
thread, whatever locks that thread holds. If the generator then waited for threads to end, and one of them needed
such a lock, the process would hang. A `WorkerPool` is closed by its owner, a `WorkAhead` by the ``with`` statement
that uses it; when either is garbage collected, nothing is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import Generic, Self, TypeVar

from quarry.formats.container.background import work_at_once
from quarry.formats.container.cancellation import stop_if_cancelled

__all__ = ["PoolClosed", "WorkAhead", "WorkerPool", "map_on_threads", "result_of"]

T = TypeVar("T")
R = TypeVar("R")


class PoolClosed(Exception):
    """The pool was closed by its owner."""


class WorkerPool:
    """Threads that are started when they are first needed and kept until `close`; a context manager.

    Any thread may submit work. Work must not wait for other work of the same pool.

    Args:
        threads: how many at most, 1 at least.
        name: prefix of their names.

    Attributes:
        threads: how many at most.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self._is_closed = False
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        """Start work on an item in a copy of the context, so that it is cancelled with the work that it is for.

        If no thread can be started, for lack of resources or because the interpreter is exiting, the work is done
        on the calling thread before this returns.

        Raises:
            PoolClosed: the pool is closed.
        """
        try:
            return self._executor.submit(copy_context().run, work, item)
        except RuntimeError:
            if self._is_closed:
                raise PoolClosed from None
        return work_at_once(work, item)

    def close(self) -> None:
        """Cancel what has not begun, wait for what has, and end the threads; harmless if done before."""
        self._is_closed = True
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkAhead(Generic[T, R]):
    """The work on each of many items as futures, in their order, a bounded number of them under way.

    An iterator of futures for `result_of`, and a context manager: when the block is left, for whatever reason,
    what has not begun is cancelled and what has begun is waited for. If `items` raises, its error comes after all
    items before it.

    Args:
        pool: whose threads work.
        items: taken one at a time, on the thread that iterates.
        work: done on each.
        n_ahead: how many items are under way at once, at least 1.
    """

    def __init__(self, pool: WorkerPool, items: Iterable[T], work: Callable[[T], R], n_ahead: int) -> None:
        self._pool = pool
        self._items: Iterator[T] | None = iter(items)
        self._work = work
        self._n_ahead = n_ahead
        self._under_way: deque[Future[R]] = deque()
        self._given: Future[R] | None = None  # last, which may still be waited for
        self._failure: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Future[R]:
        """Return the next item's future.

        Raises:
            PoolClosed: the pool was closed meanwhile.
            Exception: what `items` raised.
        """
        while self._items is not None and len(self._under_way) < self._n_ahead:
            self._take(self._items)
        if self._under_way:
            self._given = self._under_way.popleft()
            return self._given
        failure, self._failure = self._failure, None
        try:
            raise failure or StopIteration
        finally:
            del failure  # the error holds this frame, which must not hold the error

    def _take(self, items: Iterator[T]) -> None:
        """Start work on the next item, if there is one."""
        try:
            item = next(items)
        except StopIteration:
            self._items = None
        except Exception as error:  # raised after the items before it
            self._items, self._failure = None, error
        else:
            self._under_way.append(self._pool.submit(self._work, item))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._items = None
        if self._given is not None:
            self._under_way.append(self._given)
        wait([future for future in self._under_way if not future.cancel()])
        self._under_way.clear()
        self._given = None


def result_of(future: Future[R]) -> R:
    """Wait for a future and return its result.

    Raises:
        PoolClosed: the pool was closed before the work began.
        Exception: what the work raised.
    """
    try:
        return future.result()
    except CancelledError:
        if future.cancelled():
            raise PoolClosed from None
        raise


def map_on_threads(work: Callable[[T], R], items: Sequence[T], threads: int, name: str) -> list[R]:
    """Return the results of work on each item, in their order; the first error in this order is raised.

    Args:
        work: safe to call from several threads.
        items: to work on.
        threads: how many to use; with 1, or for a single item, the calling thread does it all.
        name: prefix of the threads' names.
    """
    n_threads = min(threads, len(items))
    if n_threads < 2:
        return [_work_if_wanted(work, item) for item in items]
    each = partial(_work_if_wanted, work)
    with WorkerPool(n_threads, name) as pool, WorkAhead(pool, items, each, len(items)) as futures:
        return [future.result() for future in futures]


def _work_if_wanted(work: Callable[[T], R], item: T) -> R:
    stop_if_cancelled()
    return work(item)
