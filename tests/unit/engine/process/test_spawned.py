"""Processes that begin with interrupts blocked."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
from support.processes import run_python

from quarry.engine.process.spawned import ignore_interrupts, start_uninterrupted

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks on this system")


def _interrupt_itself(connection):
    os.kill(os.getpid(), signal.SIGINT)  # blocked
    connection.send(signal.SIGINT in signal.sigpending())
    ignore_interrupts()
    os.kill(os.getpid(), signal.SIGINT)  # ignored
    connection.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_interrupts_are_blocked_until_they_are_ignored():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_interrupt_itself, args=(theirs,))
    start_uninterrupted(process)
    process.join(60)
    assert process.exitcode == 0
    assert [ours.recv(), ours.recv()] == [True, False]


@pytest.mark.parametrize("blocked", [(), (signal.SIGINT,)])
def test_mask_of_this_thread_is_as_before(blocked):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        process = multiprocessing.get_context("spawn").Process(target=ignore_interrupts)
        start_uninterrupted(process)
        process.join(60)
        assert (signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())) == bool(blocked)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_mask_of_this_thread_is_as_before_when_the_tracker_is_started():
    """The tracker of resources is started with the first process, and unblocks the signal."""
    script = """
import multiprocessing, signal
from quarry.engine.process.spawned import ignore_interrupts, start_uninterrupted

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    process = multiprocessing.get_context("spawn").Process(target=ignore_interrupts)
    start_uninterrupted(process)
    process.join(60)
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    assert run_python("-c", script).stdout == "True\n"
