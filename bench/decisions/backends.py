"""Compares backends on one index: latency, recall, memory, time to open.

The queries are stored vectors with noise, or those of a .npy file. Each query goes to all backends in turn, so
that what else the machine does touches all alike; processor time leaves it out.
`quarry.engine.backends.selection` takes its constants from the results.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.data.query_vectors import add_queries, read_queries
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry.engine.backends.registry import BACKENDS
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.searcher import Searcher
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import QuarryError
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_BATCHES = (8, 64, 256)
_K = 10
Vectors = npt.NDArray[np.float32]


class _Opened(NamedTuple):
    name: str
    searcher: Searcher
    open_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The index, the queries, where results go."""
    parser.add_argument("index", type=Path)
    add_queries(parser, 300)
    parser.add_argument("--backends", nargs="*", default=list(BACKENDS), help="all by default")
    parser.add_argument("--threads", type=int, default=1)
    add_out(parser, "backends")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    snapshot = Snapshot(Directory(options.index))
    queries = read_queries(options, max(snapshot.segments, key=lambda each: each.reader.n_rows))
    opened = [found for name in options.backends if (found := _open(name, snapshot, queries, options.threads))]
    times, answers = _in_turn(opened, queries)
    exact = answers["exact"]
    for backend in opened:
        record = {
            "backend": backend.name,
            "n_documents": len(snapshot),
            "n_centroids": sum(segment.reader.n_rows for segment in snapshot.segments),
            "dim": snapshot.manifest.settings.dim,
            "threads": options.threads,
            **_latencies(times[backend.name]),
            "recall_at_10": _recall(answers[backend.name], exact),
            "first_search_s": backend.open_s,
            "resident_bytes": backend.searcher.resident_bytes,
            **{
                f"batch_{size}_cpu_ms_per_query": _batch_cpu_ms(backend.searcher, queries, size)
                for size in _BATCHES
            },
        }
        print("  ".join(f"{name} {_short(value)}" for name, value in record.items()), flush=True)
        append_record(options.out, {**record, **circumstances()})
    snapshot.close()
    return 0


def _latencies(times: list[tuple[float, float]]) -> dict[str, float]:
    clock, processor = np.array(times).T * 1e3
    return {
        "p50_ms": float(np.median(clock)),
        "p99_ms": float(np.quantile(clock, 0.99)),
        "cpu_p50_ms": float(np.median(processor)),
    }


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _open(name: str, snapshot: Snapshot, queries: Vectors, threads: int) -> _Opened | None:
    """A searcher after its first search, which opens the backends; None where a library or device is missing."""
    started = time.perf_counter()
    searcher = Searcher(snapshot, OpenOptions(backend=name, threads=threads, thresholds=Thresholds(graph_rows=0)))
    try:
        searcher.search(queries[:1], SearchOptions(k=_K))
    except QuarryError as error:
        print(f"{name}: {error}", flush=True)
        return None
    return _Opened(name, searcher, time.perf_counter() - started)


def _in_turn(
    opened: list[_Opened], queries: Vectors
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, list[frozenset[tuple[int, int]]]]]:
    """Seconds by the clock and of the processor, and answers, by backend, one query after another."""
    times: dict[str, list[tuple[float, float]]] = {each.name: [] for each in opened}
    answers: dict[str, list[frozenset[tuple[int, int]]]] = {each.name: [] for each in opened}
    for query in queries:
        for name, searcher, _ in opened:
            started, worked = time.perf_counter(), time.process_time()
            found = searcher.search(query[None], SearchOptions(k=_K))[0]
            times[name].append((time.perf_counter() - started, time.process_time() - worked))
            answers[name].append(frozenset(zip(found.segments.tolist(), found.docs.tolist(), strict=True)))
    return times, answers


def _recall(found: list[frozenset[tuple[int, int]]], exact: list[frozenset[tuple[int, int]]]) -> float:
    shares = [len(one & other) / max(1, len(other)) for one, other in zip(found, exact, strict=True)]
    return float(np.mean(shares))


def _batch_cpu_ms(searcher: Searcher, queries: Vectors, size: int) -> float:
    """Milliseconds of the processor for each query in batches of `size`, the best of three."""
    batch, options = np.resize(queries, (size, queries.shape[1])), SearchOptions(k=_K)
    times = []
    for _ in range(3):
        started = time.process_time()
        searcher.search(batch, options)
        times.append(time.process_time() - started)
    return min(times) / size * 1e3
