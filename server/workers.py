"""A bounded number of threads for the calls that would block the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from quarry.formats.container.cancellation import Cancellation
from quarry.server.http.failures import RequestError, stopping_error

__all__ = ["Workers", "finished"]

T = TypeVar("T")


class Workers:
    """Threads that run calls, and a bounded number of calls that wait for them.

    A call whose request was given up stops at its next step (`quarry.formats.container.cancellation`). It counts
    until it has ended, so that at most `n_threads` + `max_waiting` calls exist at any time.

    Args:
        n_threads: number of threads.
        max_waiting: number of calls that may wait.
        name: prefix of the names of the threads.
    """

    def __init__(self, n_threads: int, max_waiting: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(n_threads, name)
        self._max_calls = n_threads + max_waiting
        self._n_calls = 0
        self._lock = threading.Lock()

    @property
    def n_calls(self) -> int:
        """Number of calls that wait or run."""
        return self._n_calls

    async def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Run a call on one of the threads.

        Args:
            call: the call.
            timeout_s: seconds to wait for its result.

        Raises:
            RequestError: 503, too many calls wait; 504, it took too long.
            CancelledError: `close` was called before the call began, or this task was cancelled.
        """
        with self._lock:
            if self._n_calls >= self._max_calls:
                expected = f"at most {self._max_calls} requests at once"
                raise RequestError(503, "Busy", "the server is busy", expected=expected)
            self._n_calls += 1
        cancellation = Cancellation()
        try:
            future = self._pool.submit(cancellation.run, call)
        except RuntimeError:  # shut down
            self._finish()
            raise stopping_error() from None
        future.add_done_callback(self._finish)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError:
            expected = f"at most {timeout_s} seconds"
            raise RequestError(504, "Timeout", "the request took too long", expected=expected) from None
        finally:
            cancellation.cancel()

    def close(self) -> None:
        """Wait for the calls that have begun; those that wait are cancelled."""
        self._pool.shutdown(cancel_futures=True)

    def _finish(self, _: object = None) -> None:
        with self._lock:
            self._n_calls -= 1


async def finished(future: Future[T]) -> T:
    """Wait for a future of another thread, also if this task is cancelled after it has begun.

    So a change that is made although its request was cancelled is answered with its result.

    Raises:
        CancelledError: the future was cancelled before it began, or this task was, which cancels it.
        RequestError: 503, this task was cancelled a second time.
    """
    waited = asyncio.wrap_future(future)
    try:
        await asyncio.wait([waited])
    except asyncio.CancelledError:
        if future.cancel():
            raise
    try:
        return await waited
    except asyncio.CancelledError:
        if future.cancelled():
            raise
        message = "the server is stopping; the change has begun and may be committed"
        raise RequestError(503, "Interrupted", message, headers={}) from None  # a retry could repeat the change
