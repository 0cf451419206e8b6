"""Measures the memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["peak_rss_bytes", "private_bytes", "rss_bytes"]


def peak_rss_bytes() -> int:
    """Return the largest resident set of this process so far, in bytes.

    On Linux it is of this program alone: getrusage also counts the process that started it.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
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
