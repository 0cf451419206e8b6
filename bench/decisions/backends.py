"""Compares backends on one index: latency, recall, memory, time to open.

The queries are stored vectors with noise, or those of a .npy file. Each query is sent to all backends in turn.
`quarry.engine.backends.selection` takes its constants from the results.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from bench.data.query_vectors import Vectors, add_queries, read_queries
from bench.harness.latency import time_in_turn
from bench.harness.records import add_out, append_result
from quarry.engine.backends.registry import BACKENDS
from quarry.engine.choices import BackendName
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.searcher import Searcher
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import QuarryError
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_BATCHES = (8, 64, 256)
_OPTIONS = SearchOptions(k=10)

DocIds = frozenset[tuple[int, int]]
"""Segments and ordinals of documents."""


class _OpenBackend(NamedTuple):
    searcher: Searcher
    open_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench backends``."""
    parser.add_argument("index", type=Path)
    add_queries(parser, 300)
    parser.add_argument("--backends", nargs="*", default=list(BACKENDS), help="(default: all)")
    parser.add_argument("--threads", type=int, default=1)
    add_out(parser, "backends")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    snapshot = Snapshot(Directory(args.index))
    queries = read_queries(args, max(snapshot.segments, key=lambda each: each.reader.n_rows))
    opened = {name: found for name in args.backends if (found := _open(name, snapshot, queries, args.threads))}
    timings = time_in_turn({name: partial(_search, each.searcher) for name, each in opened.items()}, queries)
    for name, backend in opened.items():
        timing = timings[name]
        record = {
            "backend": name,
            "n_documents": len(snapshot),
            "n_centroids": sum(segment.reader.n_rows for segment in snapshot.segments),
            "dim": snapshot.manifest.settings.dim,
            "threads": args.threads,
            "p50_ms": float(np.median(timing.wall_ms)),
            "p99_ms": float(np.quantile(timing.wall_ms, 0.99)),
            "cpu_p50_ms": float(np.median(timing.cpu_ms)),
            "recall_at_10": _mean_recall(timing.results, timings["exact"].results),
            "first_search_s": backend.open_s,
            "resident_bytes": backend.searcher.resident_bytes,
            **{f"batch_{n}_cpu_ms_per_query": _batch_cpu_ms(backend.searcher, queries, n) for n in _BATCHES},
        }
        print("  ".join(f"{field} {_format(value)}" for field, value in record.items()), flush=True)
        append_result(args.out, record)
    snapshot.close()
    return 0


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _open(name: str, snapshot: Snapshot, queries: Vectors, threads: int) -> _OpenBackend | None:
    """Open a searcher, with a first search that opens the backends; None if a library or device is missing."""
    started = time.perf_counter()
    searcher = Searcher(
        snapshot,
        OpenOptions(backend=cast(BackendName, name), threads=threads, thresholds=Thresholds(graph_rows=0)),
    )
    try:
        _search(searcher, queries[0])
    except QuarryError as error:
        print(f"{name}: {error}", flush=True)
        return None
    return _OpenBackend(searcher, time.perf_counter() - started)


def _search(searcher: Searcher, query: Vectors) -> DocIds:
    found = searcher.search(query[None], _OPTIONS)[0]
    return frozenset(zip(found.segments.tolist(), found.docs.tolist(), strict=True))


def _mean_recall(found: list[DocIds], exact: list[DocIds]) -> float:
    shares = [len(one & other) / max(1, len(other)) for one, other in zip(found, exact, strict=True)]
    return float(np.mean(shares))


def _batch_cpu_ms(searcher: Searcher, queries: Vectors, size: int) -> float:
    """Return processor milliseconds per query of a batch, the minimum of three runs."""
    batch = np.resize(queries, (size, queries.shape[1]))
    timing = time_in_turn({"batch": partial(searcher.search, batch)}, [_OPTIONS] * 3)["batch"]
    return float(timing.cpu_ms.min()) / size
