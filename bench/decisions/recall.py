"""Recall and time of the default search, for ten and for a hundred hits.

``python -m bench recall INDEX [COLLECTION] [--baseline INDEX] [--queries N] [--out FILE]`` runs the queries of a
collection as dense searches of an index with inverted lists, by default settings, and compares the hits with those
of an exhaustive scan of the same index. With ``--baseline`` a second index of the same documents, for example one
built by an earlier version, takes turns with the first at each query. One thread; times are processor times, which
depend little on the load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import trange

from bench.data.collections import add_collection, load_collection
from bench.harness.records import add_out, append_result
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.quantization.candidates import default_candidates
from quarry.engine.quantization.nprobe import default_nprobe
from quarry.engine.scoring.query_vectors import to_host_vectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

__all__ = ["add_arguments", "measure", "run"]

_HITS = (10, 100)
_TOLERANCE = 1e-6  # a hit counts as found if its score is at most this much below the k-th best
_PASSES = 3  # the fastest counts, for each query

Floats = npt.NDArray[np.float32]


class _DefaultSearch:
    """The default search of one index for one number of hits, and what was measured of it."""

    def __init__(self, name: str, snapshot: Snapshot, k: int, queries: Floats) -> None:
        self._name, self._snapshot = name, snapshot
        self._options = SearchOptions(k=k, mode="dense")
        self._searcher = Searcher(snapshot, OpenOptions(backend="cpu_faiss", threads=1))
        best = Searcher(snapshot, OpenOptions(backend="scan")).search(queries, self._options)
        self._least = [answer.scores.min(initial=np.inf) - _TOLERANCE for answer in best]
        self._n_best = min(k, len(snapshot))
        self._shares = np.zeros(len(queries))
        self._times_s = np.full(len(queries), np.inf)

    def measure(self, number: int, query: Floats) -> None:
        """Run one query."""
        started = time.thread_time()
        answer = self._searcher.search(query[None], self._options)[0]
        self._times_s[number] = min(self._times_s[number], time.thread_time() - started)
        self._shares[number] = min(1.0, np.count_nonzero(answer.scores >= self._least[number]) / self._n_best)

    def record(self) -> dict[str, object]:
        """Return the result, with the default settings of the first segment."""
        first, k = self._snapshot.segments[0], self._options.k
        quantizer = first.quantizer
        return {
            "index": self._name,
            "k": k,
            "recall": float(self._shares.mean()),
            "cpu_p50_ms": statistics.median(self._times_s) * 1e3,
            "nprobe": default_nprobe(quantizer, k) if quantizer else None,
            "candidates": default_candidates(first, k),
            "measured_with": "queries" if quantizer and quantizer.search_settings else "rows",
            "n_documents": len(self._snapshot),
            "n_centroids": sum(segment.reader.n_rows for segment in self._snapshot.segments),
        }


def measure(snapshots: Mapping[str, Snapshot], queries: Floats) -> Iterator[dict[str, object]]:
    """Yield a result for each index and each number of hits, ten and a hundred.

    Args:
        snapshots: the indexes by name.
        queries: (n_queries, dim) float32.
    """
    searches = [_DefaultSearch(name, each, k, queries) for k in _HITS for name, each in snapshots.items()]
    for step in trange(_PASSES * len(queries), unit=" queries", disable=None):
        number = step % len(queries)
        for search in searches:
            search.measure(number, queries[number])
    for search in searches:
        yield search.record()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench recall``."""
    parser.add_argument("index", type=Path, help="an index with inverted lists")
    add_collection(parser, queries=1000)
    parser.add_argument("--baseline", type=Path, help="another index of the same documents, to compare with")
    add_out(parser, "recall")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    collection = load_collection(options)
    texts = list(collection.queries.values())
    queries = to_host_vectors(encode_queries(open_encoder(), texts, OpenOptions().n_threads))
    about = {"queries_of": collection.name, "n_queries": len(texts)}
    with ExitStack() as stack:
        snapshots = {options.index.name: _open(options.index, stack)}
        if options.baseline:
            snapshots[f"{options.baseline.name} (baseline)"] = _open(options.baseline, stack)
        for record in measure(snapshots, queries):
            print(_row(record), flush=True)
            append_result(options.out, {**record, **about})
    return 0


def _open(path: Path, stack: ExitStack) -> Snapshot:
    snapshot = stack.enter_context(closing(Snapshot(Directory(path))))
    if any(segment.reader.lists is None for segment in snapshot.segments):
        raise InvalidSetting("a segment is too small for inverted lists", path=path)
    return snapshot


def _row(record: dict[str, object]) -> str:
    taken = f"{record['nprobe']} lists, {record['candidates']} documents by {record['measured_with']}"
    found = f"recall {record['recall']:.4f} in {record['cpu_p50_ms']:.3f} ms"
    return f"{record['index']:<16} {record['k']:>3} hits  {found}  ({taken})"
