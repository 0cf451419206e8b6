"""How much memory this process holds."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["peak_rss_bytes", "private_bytes", "rss_bytes"]


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux of this program alone: what getrusage says also counts the process that started it.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def rss_bytes() -> int:
    """The resident set now; where the system does not say, the largest so far."""
    return _status("VmRSS") or peak_rss_bytes()


def private_bytes() -> int:
    """What of the resident set no file backs, so that no other process can share it; 0 where nobody says."""
    return _status("RssAnon") or 0


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), None)
