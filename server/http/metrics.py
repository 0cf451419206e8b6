"""Figures of a server in the text format of Prometheus.

The format is that of "Exposition formats" in the documentation of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import bisect
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["METRICS_TYPE", "Metrics"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, object], float]


class Metrics:
    """Counts requests by path, method and status, and their durations. Used by the event loop alone."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[str, _Histogram] = {}
        self._documents: Counter[tuple[str, str]] = Counter()
        self._started = time.time()
        self.n_in_progress = 0

    def count_request(self, path: str, method: str, status: int, duration_s: float) -> None:
        """Count a request.

        Args:
            path: the template of its path, of which there are few.
            method: its method.
            status: status of the response.
            duration_s: seconds from its headers to the end of the response.
        """
        self._requests[path, method, status] += 1
        self._durations.setdefault(path, _Histogram()).add(duration_s)

    def count_documents(self, index: str, change: str, count: int) -> None:
        """Count documents of an index that were "added" or "deleted"."""
        self._documents[index, change] += count

    def text(self, sizes: Mapping[str, int | None]) -> str:
        """Return all figures.

        Args:
            sizes: the number of documents of each index; None: it cannot be read.
        """
        return "".join(line + "\n" for line in self._lines(sizes))

    def _lines(self, sizes: Mapping[str, int | None]) -> Iterator[str]:
        requests: list[Sample] = [
            ({"path": path, "method": method, "status": status}, count)
            for (path, method, status), count in sorted(self._requests.items())
        ]
        yield from _family("quarry_http_requests_total", "counter", "Requests answered.", requests)
        yield from _family(
            "quarry_http_requests_in_progress", "gauge", "Requests being answered.", [({}, self.n_in_progress)]
        )
        yield from self._duration_lines()
        up: list[Sample] = [({"index": name}, float(size is not None)) for name, size in sizes.items()]
        yield from _family("quarry_index_up", "gauge", "Whether the index can be read.", up)
        known: list[Sample] = [({"index": name}, size) for name, size in sizes.items() if size is not None]
        yield from _family("quarry_index_documents", "gauge", "Documents of the index.", known)
        for change in ("added", "deleted"):
            counts: list[Sample] = [
                ({"index": name}, count)
                for (name, kind), count in sorted(self._documents.items())
                if kind == change
            ]
            what = f"Documents {change} by this server."
            yield from _family(f"quarry_documents_{change}_total", "counter", what, counts)
        yield from _process_lines(self._started)

    def _duration_lines(self) -> Iterator[str]:
        name = "quarry_http_request_duration_seconds"
        yield f"# HELP {name} Time from the headers of a request to the end of its response."
        yield f"# TYPE {name} histogram"
        for path, histogram in sorted(self._durations.items()):
            for bound, count in histogram.cumulative():
                yield _sample(f"{name}_bucket", {"path": path, "le": bound}, count)
            yield _sample(f"{name}_sum", {"path": path}, histogram.total_s)
            yield _sample(f"{name}_count", {"path": path}, histogram.n)


class _Histogram:
    """Durations, counted by bounds in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self.total_s = 0.0
        self.n = 0

    def add(self, duration_s: float) -> None:
        self._counts[bisect.bisect_left(_BOUNDS_S, duration_s)] += 1
        self.total_s += duration_s
        self.n += 1

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield each bound and the number of durations up to it."""
        count = 0
        for bound, own in zip((*map(repr, _BOUNDS_S), "+Inf"), self._counts, strict=True):
            count += own
            yield bound, count


def _family(name: str, kind: str, what: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    inner = ",".join(f'{key}="{str(each).translate(_ESCAPES)}"' for key, each in labels.items())
    return f"{name}{{{inner}}} {value!r}" if inner else f"{name} {value!r}"


def _process_lines(started: float) -> Iterator[str]:
    """Yield the figures that Prometheus names for every process."""
    times = os.times()
    yield from _family(
        "process_cpu_seconds_total", "counter", "CPU time of the process.", [({}, times.user + times.system)]
    )
    yield from _family("process_start_time_seconds", "gauge", "When the server started.", [({}, started)])
    if sys.platform == "linux":
        resident = int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield from _family("process_resident_memory_bytes", "gauge", "Resident memory.", [({}, resident)])
        n_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names alone
        yield from _family("process_open_fds", "gauge", "Open file descriptors.", [({}, n_files)])
