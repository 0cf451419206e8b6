"""The fuzzer finds nothing in its first few thousand inputs, nor in the millions of the torture level."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from changes import environment
from small_index import build
from torture import figure


def test_hostile_files_that_coverage_leads_to(tmp_path, torture):
    pytest.importorskip("atheris", reason="atheris is not installed", exc_type=ImportError)
    (tmp_path / "index").mkdir()
    build(tmp_path / "index")
    n_runs = figure(2000, 10_000_000)
    program = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), f"-runs={n_runs}", "-seed=1"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    torture.seed = 1
    torture.add(runs=n_runs, inputs_kept=sum(1 for _ in (tmp_path / "corpus").iterdir()))
