"""Metrics of a server, in the text format of Prometheus.

They are kept by prometheus_client. If `PROMETHEUS_MULTIPROC_DIR` of the environment names a folder, each process
keeps its own in a file there, and any of them shows the sums of all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

__all__ = ["METRICS_TYPE", "SHARED_FOLDER", "Metrics"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of the environment that names the folder of all processes, if there are several."""

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of the histogram of durations."""

_MEASURE_EVERY_S = 0.5
"""Seconds after which a request makes its process measure again what it uses, which takes some 50 microseconds."""


class Metrics:
    """Counts requests by path, method and status, their durations, documents, and what the process uses."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("quarry_http_requests", "Requests answered.", "path", "method", "status")
        self._in_progress = self._gauge("quarry_http_requests_in_progress", "Requests being answered.")
        self._durations = Histogram(
            "quarry_http_request_duration_seconds",
            "Time from the headers of a request to the end of its response.",
            ("path",),
            registry=self._registry,
            buckets=_BOUNDS_S,
        )
        self._documents = {
            change: self._counter(f"quarry_documents_{change}", f"Documents {change} by this server.", "index")
            for change in ("added", "deleted", "updated")
        }
        # Prometheus has names for values of every process; here they are of all processes of the server together.
        self._cpu_s = self._counter("process_cpu_seconds", "CPU time.")
        self._counted_cpu_s = 0.0
        self._memory = self._gauge("process_resident_memory_bytes", "Resident memory.")
        self._files = self._gauge("process_open_fds", "Open file descriptors.")
        self._gauge("process_start_time_seconds", "When the server started.", "min").set_to_current_time()
        self._measured = -_MEASURE_EVERY_S

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, mode: Literal["livesum", "min"] = "livesum") -> Gauge:
        """Return a value of which the server has the sum over its processes, or the least one."""
        return Gauge(name, what, registry=self._registry, multiprocess_mode=mode)

    def begin_request(self) -> None:
        """Count a request that is being answered."""
        self._in_progress.inc()

    def end_request(self, path: str, method: str, status: int, duration_s: float) -> None:
        """Count a request that was being answered.

        Args:
            path: the template of its path, of which there are few.
            method: its method.
            status: status of the response.
            duration_s: seconds from its headers to the end of the response.
        """
        self._in_progress.dec()
        self._requests.labels(path, method, status).inc()
        self._durations.labels(path).observe(duration_s)
        if time.monotonic() >= self._measured + _MEASURE_EVERY_S:
            self._measure_process()

    def count_documents(self, index: str, change: str, count: int) -> None:
        """Count documents of an index that were "added", "deleted" or "updated"."""
        self._documents[change].labels(index).inc(count)

    def text(self, sizes: Mapping[str, int | None]) -> bytes:
        """Return all metrics.

        Args:
            sizes: the number of documents of each index; None: it cannot be read.
        """
        self._measure_process()
        counted: Collector = self._registry
        if SHARED_FOLDER in os.environ:
            counted = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(_Sizes(sizes))

    def _measure_process(self) -> None:
        """Set what this process uses."""
        self._measured = time.monotonic()
        times = os.times()
        used_s = times.user + times.system
        self._cpu_s.inc(used_s - self._counted_cpu_s)
        self._counted_cpu_s = used_s
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_bytes().split()[1])
            self._memory.set(pages * os.sysconf("SC_PAGE_SIZE"))
            self._files.set(len(os.listdir("/proc/self/fd")))  # noqa: PTH208  # names alone


class _Sizes(Collector):
    """The indexes at the time of the request, which no process counts."""

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self._sizes = sizes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("quarry_index_up", "Whether the index can be read.", labels=["index"])
        documents = GaugeMetricFamily("quarry_index_documents", "Documents of the index.", labels=["index"])
        for name, size in self._sizes.items():
            up.add_metric([name], size is not None)
            if size is not None:
                documents.add_metric([name], size)
        yield from (up, documents)
