"""Measures from how many centroids on inverted lists pay, which is `segment_builder.IVF_ROWS`.

``python -m bench ivf_switch INDEX [--out FILE]`` takes the first documents of an index, 1,000, 2,000, 4,000 ...,
makes a segment with lists and one without of each part, and times both with the same queries: 10 hits, one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data.recoded import recoded
from bench.harness.environment import circumstances
from bench.harness.records import write_records
from quarry.engine.indexer import segment_builder
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "noisy_queries", "run"]

_N_QUERIES = 300
Vectors = npt.NDArray[np.float32]


def _part(source: Snapshot, n_docs: int, folder: Path, *, lists: bool) -> Snapshot:
    """An index of the first documents of `source`, with or without inverted lists."""
    segment_builder.IVF_ROWS = 1 if lists else 1 << 40
    return recoded(source, folder, source.manifest.settings, n_docs)


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


def noisy_queries(snapshot: Snapshot) -> Vectors:
    """Stored vectors with noise: as far from the centroids as questions are."""
    generator = np.random.default_rng(0)
    table = snapshot.segments[0].reader.centroids
    rows = generator.choice(table.n_rows, _N_QUERIES, replace=False)
    vectors = StoredVectors(snapshot.segments[0]).vectors(rows)
    noisy = vectors + generator.standard_normal(vectors.shape).astype(np.float32) / np.sqrt(table.dim)
    queries: Vectors = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    return queries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench ivf_switch``."""
    parser.add_argument("index", type=Path, help="an index with int8 centroids, squad for example")
    parser.add_argument("--out", type=Path, help="JSON lines go to this file, which is replaced")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, write the raw results."""
    source = Snapshot(Directory(options.index))
    queries, records = noisy_queries(source), []
    print(f"{'documents':>10} {'centroids':>10} {'scan ms':>8} {'lists ms':>8} {'ratio':>6}")
    n_docs = 1000
    while n_docs <= source.segments[0].reader.n_docs:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            scanned = _part(source, n_docs, Path(one), lists=False)
            listed = _part(source, n_docs, Path(other), lists=True)
            scan_ms, lists_ms = _p50_ms(scanned, queries), _p50_ms(listed, queries)
            n_rows = scanned.segments[0].reader.n_rows
        print(f"{n_docs:>10} {n_rows:>10} {scan_ms:>8.3f} {lists_ms:>8.3f} {scan_ms / lists_ms:>6.2f}", flush=True)
        numbers = {"n_documents": n_docs, "n_centroids": n_rows, "scan_p50_ms": scan_ms, "lists_p50_ms": lists_ms}
        records.append({**numbers, **circumstances()})
        n_docs *= 2
    if options.out:
        write_records(options.out, records)
    return 0
