"""What the features of libraries are tried with runs, for the library that every Python has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_fts5_is_tried(repository: Path) -> None:
    command = [sys.executable, "-m", "bench.peers.features", "sqlite3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=repository)
    first, *lines = done.stdout.splitlines()
    assert first.startswith("sqlite3 3.")
    found = dict(line.strip().split(": ", 1) for line in lines)
    assert found["a phrase"] == "[('moon',)]"
    assert found["a typing error"] == "[]"
    assert found["places"].startswith("[('The Moon raises the [tides].',)")
    assert found["a regular expression"] == "OperationalError: no such function: regexp"
    assert found["after a kill"] == "(-9, [(2,)])"
