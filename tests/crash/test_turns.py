"""Processes create one index at the same time and take turns changing it; some of them are killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.indexes.changes import stray_files
from support.indexes.word_encoder import WordEncoder
from support.processes import environment

from quarry.engine import Engine

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")

SCRIPT = """
import os, signal, sys
from support.indexes.word_encoder import WordEncoder
from quarry.engine import Engine

path, name, shards, is_killed = sys.argv[1], sys.argv[2], int(sys.argv[3]) or None, sys.argv[4] == "killed"
sys.stdin.readline()
for turn in range(3):
    with Engine.open(
        path, create=True, writable=True, wait=300, shards=shards, encoder=WordEncoder(dim=16), threads=1
    ) as index:
        assert all(f"{name} {before}" in index for before in range(turn))
        index.add([{"id": f"{name} {turn}", "text": f"text{turn} of {name}"}])
        if is_killed and turn == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        index.commit()
with Engine.open(path, create=True, encoder=WordEncoder(dim=16)) as reader:
    assert f"{name} 2" in reader
"""


@pytest.mark.parametrize("shards", [0, 2])
def test_every_process_gets_its_turns(tmp_path, shards):
    path, n_processes = tmp_path / "index", 3
    kinds = ["killed" if number == 0 else "whole" for number in range(n_processes)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), str(number), str(shards), kind],
            env=environment(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, kind in enumerate(kinds)
    ]
    for process in processes:  # all processes are started first, so that they begin together
        process.stdin.write("begin\n")
        process.stdin.flush()
    for process, kind in zip(processes, kinds, strict=True):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == (-signal.SIGKILL if kind == "killed" else 0), errors
    with Engine.open(path, writable=True, encoder=WordEncoder(dim=16), threads=1) as index:
        index.verify()
        assert len(index) == 3 * (n_processes - 1) + 1
    if not shards:
        assert not stray_files(path)
