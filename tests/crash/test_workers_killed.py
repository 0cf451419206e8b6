"""A killed build with several processes leaves the old or the new index, and no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.indexes.sharded import ENCODER, random_documents
from support.processes import environment

from quarry import engine
from quarry.engine import Engine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")

_BUILD = """
import signal, sys, time
from pathlib import Path
from support.indexes.sharded import ENCODER, random_documents
from support.processes import kill_at_rename
from quarry import engine

path, moment = sys.argv[1:]

def documents():
    yield from random_documents(150)
    if moment == "reading":
        Path(path).with_name("children").write_text("")
        time.sleep(300)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore it
    kill_at_rename("MANIFEST", moment)
    engine.build(documents(), path, encoder=ENCODER, workers=2, overwrite=True)
"""


def start(tmp_path, moment):
    """Start to replace an index of 20 documents by one of 150; return the process."""
    path, script = tmp_path / "idx", tmp_path / "script.py"
    engine.build(random_documents(20), path, encoder=ENCODER)
    script.write_text(_BUILD)
    command = [sys.executable, script, path, moment]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, start_new_session=True)


def staging(tmp_path):
    return [each for each in tmp_path.iterdir() if each.name.startswith(".quarry-")]


def check(tmp_path, n_documents):
    """Check that the index is complete, and that the next writer deletes the orphan files beside it."""
    with Engine.open(tmp_path / "idx", encoder=ENCODER) as index:
        assert index.verify().n_documents == len(index) == n_documents
    Engine.open(tmp_path / "idx", encoder=ENCODER, writable=True).close()
    assert not staging(tmp_path)
    assert {each.suffix for each in (tmp_path / "idx").iterdir()} == {"", ".lock", ".seg"}


@pytest.mark.parametrize(("moment", "n_documents"), [("before", 20), ("after", 150)])
def test_killed_at_the_rename(tmp_path, moment, n_documents):
    process = start(tmp_path, moment)
    assert process.wait(300) == -signal.SIGKILL
    process.stderr.close()
    assert staging(tmp_path)
    check(tmp_path, n_documents)


def _members(group):
    """Return the running processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(its_group) == group and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_no_process_is_left(tmp_path, name):
    """No process of the group survives, if all get Ctrl-C or if the main process is killed."""
    process = start(tmp_path, "reading")
    end = time.monotonic() + 200
    while not (tmp_path / "children").exists() or not list(tmp_path.glob(".quarry-*/*.seg")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    if name == "SIGKILL":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
    process.wait(200)
    while _members(process.pid):
        assert time.monotonic() < end
        time.sleep(0.05)
    output = process.stderr.read().decode()
    process.stderr.close()
    if name == "SIGINT":
        assert not staging(tmp_path)
        assert output.rstrip().endswith("KeyboardInterrupt") or "The build was not completed" in output
        assert output.count("KeyboardInterrupt") == 1  # the other processes print nothing
    check(tmp_path, 20)


_INTERRUPTED_STARTS = """
import os, signal, sys
from support.indexes.sharded import ENCODER, random_documents
from quarry import engine

signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ != "__main__":
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    engine.build(random_documents(20), sys.argv[1], encoder=ENCODER, workers=2)
"""


def test_interrupt_while_processes_import_the_program(tmp_path):
    """Ctrl-C that reaches a process before its own first line does not end it."""
    script = tmp_path / "script.py"
    script.write_text(_INTERRUPTED_STARTS)
    command = [sys.executable, script, tmp_path / "idx"]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=200, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    check(tmp_path, 20)
