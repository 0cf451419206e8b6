"""Describes the environment of a measurement: machine, versions of libraries, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["describe_environment"]

_PACKAGES = (
    *("numpy", "onnxruntime", "tokenizers", "faiss-cpu", "simsimd", "zstandard", "PyStemmer"),
    *("ir-measures", "bm25s", "numba"),
)


@cache
def describe_environment() -> dict[str, object]:
    """Return the machine, the commit and the versions of libraries, which are part of every raw result."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _processor() -> str:
    """Return the processor's name with its family and model: one name may cover several generations."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine()
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
