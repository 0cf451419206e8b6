"""Measures from how many centroids on inverted lists are faster than a scan.

``python -m bench ivf_switch INDEX`` takes the first 1,000, 2,000, 4,000 ... documents of an index, builds a
segment with inverted lists and one without of each part, and times both with the same queries: 10 hits, one
thread.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bench.data.query_vectors import Vectors, sample_queries
from bench.data.recode import recode_index
from bench.harness.latency import time_in_turn
from bench.harness.records import add_out, append_result
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.searcher import Searcher
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_N_QUERIES = 300
_LEAST_DOCUMENTS = 1000
_OPTIONS = SearchOptions(k=10)
_THRESHOLDS = {"scan": Thresholds(list_rows=1 << 40), "lists": Thresholds(list_rows=1, training_rows=1)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench ivf_switch``."""
    parser.add_argument("index", type=Path, help="an index with int8 centroids, for example of squad")
    add_out(parser, "ivf_switch")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    source = Snapshot(Directory(args.index))
    queries = sample_queries(source.segments[0], _N_QUERIES)
    n_docs, n_all = _LEAST_DOCUMENTS, source.segments[0].reader.n_docs
    if n_docs > n_all:
        raise InvalidSetting("the first segment is too small", expected=f"{n_docs} documents", actual=n_all)
    print(f"{'documents':>10} {'centroids':>10} {'scan ms':>8} {'lists ms':>8} {'ratio':>6}")
    while n_docs <= n_all:
        n_rows, scan_ms, lists_ms = _compare(source, n_docs, queries)
        print(f"{n_docs:>10} {n_rows:>10} {scan_ms:>8.3f} {lists_ms:>8.3f} {scan_ms / lists_ms:>6.2f}", flush=True)
        sizes = {"n_documents": n_docs, "n_centroids": n_rows}
        append_result(args.out, {**sizes, "scan_p50_ms": scan_ms, "lists_p50_ms": lists_ms})
        n_docs *= 2
    return 0


def _compare(source: Snapshot, n_docs: int, queries: Vectors) -> tuple[int, float, float]:
    """Return the number of centroids and the median latencies, in milliseconds, without and with lists."""
    searchers = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, thresholds in _THRESHOLDS.items():
            part = Path(folder) / name
            part.mkdir()
            snapshot = recode_index(source, part, source.manifest.settings, n_docs, thresholds)
            searchers[name] = Searcher(snapshot, OpenOptions(threads=1))
            searchers[name].search(queries[:1], _OPTIONS)
        calls = {
            name: lambda query, searcher=searcher: searcher.search(query[None], _OPTIONS)
            for name, searcher in searchers.items()
        }
        timings = time_in_turn(calls, queries)
    scan_ms, lists_ms = (float(np.median(timings[name].wall_ms)) for name in ("scan", "lists"))
    return snapshot.segments[0].reader.n_rows, scan_ms, lists_ms
