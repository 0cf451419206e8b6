"""Figures of the processes of a server: values, their sums, and the files in which processes leave them."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BOUNDS_S", "Figures", "FiguresFolder", "Histogram"]

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Histogram:
    """Durations, counted by bounds in seconds.

    Attributes:
        counts: number of durations up to each of `BOUNDS_S` and above the one before, and above the last.
        total_s: sum of the durations.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    @property
    def n(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    def add(self, duration_s: float) -> None:
        """Count a duration."""
        self.counts[bisect.bisect_left(BOUNDS_S, duration_s)] += 1
        self.total_s += duration_s

    def include(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.counts = [own + each for own, each in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield each bound and the number of durations up to it."""
        count = 0
        for bound, own in zip((*map(repr, BOUNDS_S), "+Inf"), self.counts, strict=True):
            count += own
            yield bound, count


@dataclass
class Figures:
    """Counts and memory of a process, or of several together.

    Attributes:
        requests: number of requests by path, method and status.
        durations: of requests, by path.
        documents: number of documents by index and by change, which is "added" or "deleted".
        cpu_s: CPU seconds.
        n_in_progress: requests that are being answered.
        resident_bytes: resident memory; 0 if unknown.
        n_files: open file descriptors; 0 if unknown.
    """

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    durations: dict[str, Histogram] = field(default_factory=dict)
    documents: Counter[tuple[str, str]] = field(default_factory=Counter)
    cpu_s: float = 0.0
    n_in_progress: int = 0
    resident_bytes: int = 0
    n_files: int = 0

    def include(self, other: Figures, *, has_ended: bool = False) -> None:
        """Add the figures of another process.

        Args:
            other: the figures.
            has_ended: whether the process has ended: then what it has done counts, not what it used at the end.
        """
        self.requests.update(other.requests)
        self.documents.update(other.documents)
        for path, histogram in other.durations.items():
            self.durations.setdefault(path, Histogram()).include(histogram)
        self.cpu_s += other.cpu_s
        if not has_ended:
            self.n_in_progress += other.n_in_progress
            self.resident_bytes += other.resident_bytes
            self.n_files += other.n_files

    def measure_process(self) -> None:
        """Set what this process uses."""
        times = os.times()
        self.cpu_s = times.user + times.system
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_bytes().split()[1])
            self.resident_bytes = pages * os.sysconf("SC_PAGE_SIZE")
            self.n_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names alone

    def to_json(self) -> str:
        """Return the figures as a text of JSON."""
        return json.dumps(
            {
                "requests": [[*key, count] for key, count in self.requests.items()],
                "durations": {path: [each.counts, each.total_s] for path, each in self.durations.items()},
                "documents": [[*key, count] for key, count in self.documents.items()],
                "used": [self.cpu_s, self.n_in_progress, self.resident_bytes, self.n_files],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Figures:
        """Return the figures of a text of JSON that `to_json` has made."""
        read = json.loads(text)
        return cls(
            Counter({(path, method, status): count for path, method, status, count in read["requests"]}),
            {path: Histogram(counts, total_s) for path, (counts, total_s) in read["durations"].items()},
            Counter({(index, change): count for index, change, count in read["documents"]}),
            *read["used"],
        )


class FiguresFolder:
    """A folder in which each process of a server writes its figures, so that any of them can report the sums.

    A process that replaces one that has ended continues from its figures, so that no sum ever becomes smaller.

    Args:
        folder: the folder, which nothing else uses.
        number: of this process, from 0.
        started: when the server was started, in seconds since the epoch.
    """

    def __init__(self, folder: Path, number: int, started: float) -> None:
        self.started = started
        self._folder = folder
        self._own = folder / f"{number}.json"
        self._before = Figures()
        with contextlib.suppress(FileNotFoundError):
            self._before.include(Figures.from_json(self._own.read_text("utf-8")), has_ended=True)

    def write(self, figures: Figures) -> None:
        """Leave the figures of this process, in one step."""
        total = self._with_before(figures)
        new = self._own.with_suffix(".new")
        new.write_text(total.to_json(), "utf-8")
        new.replace(self._own)

    def total(self, figures: Figures) -> Figures:
        """Return the sum of this process's figures and of what the others have left."""
        total = self._with_before(figures)
        for other in self._others():
            total.include(other)
        return total

    def _with_before(self, figures: Figures) -> Figures:
        total = Figures()
        for each in (self._before, figures):
            total.include(each)
        return total

    def _others(self) -> Iterable[Figures]:
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                yield Figures.from_json(path.read_text("utf-8"))
