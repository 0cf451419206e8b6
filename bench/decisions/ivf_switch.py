"""Measures from how many centroids on inverted lists are faster than a scan.

``python -m bench ivf_switch INDEX [--out FILE]`` takes the first documents of an index, 1,000, 2,000, 4,000 ...,
makes a segment with lists and one without of each part, and times both with the same queries: 10 hits, one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.data.query_vectors import Vectors, noisy_queries
from bench.data.recoded import recoded
from bench.harness.environment import circumstances
from bench.harness.records import add_out, write_records
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.searcher import Searcher
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_N_QUERIES = 300
_ALWAYS, _NEVER = Thresholds(list_rows=1, training_rows=1), Thresholds(list_rows=1 << 40)


def _part(source: Snapshot, n_docs: int, folder: Path, *, lists: bool) -> Snapshot:
    """An index of the first documents of `source`, with or without inverted lists."""
    return recoded(source, folder, source.manifest.settings, n_docs, _ALWAYS if lists else _NEVER)


def _p50_ms(snapshot: Snapshot, queries: Vectors) -> float:
    searcher = Searcher(snapshot, OpenOptions(threads=1))
    options = SearchOptions(k=10)
    searcher.search(queries[:1], options)
    times = []
    for query in queries:
        started = time.perf_counter()
        searcher.search(query[None], options)
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench ivf_switch``."""
    parser.add_argument("index", type=Path, help="an index with int8 centroids, squad for example")
    add_out(parser, "ivf_switch", replaces=True)


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, write the raw results."""
    source = Snapshot(Directory(options.index))
    queries, records = noisy_queries(source.segments[0], _N_QUERIES), []
    print(f"{'documents':>10} {'centroids':>10} {'scan ms':>8} {'lists ms':>8} {'ratio':>6}")
    n_docs, n_all = 1000, source.segments[0].reader.n_docs
    if n_docs > n_all:
        raise InvalidSetting("the first segment is too small", expected="1,000 documents", actual=n_all)
    while n_docs <= n_all:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            scanned = _part(source, n_docs, Path(one), lists=False)
            listed = _part(source, n_docs, Path(other), lists=True)
            scan_ms, lists_ms = _p50_ms(scanned, queries), _p50_ms(listed, queries)
            n_rows = scanned.segments[0].reader.n_rows
        print(f"{n_docs:>10} {n_rows:>10} {scan_ms:>8.3f} {lists_ms:>8.3f} {scan_ms / lists_ms:>6.2f}", flush=True)
        numbers = {"n_documents": n_docs, "n_centroids": n_rows, "scan_p50_ms": scan_ms, "lists_p50_ms": lists_ms}
        records.append({**numbers, **circumstances()})
        n_docs *= 2
    write_records(options.out, records)
    return 0
