"""The interpreter exits cleanly, silently and soon while daemon threads are at work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from support.faults.torture import figure
from support.indexes.changes import SMALL_MERGED_OFTEN, open_index
from support.processes import run_python

from quarry.engine import Engine

TEXTS = ["a loaf of bread rises", "the pull of the moon", "which tea turns bitter", "a pawn is promoted", "honey"]
WORK = {
    "hybrid": "index.search(TEXTS[0])",
    "an encoder alone": "[encoder.encode_query(text) for text in TEXTS]",
    "commits": "index.add(TEXTS); index.commit()",
    "opening": "Engine.open(path).close()",
}


def ended(work: str, path: object, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run four daemon threads that work in a loop, and exit the interpreter meanwhile."""
    script = f"""{first}
import random, threading, time
from quarry import engine
from quarry.engine import Engine
from pathlib import Path

path, TEXTS = Path({str(path)!r}), {TEXTS!r}
encoder = engine.open_encoder()
index = Engine.open(path, writable=True, encoder=encoder, threads=2)
index.search(TEXTS)
begun = [threading.Event() for _ in range(4)]

def loop(event):
    while True:
        {work}
        event.set()

for event in begun:
    threading.Thread(target=loop, args=[event], daemon=True).start()
for event in begun:
    event.wait()
time.sleep(random.random() / 20)
"""
    return run_python("-c", script)


@pytest.mark.parametrize("what", WORK)
def test_daemon_threads_work(tmp_path, small_index, what, torture):
    for number in range(figure(1, 100)):
        path = tmp_path / str(number)
        shutil.copytree(small_index, path)
        done = ended(WORK[what], path)
        assert (done.returncode, done.stderr) == (0, "")
        with Engine.open(path, writable=True) as index:
            index.verify()
        torture.add(exits=1)


def test_the_exiting_thread_may_still_use_an_index(tmp_path, small_index):
    """An exit handler that runs while other threads wait can still search and change the index."""
    shutil.copytree(small_index, tmp_path / "index")
    first = """
import atexit

@atexit.register
def use():  # after what was registered later: after the gate is closed
    print(len(index.search(TEXTS)), index.add(["one more"]), index.commit(), len(index), flush=True)
"""
    done = ended("index.search(TEXTS, k=3)", tmp_path / "index", first)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 1 2 41\n", "")


