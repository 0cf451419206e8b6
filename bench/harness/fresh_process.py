"""Runs a function in a new process, so that memory and first-use costs are of that function alone; measures both.

The new process imports little besides the function's module. The function takes one mapping and returns one, both
as JSON. The process may use another interpreter, for example that of another library's environment.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

__all__ = ["ROOT", "ProcessFailed", "in_fresh_process", "peak_rss_bytes", "private_bytes", "rss_bytes"]

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

_TIMEOUT_S = 1200


class ProcessFailed(RuntimeError):
    """The function raised an exception, or its process failed or timed out; the message ends with its output."""


def in_fresh_process(
    target: str,
    parameters: Mapping[str, object],
    python: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, object]:
    """Call a function in a new process and return its result.

    Args:
        target: ``module:function``.
        parameters: the function's argument.
        python: the interpreter to run.
        environment: variables in addition to those of this process.
        timeout_s: seconds until the process is ended.

    Raises:
        ProcessFailed: the function returned no result.
    """
    import tempfile

    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # bench is not installed
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(environment or {})}
    with tempfile.TemporaryDirectory() as folder:
        result_path = Path(folder) / "result.json"
        command = [str(python), "-m", "bench.harness.fresh_process", target, str(result_path)]
        failure = _run(command, json.dumps(parameters), variables, folder, timeout_s)
        if failure:
            raise ProcessFailed(f"{target}: {failure}")
        result: dict[str, object] = json.loads(result_path.read_text(encoding="utf-8"))
    return result


def _run(command: list[str], standard_input: str, variables: dict[str, str], folder: str, timeout_s: float) -> str:
    """Run a process; return "" if it succeeded, otherwise how it ended and the end of its output."""
    import subprocess

    try:
        done = subprocess.run(
            command,
            input=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=variables,
            cwd=folder,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no result within {timeout_s} s"
    return f"ended with {done.returncode}: {done.stdout[-2000:].strip()}" if done.returncode else ""


def _main(target: str, result_path: str) -> int:
    module, _, function = target.partition(":")
    result = getattr(import_module(module), function)(json.load(sys.stdin))
    Path(result_path).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(*sys.argv[1:]))


def peak_rss_bytes() -> int:
    """Return the largest resident set of this process so far, in bytes.

    On Linux it is of this program alone: getrusage also counts the process that started it.
    """
    n_bytes = _status("VmHWM")
    if n_bytes is not None:
        return n_bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def rss_bytes() -> int:
    """Return the resident set in bytes, or the largest so far if the system does not report it."""
    return _status("VmRSS") or peak_rss_bytes()


def private_bytes() -> int:
    """Return the part of the resident set that no file backs, which is not shared; 0 if it is not reported."""
    return _status("RssAnon") or 0


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), None)
