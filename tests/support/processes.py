"""Python processes that tests start, wait for, and kill at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """Return the environment of a Python process that imports the packages and tests/support."""
    folders = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONHASHSEED": "0"}


def run_python(*words: object, timeout_s: float | None = 300) -> subprocess.CompletedProcess[str]:
    """Run the interpreter with these arguments until it ends; return its status and output."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=timeout_s
    )


def fork(action: Callable[[], object]) -> int:
    """Let a child do something and end, with status 0, or 1 after an error, which is printed; return its id."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def until(condition: Callable[[], object], longest_s: float = 20, pause_s: float = 0.005) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + longest_s
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(pause_s)


def kill_at_rename(name: str, moment: str, number: int = 1) -> None:
    """Kill this process by SIGKILL when it renames a file to a name that contains `name`.

    Args:
        name: part of the new name.
        moment: "before" or "after" the rename; any other: never.
        number: of the rename, among those to such a name.
    """
    rename = os.rename
    n_renamed = 0

    def renamed(source: str, target: str) -> None:
        nonlocal n_renamed
        n_renamed += name in Path(target).name
        is_chosen = name in Path(target).name and n_renamed == number
        if is_chosen and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if is_chosen and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    os.rename = renamed