def test_a_commit_of_an_exiting_program_begins_no_merge(tmp_path):
    """No thread is begun that the interpreter, which is exiting, does not wait for."""
    script = f"""
import atexit, threading

@atexit.register
def use():  # after the gate is closed
    index.add(documents(NEW))
    index.delete(DELETED)
    print(index.commit() > 1, [each.name for each in threading.enumerate()], flush=True)

from pathlib import Path
from support.indexes.changes import DELETED, NEW, SMALL_MERGED_OFTEN, documents, open_index, prepare

path = Path({str(tmp_path / "index")!r})
prepare("commit", path)
index = open_index(path, writable=True, thresholds=SMALL_MERGED_OFTEN)
"""
    done = run_python("-W", "ignore::DeprecationWarning", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True ['MainThread']\n", "")
    with open_index(tmp_path / "index", writable=True, thresholds=SMALL_MERGED_OFTEN) as index:
        index.verify()


def run(script: str) -> tuple[int, str, str]:
    """Run a script with its own exit gate; return its exit status, output and errors."""
    done = run_python("-W", "ignore::DeprecationWarning", "-c", _GATE + script, timeout_s=60)
    return done.returncode, done.stdout, done.stderr


_GATE = """
import os, threading
from quarry.engine.process.exit_gate import ExitGate

gate = ExitGate()
began, go_on = threading.Event(), threading.Event()

def call():
    with gate:
        began.set()
        go_on.wait()
"""


def test_a_call_that_takes_too_long_is_not_waited_for():
    script = """
threading.Thread(target=call, daemon=True).start()
began.wait()
gate.close(longest_s=0.2)
print("closed", flush=True)
"""
    assert run(script) == (0, "closed\n", "")


def test_calls_within_a_call_are_made_and_later_ones_end_the_thread():
    script = """
log = []

def calls():
    with gate:
        began.set()
        go_on.wait()
        with gate:
            log.append("within")
    with gate:
        log.append("later")
    log.append("after it")

threading.Thread(target=calls, daemon=True).start()
began.wait()
threading.Timer(0.2, go_on.set).start()
gate.close(longest_s=100)
with gate:
    log.append("on the thread that exits")
print(log, flush=True)
"""
    assert run(script) == (0, "['within', 'on the thread that exits']\n", "")


def test_a_thread_that_others_wait_for_ends_at_a_closed_gate():
    script = """
answers = []

def ask():
    answers.append(gate.begin())
    if answers[-1]:
        gate.end()

for _ in range(2):
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    gate.close()
print(answers, gate.begin(), gate.is_closed)
"""
    assert run(script) == (0, "[True, False] True True\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_waits_for_no_thread_of_its_parent():
    script = """
os.register_at_fork(after_in_child=gate.after_fork)
thread = threading.Thread(target=call, daemon=True)
thread.start()
began.wait()
with gate:
    child = os.fork()
    if not child:
        gate.close(longest_s=1000)
        os._exit(7)
    _, status = os.waitpid(child, 0)
go_on.set()
thread.join()
gate.close(longest_s=1000)
print(os.waitstatus_to_exitcode(status))
"""
    assert run(script) == (0, "7\n", "")


_HANDLER_FIRST = """
import atexit, sys, threading, time

@atexit.register
def use():  # after the gate is closed
    {handler}

from pathlib import Path
import numpy as np
from quarry.engine import Engine
from quarry.engine.thresholds import MergeLimits, Thresholds

limits = Thresholds(merging=MergeLimits(width=2))
index = Engine.open({path!r}, writable=True, create=True, dim=4, thresholds=limits)
lock, count = threading.Lock(), 0

def add():
    global count
    count += 1
    index.add([{{"id": str(count), "vectors": np.ones((1, 4), np.float32)}}])
    return index.commit()

def work():
    while True:
        with lock:
            add()
"""


def use_at_exit(path, handler: str, script: str) -> tuple[int, str, str]:
    """Run a script that ends while daemon threads work, with an exit handler registered before Quarry's."""
    first = _HANDLER_FIRST.format(path=str(path), handler=handler)
    done = run_python("-W", "ignore::DeprecationWarning", "-c", first + script, timeout_s=60)
    with Engine.open(path) as index:
        assert index.verify().n_documents == len(index) > 0
    return done.returncode, done.stdout, done.stderr


def test_an_exit_handler_gets_a_lock_that_a_daemon_thread_held(tmp_path):
    script = """
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    handler = "lock.acquire(); print('locked', flush=True)"
    assert use_at_exit(tmp_path / "index", handler, script) == (0, "locked\n", "")


def test_an_exit_handler_waits_for_a_thread_that_commits(tmp_path):
    handler = "each = threading.Thread(target=lambda: print(add() > 1, flush=True)); each.start(); each.join()"
    if sys.version_info >= (3, 12):  # which starts no threads any more then
        handler = "print(add() > 1, flush=True)"
    assert use_at_exit(tmp_path / "index", handler, "add()\n") == (0, "True\n", "")


def test_exit_while_daemon_threads_commit_and_segments_are_merged(tmp_path):
    script = """
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
end = time.monotonic() + 0.3
while time.monotonic() < end:
    with lock:
        add()
"""
    assert use_at_exit(tmp_path / "index", "pass", script) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_that_is_forked_while_the_interpreter_exits_can_call():
    script = """
os.register_at_fork(after_in_child=gate.after_fork)

def fork():
    began.wait()
    child = os.fork()
    if not child:
        with gate:
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

thread = threading.Thread(target=fork)
thread.start()
gate.close()
began.set()
thread.join()
"""
    assert run(script) == (0, "7\n", "")
