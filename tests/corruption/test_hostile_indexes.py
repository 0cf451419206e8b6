"""An index of a stranger with any value of its files changed gives answers or typed errors, and no crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quarry

N_PARTS = 41  # the tests try one change of so many
HERE = Path(__file__).parents[1]


@pytest.mark.parametrize(("metric", "centroids"), [("ip", "int8"), ("l2", "none"), ("cosine", "float16")])
def test_every_field_and_every_array(tmp_path, metric, centroids):
    command = [
        sys.executable,
        "-W",
        "ignore",
        HERE / "support/faults/hostile_index.py",
        tmp_path,
        metric,
        centroids,
    ]
    search = os.pathsep.join([str(HERE), str(Path(quarry.__file__).parents[1])])
    done = subprocess.run(
        [*map(str, command), "7", str(N_PARTS)],
        env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert not failures, failures[:5]
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2000:])
