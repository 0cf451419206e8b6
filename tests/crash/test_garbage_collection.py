"""Finalizers run by the garbage collector, at any allocation, in any thread and under any lock, wait for no
thread.

Each script leaves an error that only the garbage collector can free, with everything its traceback refers to, and
starts a collection at a critical moment. If a finalizer waited for a thread, the script would hang, or report an
ignored exception on standard error.
"""

from __future__ import annotations

import pytest
from support.indexes.word_encoder import WordEncoder
from support.processes import run_python

from quarry import engine

_PREPARE = """\
import faulthandler, gc, sys, threading
from pathlib import Path

from support.indexes.word_encoder import WordEncoder
from quarry.engine import Engine, InvalidDocument

faulthandler.dump_traceback_later(100, exit=True)
lock = threading.Lock()
TEXTS = [f"text {number}" for number in range(30)]

class Encoder(WordEncoder):
    def windows(self, text):
        with lock:
            return iter(list(super().windows(text)))

encoder = Encoder(dim=16)

def leave_error(index):
    # an error that only the garbage collector frees
    try:
        index.add([*TEXTS, "...", *TEXTS])
    except InvalidDocument as error:
        error.itself = error
"""

MOMENTS = {
    # CPython 3.11 and 3.12 allocate memory under this lock; later versions have no such lock in Python.
    "under the lock of starting threads": """
        for _ in range(10):
            leave_error(index)
            with getattr(threading, "_shutdown_locks_lock", lock):
                gc.collect()
        """,
    "under a lock that the encoder needs": """
        for _ in range(10):
            leave_error(index)
            with lock:
                gc.collect()
        """,
    "after each number of allocations of a starting thread": """
        thresholds = gc.get_threshold()
        for n_allocations in range(1, 60):
            gc.collect()
            gc.disable()
            leave_error(index)
            thread = threading.Thread(target=list)
            gc.set_threshold(gc.get_count()[0] + n_allocations, 1 << 20, 1 << 20)
            gc.enable()
            thread.start()
            thread.join()
            gc.set_threshold(*thresholds)
        """,
}


@pytest.fixture
def path(tmp_path):
    """Build an index that the scripts' encoder can open."""
    engine.build(["one text"], tmp_path / "index", encoder=WordEncoder(dim=16))
    return tmp_path / "index"


@pytest.mark.parametrize("moment", MOMENTS)
def test_references_of_an_error_are_collected(path, moment):
    script = f"""{_PREPARE}
with Engine.open(Path({str(path)!r}), writable=True, encoder=encoder, threads=4) as index:
    if True:{MOMENTS[moment]}
    index.rollback()
"""
    done = run_python("-X", "dev", "-c", script, timeout_s=120)
    assert (done.returncode, done.stderr) == (0, "")
