"""Compares RaBitQ codes of FAISS, which need no training, with a scan of segments too small for inverted lists.

``python -m bench untrained_codes INDEX [--out FILE]`` takes the first documents of an index with int8 centroids
and answers the same queries by a scan of all centroids, which is exact, and by one bit per dimension of all of
them (Gao and Long 2024), the documents of the nearest 250 rescored: 10 hits, one thread, by turns.

On squad (`bench/results/untrained_codes.jsonl`) they are no faster up to 7,000 centroids, take 80 % at 15,000 and
70 % at 20,000, where lists take half, and find .99 of what the scan proves to be the answer. So there are none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data.query_vectors import noisy_queries
from bench.data.recoded import recoded
from bench.harness.environment import circumstances
from bench.harness.records import add_out, write_records
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.search.rescorer import Rescorer
from quarry.engine.search.searcher import Searcher
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_K = 10
_N_ROWS = 250
_N_QUERIES = 300
_SIZES = (250, 500, 1000, 2000, 2700)  # documents
_QUERY_BITS = 8
_NO_LISTS = Thresholds(list_rows=1 << 40)
Floats = npt.NDArray[np.float32]
Docs = npt.NDArray[np.int64]


def rabitq(snapshot: Snapshot) -> Callable[[Floats], Docs]:
    """Two-stage search with RaBitQ first: a query to its documents, best first."""
    import faiss

    segment = snapshot.segments[0]
    table = segment.reader.centroids
    vectors = StoredVectors(segment).vectors(np.arange(table.n_rows))
    index = faiss.IndexRaBitQFastScan(table.dim, faiss.METRIC_INNER_PRODUCT)
    index.qb = _QUERY_BITS
    index.train(vectors)  # the mean
    index.add(vectors)
    owners = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    rescorer = Rescorer(segment, None)

    def find(query: Floats) -> Docs:
        rows = index.search(query[None], _N_ROWS)[1][0]
        docs = np.unique(owners[rows[rows >= 0]])
        found: Docs = docs[np.argsort(-rescorer.scores(query, docs), kind="stable")[:_K]]
        return found

    return find


def scan(snapshot: Snapshot) -> Callable[[Floats], Docs]:
    """The same by a scan of everything."""
    searcher, options = (
        Searcher(snapshot, OpenOptions(backend="scan", threads=1)),
        SearchOptions(k=_K, mode="dense"),
    )
    return lambda query: searcher.search(query[None], options)[0].docs


def measure(snapshot: Snapshot, queries: Floats) -> dict[str, float]:
    """Medians of both, and how much of the exact answer codes find."""
    set_faiss_threads(1)
    ways = {"scan": scan(snapshot), "rabitq": rabitq(snapshot)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    same = []
    for query in queries:
        found = {}
        for name, find in ways.items():
            started = time.perf_counter()
            found[name] = set(find(query).tolist())
            times[name].append((time.perf_counter() - started) * 1e3)
        same.append(len(found["scan"] & found["rabitq"]) / _K)
    medians = {f"{name}_p50_ms": statistics.median(each) for name, each in times.items()}
    return {
        **medians,
        "rabitq_recall_10": statistics.fmean(same),
        "n_centroids": snapshot.segments[0].reader.n_rows,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench untrained_codes``."""
    parser.add_argument("index", type=Path, help="an index with int8 centroids, squad for example")
    add_out(parser, "untrained_codes", replaces=True)


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, write the raw results."""
    source, records = Snapshot(Directory(options.index)), []
    queries = noisy_queries(source.segments[0], _N_QUERIES)
    n_all = source.segments[0].reader.n_docs
    for n_docs in sorted({min(size, n_all) for size in _SIZES}):
        with tempfile.TemporaryDirectory() as folder:
            part = recoded(source, Path(folder), source.manifest.settings, n_docs, _NO_LISTS)
            numbers = measure(part, queries)
        print(n_docs, numbers, flush=True)
        records.append({"n_documents": n_docs, **numbers, **circumstances()})
    write_records(options.out, records)
    return 0
