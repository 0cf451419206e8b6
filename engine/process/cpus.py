"""How many CPUs this process may use."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

__all__ = ["n_cpus"]

_GROUPS = Path("/proc/self/cgroup")
_HIERARCHIES = Path("/sys/fs/cgroup")


def n_cpus(groups: Path = _GROUPS, hierarchies: Path = _HIERARCHIES) -> int:
    """Return the number of CPUs that this process may run on, at most the quota of its container, rounded up.

    Args:
        groups: file with the control groups of this process; none on other systems than Linux.
        hierarchies: folder that the control groups are mounted in, of version 1 or 2.
    """
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        for line in groups.read_text("utf-8").splitlines():
            controllers, name = line.split(":", 2)[1:]
            if not controllers or "cpu" in controllers.split(","):
                top = hierarchies / "cpu" if controllers else hierarchies
                group = top / name.lstrip("/")
                # the limits of all groups above it hold, too
                quotas = (_quota(each) for each in (group, *group.parents) if each.is_relative_to(top))
                n = max(1, math.ceil(min(n, *quotas)))
    return n


def _quota(group: Path) -> float:
    """Return how many CPUs a control group may use at a time on average; infinity without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text("ascii").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota, period = ((group / f"cpu.cfs_{each}_us").read_text("ascii") for each in ("quota", "period"))
        return math.inf if int(quota) < 0 else int(quota) / int(period)
    return math.inf
