"""Measures the memory of this process."""

from __future__ import annotations

import resource
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

__all__ = ["peak_rss_bytes", "private_bytes", "reset_peak_rss", "resident_by_file", "rss_bytes"]

_LEAST_BYTES = 1 << 19


def peak_rss_bytes() -> int:
    """Return the largest resident set of this process so far, in bytes.

    On Linux it is of this program alone: getrusage also counts the process that started it.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak_rss() -> None:
    """Let `peak_rss_bytes` count from now on, if the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def rss_bytes() -> int:
    """Return the resident set in bytes, or the largest so far if the system does not report it."""
    return _status("VmRSS") or peak_rss_bytes()


def private_bytes() -> int:
    """Return the part of the resident set that no file backs, which is not shared; 0 if it is not reported."""
    return _status("RssAnon") or 0


def resident_by_file() -> dict[str, int]:
    """Return the resident set in bytes by file, largest first; empty if it is not reported.

    ``private`` is not backed by a file (or is a copy of changed pages); ``other files`` are files with less than
    half a megabyte.
    """
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: Counter[str] = Counter()
    name = ""
    for key, *values in map(str.split, lines):
        if not key.endswith(":"):  # the first line of a mapping: addresses, rights, offset, device, inode, path
            name = Path(values[4]).name if len(values) > 4 else ""
        elif key == "Rss:":
            found[name] += int(values[0]) * 1024
        elif key == "Anonymous:":
            found[name] -= int(values[0]) * 1024
            found["private"] += int(values[0]) * 1024
    large = {name: n_bytes for name, n_bytes in found.most_common() if n_bytes >= _LEAST_BYTES}
    return {**large, "other files": sum(found.values()) - sum(large.values())}


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), None)
