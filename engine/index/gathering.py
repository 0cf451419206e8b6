"""Asks all shards at once and waits for their answers: until a deadline, and with or without those that fail."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from quarry.engine.process.worker_pool import PoolClosed, WorkerPool, result_of
from quarry.formats.errors import IndexClosed, InvalidQuery, InvalidSetting, QuarryError, ShardTimeout

__all__ = ["Gathering", "ShardThreads"]

R = TypeVar("R")

_NO_FAILURES: Mapping[int, Exception] = {}
_OF_THE_CALLER = (InvalidQuery, InvalidSetting, IndexClosed)  # errors that are not a failure of a shard


class ShardThreads:
    """Threads of their own for each shard, so that one that hangs does not take those of the others.

    Args:
        n_shards: number of shards.
        threads: for all shards together; each has at least one.
    """

    def __init__(self, n_shards: int, threads: int) -> None:
        self.n_shards = n_shards
        each = max(1, threads // n_shards)
        self._pools = [WorkerPool(each, f"quarry-shard-{number}") for number in range(n_shards)]

    def submit(self, shard: int, work: Callable[[int], R]) -> Future[R]:
        """Start work on a shard, given its number.

        Raises:
            PoolClosed: after `close`.
        """
        return self._pools[shard].submit(work, shard)

    def close(self) -> None:
        """Cancel what has not begun, wait for what has, and end the threads."""
        for pool in self._pools:
            pool.close()


class Gathering:
    """The requests of one search to the shards: a shard that did not answer one of them gets no others.

    Args:
        threads: the threads of the shards; None: there is one partition, which is asked on the calling thread.
        names: the names of the shards, for messages.
        allow_partial: whether a shard may fail or be late; it is then left out and recorded in `missing`.
        timeout: seconds that the shards have to answer each request; None: no limit.
        failures: by their numbers, the errors of shards that failed before.

    Attributes:
        missing: for each shard that did not answer, by its number, the reason.
    """

    def __init__(
        self,
        threads: ShardThreads | None,
        names: Sequence[str],
        allow_partial: bool = False,
        timeout: float | None = None,
        failures: Mapping[int, Exception] = _NO_FAILURES,
    ) -> None:
        self.missing: dict[int, str] = {}
        self._threads = threads
        self._names = names
        self._allow_partial = allow_partial
        self._timeout = timeout
        self._failures = failures

    def run(self, work: Callable[[int], R], shards: Iterable[int] | None = None) -> dict[int, R]:
        """Do work for shards, given their numbers; return the results of those that answered, in their order.

        Args:
            work: safe to call on several threads.
            shards: numbers; None: all. Missing ones are left out.

        Raises:
            ShardTimeout: a shard is late, and must not be, or none answered in time.
            Exception: of a shard that failed, and must not, or of the last one if none answered; or an error of
                the caller, such as an invalid query.
        """
        threads = self._threads
        if threads is None:
            return {0: work(0)}
        wanted = range(len(self._names)) if shards is None else shards
        asked = [shard for shard in wanted if shard not in self.missing]
        try:
            futures = {shard: self._ask(shard, work, threads) for shard in asked}
        except PoolClosed:
            raise IndexClosed("the index is closed") from None
        try:
            return self._collect(futures)
        finally:
            for future in futures.values():
                future.cancel()

    def _ask(self, shard: int, work: Callable[[int], R], threads: ShardThreads) -> Future[R]:
        if shard not in self._failures:
            return threads.submit(shard, work)
        failed: Future[R] = Future()
        failed.set_exception(copy.copy(self._failures[shard]))  # which gets notes and a traceback
        return failed

    def _collect(self, futures: Mapping[int, Future[R]]) -> dict[int, R]:
        results: dict[int, R] = {}
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        for shard, future in futures.items():
            try:
                results[shard] = self._result(shard, future, deadline)
            except PoolClosed:
                raise IndexClosed("the index is closed") from None
            except _OF_THE_CALLER:
                raise
            except Exception as error:
                error.add_note(f"This is an error of the shard {self._names[shard]}.")
                if not self._allow_partial or len(self.missing) + 1 == len(self._names):
                    raise
                self.missing[shard] = _reason(error)
        return results

    def _result(self, shard: int, future: Future[R], deadline: float | None) -> R:
        """The result of a shard, or its error.

        Raises:
            ShardTimeout: it has not answered by the deadline.
            PoolClosed: the index was closed before the request was sent.
        """
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not wait([future], seconds).done:
            raise ShardTimeout(
                f"the shard {self._names[shard]} did not answer in time",
                expected=f"an answer within {self._timeout} s; partial=True does without it",
            )
        return result_of(future)


def _reason(error: Exception) -> str:
    """Return what is wrong, without the paths of this machine, since clients of servers read it."""
    if isinstance(error, QuarryError):
        return error.reason
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
