"""Figures of a server in the text format of Prometheus.

The format is that of "Exposition formats" in the documentation of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping

from quarry.server.http.figures import Figures, FiguresFolder, Histogram

__all__ = ["METRICS_TYPE", "Metrics"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WRITE_AFTER_S = 0.5
"""Seconds after which the figures of a request are seen by the other processes of the server."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, object], float]


class Metrics:
    """Counts requests by path, method and status, and their durations. Used by the event loop alone.

    Args:
        folder: of the figures of all processes of the server, whose sums are shown; None: there is only this one.
    """

    def __init__(self, folder: FiguresFolder | None = None) -> None:
        self._own = Figures()
        self._folder = folder
        self._is_write_due = False
        self._started = time.time() if folder is None else folder.started

    def begin_request(self) -> None:
        """Count a request that is being answered."""
        self._own.n_in_progress += 1

    def end_request(self, path: str, method: str, status: int, duration_s: float) -> None:
        """Count a request that was being answered.

        Args:
            path: the template of its path, of which there are few.
            method: its method.
            status: status of the response.
            duration_s: seconds from its headers to the end of the response.
        """
        self._own.n_in_progress -= 1
        self._own.requests[path, method, status] += 1
        self._own.durations.setdefault(path, Histogram()).add(duration_s)
        if self._folder is not None and not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_later(_WRITE_AFTER_S, self._write)

    def count_documents(self, index: str, change: str, count: int) -> None:
        """Count documents of an index that were "added" or "deleted"."""
        self._own.documents[index, change] += count

    def _write(self) -> None:
        """Leave the figures of this process for the others."""
        self._is_write_due = False
        if self._folder is not None:
            self._own.measure_process()
            with contextlib.suppress(FileNotFoundError):  # the server has ended
                self._folder.write(self._own)

    def text(self, sizes: Mapping[str, int | None]) -> str:
        """Return all figures.

        Args:
            sizes: the number of documents of each index; None: it cannot be read.
        """
        self._own.measure_process()
        figures = self._own if self._folder is None else self._folder.total(self._own)
        return "".join(line + "\n" for line in _lines(figures, sizes, self._started))


def _lines(figures: Figures, sizes: Mapping[str, int | None], started: float) -> Iterator[str]:
    requests: list[Sample] = [
        ({"path": path, "method": method, "status": status}, count)
        for (path, method, status), count in sorted(figures.requests.items())
    ]
    yield from _family("quarry_http_requests_total", "counter", "Requests answered.", requests)
    yield from _family(
        "quarry_http_requests_in_progress", "gauge", "Requests being answered.", [({}, figures.n_in_progress)]
    )
    yield from _duration_lines(figures.durations)
    up: list[Sample] = [({"index": name}, float(size is not None)) for name, size in sizes.items()]
    yield from _family("quarry_index_up", "gauge", "Whether the index can be read.", up)
    known: list[Sample] = [({"index": name}, size) for name, size in sizes.items() if size is not None]
    yield from _family("quarry_index_documents", "gauge", "Documents of the index.", known)
    for change in ("added", "deleted"):
        counts: list[Sample] = [
            ({"index": name}, count) for (name, kind), count in sorted(figures.documents.items()) if kind == change
        ]
        what = f"Documents {change} by this server."
        yield from _family(f"quarry_documents_{change}_total", "counter", what, counts)
    yield from _process_lines(figures, started)


def _duration_lines(durations: Mapping[str, Histogram]) -> Iterator[str]:
    name = "quarry_http_request_duration_seconds"
    yield f"# HELP {name} Time from the headers of a request to the end of its response."
    yield f"# TYPE {name} histogram"
    for path, histogram in sorted(durations.items()):
        for bound, count in histogram.cumulative():
            yield _sample(f"{name}_bucket", {"path": path, "le": bound}, count)
        yield _sample(f"{name}_sum", {"path": path}, histogram.total_s)
        yield _sample(f"{name}_count", {"path": path}, histogram.n)


def _family(name: str, kind: str, what: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    inner = ",".join(f'{key}="{str(each).translate(_ESCAPES)}"' for key, each in labels.items())
    return f"{name}{{{inner}}} {value!r}" if inner else f"{name} {value!r}"


def _process_lines(figures: Figures, started: float) -> Iterator[str]:
    """Yield the figures that Prometheus names for every process, here of all processes of the server together."""
    yield from _family("process_cpu_seconds_total", "counter", "CPU time.", [({}, figures.cpu_s)])
    yield from _family("process_start_time_seconds", "gauge", "When the server started.", [({}, started)])
    if figures.resident_bytes:
        yield from _family(
            "process_resident_memory_bytes", "gauge", "Resident memory.", [({}, figures.resident_bytes)]
        )
        yield from _family("process_open_fds", "gauge", "Open file descriptors.", [({}, figures.n_files)])
