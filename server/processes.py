"""Several processes that answer the requests of one socket, started again when one of them ends.

uvicorn's own supervisor starts a process that fails at once again without end, leaves its processes behind when it
is killed itself, and does not tell when all of them answer.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from socket import socket
from types import FrameType

from prometheus_client.multiprocess import mark_process_dead

from quarry.engine.process.spawned import ignore_interrupts, start_uninterrupted
from quarry.formats.errors import WorkerFailed
from quarry.server.http.metrics import SHARED_FOLDER
from quarry.server.running import StopSignals

__all__ = ["Serve", "run_processes"]

Serve = Callable[[socket, Callable[[], None]], object]
"""Serves until SIGTERM, given the socket and what to call when it has started; can be pickled."""

_MAX_ATTEMPTS = 3
"""Number of times in a row that a process is started at once without answering any request."""
_MAX_DOUBLINGS = 5  # of the second that passes before further starts
_SECOND = b"2"
_STOP_WITHIN_S = 0.2  # a signal that ends all processes at once reaches this one a little later
_log = logging.getLogger(__name__)


def run_processes(serve: Serve, opened: socket, n_processes: int, started: Callable[[], None]) -> bool:
    """Serve in several processes until SIGINT or SIGTERM; then finish the requests that have begun.

    A process that ends is started again, after a pause if it has ended several times before it answered requests.
    A second signal ends all of them at once. Processes are started by "spawn". They end when this process does,
    however it ends.

    Args:
        serve: runs in each process; it must end in time once it is to stop.
        opened: the socket that all of them accept connections from.
        n_processes: their number.
        started: called once, when all of them answer requests.

    Returns:
        Whether the processes ended by themselves; False after a second signal.

    Raises:
        WorkerFailed: a process ended three times in a row before it answered requests, and either they have never
            all answered requests, or all the others have ended so too.
    """
    with (
        _shared_metrics(),
        _signals() as stop,
        _Processes(serve, opened, stop) as processes,
    ):
        for number in range(n_processes):
            if stop.poll():
                break
            processes.start(number)
        while not processes.look():
            if processes.are_ready and not processes.were_ready:
                started()
                processes.were_ready = True
    return not processes.were_killed


@dataclass
class _Process:
    """A process, the connection whose end stops it, and how often it was started in a row.

    While it waits to be started again, `due` is the time for that, of `time.monotonic`.
    """

    process: multiprocessing.process.BaseProcess
    connection: Connection
    n_attempts: int
    is_ready: bool = False
    due: float | None = None


class _Processes:
    """The processes by their numbers; stopped at the end of the context.

    Attributes:
        were_ready: whether all of them have answered requests at the same time.
        were_killed: whether a second signal ended them.
    """

    def __init__(self, serve: Serve, opened: socket, stop: Connection) -> None:
        self._serve = serve
        self._opened = opened
        self._stop = stop
        self.were_ready = self.were_killed = False
        self._running: dict[int, _Process] = {}

    @property
    def are_ready(self) -> bool:
        """Whether all of them answer requests."""
        return all(each.is_ready for each in self._running.values())

    def start(self, number: int, n_attempts: int = 1) -> None:
        """Start a process."""
        context = multiprocessing.get_context("spawn")
        own, other = context.Pipe()
        name = f"quarry-serve-{number}"
        process = context.Process(target=_run, args=(self._serve, self._opened, other), name=name)
        start_uninterrupted(process)
        other.close()
        self._running[number] = _Process(process, own, n_attempts)

    def look(self) -> bool:
        """Wait for a process that is ready or has ended, which is started again; return whether to stop."""
        alive = [each for each in self._running.values() if each.due is None]
        waited: list[Connection | int] = [self._stop]
        waited += [each.process.sentinel for each in alive]
        waited += [each.connection for each in alive if not each.is_ready]
        signaled = wait(waited, self._start_due())
        for number, each in list(self._running.items()):
            if each.connection in signaled and not each.is_ready:
                with contextlib.suppress(EOFError, OSError):  # it has ended, as its sentinel says
                    each.connection.recv_bytes()
                    each.is_ready, each.n_attempts = True, 0
            if each.process.sentinel in signaled and not self._stop.poll(_STOP_WITHIN_S):
                self._replace(number, each)
        return self._stop.poll()

    def _start_due(self) -> float | None:
        """Start the processes whose time has come; return the seconds until that of the next one."""
        pauses = [
            (each.due - time.monotonic(), number, each.n_attempts)
            for number, each in self._running.items()
            if each.due is not None
        ]
        for pause_s, number, n_attempts in pauses:
            if pause_s <= 0:
                self.start(number, n_attempts + 1)
        return max(0.0, min(pause_s for pause_s, *_ in pauses)) if pauses else None

    def _replace(self, number: int, ended: _Process) -> None:
        ended.process.join()
        ended.connection.close()
        # What it has done still counts, but not what it used.
        mark_process_dead(ended.process.pid)  # type: ignore[no-untyped-call]
        status = ended.process.exitcode
        others = [each for each in self._running.values() if each is not ended]
        n_failures = ended.n_attempts - _MAX_ATTEMPTS
        if n_failures < 0:
            _log.warning("process %d ended with status %s and is started again", number, status)
            self.start(number, ended.n_attempts + 1)
        elif self.were_ready and any(each.n_attempts < _MAX_ATTEMPTS for each in others):
            pause_s = 1 << min(n_failures, _MAX_DOUBLINGS)
            _log.warning("process %d ended with status %s and is started again in %d s", number, status, pause_s)
            ended.is_ready, ended.due = False, time.monotonic() + pause_s
        else:
            raise WorkerFailed(
                "a process of the server ended each time before it answered requests",
                expected=f"a start within {_MAX_ATTEMPTS} attempts",
                actual=f"exit status {status}",
            )

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """Let all processes finish their requests, or kill them when a second signal arrives."""
        for each in self._running.values():
            if not each.is_ready:
                each.process.terminate()  # ends it at once, unless it has begun to answer requests
            each.connection.close()
        waited = {each.process.sentinel for each in self._running.values()}
        while waited:
            signaled = wait([self._stop, *waited])
            if self._stop in signaled and self._stop.recv_bytes() == _SECOND:
                self.were_killed = True
                break
            waited.difference_update(signaled)
        for each in self._running.values():
            each.process.kill()
            each.process.join()


def _run(serve: Serve, opened: socket, connection: Connection) -> None:
    """Serve in this process until the other end of the connection is closed."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the process that stops all of them
    ignore_interrupts()

    def started() -> None:
        with contextlib.suppress(OSError):
            connection.send_bytes(b"")
        threading.Thread(target=_stop_with, args=(connection,), daemon=True).start()

    with opened:
        serve(opened, started)


def _stop_with(connection: Connection) -> None:
    """End this process as SIGTERM does when the other end of a connection is closed."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv_bytes()
    signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def _shared_metrics() -> Iterator[None]:
    """Let the processes that are started share a folder of metrics, for which prometheus_client asks on import."""
    before = os.environ.get(SHARED_FOLDER)
    with tempfile.TemporaryDirectory(prefix="quarry-serve-", ignore_cleanup_errors=True) as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FOLDER]
            if before is not None:
                os.environ[SHARED_FOLDER] = before


@contextlib.contextmanager
def _signals() -> Iterator[Connection]:
    """Return a connection that can be read after SIGINT or SIGTERM; for a second signal it has `_SECOND`."""
    stop, write = multiprocessing.Pipe(duplex=False)
    signals = StopSignals()

    def receive(number: int, frame: FrameType | None) -> None:
        write.send_bytes(_SECOND if signals.is_second() else b"")

    before = {each: signal.signal(each, receive) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        stop.close()
        write.close()
