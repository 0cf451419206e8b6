"""Training runs that end after their first checkpoint: killed in another process, or interrupted in this one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PROGRAM = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from quarry.training.run import train
train(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def run_and_kill(recipe: Path, out: Path) -> None:
    """Train by a recipe into `out` until a checkpoint exists, and kill the process."""
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(recipe), str(out)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and not any(out.glob("checkpoints/step-*")):
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert any(out.glob("checkpoints/step-*"))
    assert process.returncode == -signal.SIGKILL or (out / "final").exists()


def run_and_interrupt(recipe: Path, out: Path) -> None:
    """Train by a recipe into `out` and interrupt it behind the first checkpoint, without another process."""
    from quarry.training.run import train

    real = Path.rename

    def rename(path, target):
        real(path, target)
        if target.name.startswith("step-"):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, out)
    assert any(out.glob("checkpoints/step-*"))
