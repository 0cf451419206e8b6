"""How much memory this process holds."""

from __future__ import annotations

import resource
import sys
from collections import Counter
from pathlib import Path

__all__ = ["peak_rss_bytes", "private_bytes", "resident_by_file", "rss_bytes"]

_LEAST_BYTES = 1 << 19


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


def resident_by_file() -> dict[str, int]:
    """The resident set in bytes by the name of the file that backs it, largest first; empty where nobody says.

    What no file backs is ``private``, copies of a file's changed pages included; files with less than half a
    megabyte are ``other files``.
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
