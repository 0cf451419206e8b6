"""Starts of processes that Ctrl-C is not for: the terminal sends it to them and to the one that started them."""

from __future__ import annotations

import signal
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess

__all__ = ["ignore_interrupts", "start_uninterrupted"]

_HAS_MASKS = hasattr(signal, "pthread_sigmask")  # not on Windows


def start_uninterrupted(process: SpawnProcess) -> None:
    """Start a process that no interrupt ends before it calls `ignore_interrupts`.

    It begins with SIGINT blocked, so that none arrives while it imports modules, the program's own among them. On
    Windows, which has no signal masks, it is started as usual.
    """
    if not _HAS_MASKS:
        process.start()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        resource_tracker.ensure_running()  # unblocks SIGINT if it starts the tracker, as `start` would
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore SIGINT in this process from now on, also one that has arrived while it was blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
