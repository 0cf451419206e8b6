"""Measures queries with filters that more or fewer documents pass, and the same queries without a filter.

``python -m bench filters COLLECTION [--documents N] [--out FILE]`` builds an index of a collection with vectors
made from its words (see `bench.decisions.hybrid_latency`); as metadata each document has its place in the
collection (``row``: neighbors are alike) and a place in a shuffled one (``dealt``). Every query is asked
without a filter
and with each, in turns, on one thread. Times are the processor's, so that other work on the machine does not
count; the encoder's is in none of them: a filter's share is as large as can be.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from bench.data.collections import add_collection, load_collection
from bench.decisions.hybrid_latency import Vectors, WordVectors
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry import engine
from quarry.engine.encoding.encoder import open_encoder

__all__ = ["add_arguments", "run"]

_N_QUERIES = 300
_FILTERS = [(field, share) for field in ("dealt", "row") for share in (0.001, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9)]
_N_EVALUATIONS = 50

Filter = Mapping[str, object]
Search = Callable[[str, Filter | None], object]


class _RememberedQueries(WordVectors):
    """Remembers the vectors of queries, so that encoding takes no time in a measurement."""

    def __init__(self) -> None:
        super().__init__(open_encoder())
        self._known: dict[str, Vectors] = {}

    def encode_query(self, text: str) -> Vectors:
        if text not in self._known:
            self._known[text] = super().encode_query(text)
        return self._known[text]


def _documents(texts: Mapping[str, str], n: int | None) -> Iterator[dict[str, object]]:
    chosen = list(islice(texts.items(), n))
    places = np.random.default_rng(0).permutation(len(chosen)).tolist()
    for row, ((name, text), dealt) in enumerate(zip(chosen, places, strict=True)):
        yield {"id": name, "text": text, "metadata": {"row": row, "dealt": dealt}}


def _evaluation_ms(index: engine.Engine, field: str, share: float) -> float:
    """The median time to find out what passes a filter that was not asked before, and to count it."""
    n, times = len(index), []
    for step in range(_N_EVALUATIONS):
        low = int(n * (1 - share) * step / _N_EVALUATIONS)
        started = time.process_time()
        index.count({field: {"$gte": low, "$lt": low + int(n * share)}})
        times.append((time.process_time() - started) * 1e3)
    return statistics.median(times)


def _times_ms(search: Search, queries: Sequence[str], filters: Sequence[Filter | None]) -> list[list[float]]:
    """For each filter the time of each query; a query's filters in order, each time another one first."""
    times: list[list[float]] = [[] for _ in filters]
    for number, query in enumerate(queries):
        for turn in range(len(filters)):
            which = (number + turn) % len(filters)
            started = time.process_time()
            search(query, filters[which])
            times[which].append((time.process_time() - started) * 1e3)
    return times


def _measured(index: engine.Engine, search: Search, queries: Sequence[str]) -> list[dict[str, object]]:
    filters: list[Filter | None] = [{field: {"$lt": int(len(index) * share)}} for field, share in _FILTERS]
    _times_ms(search, queries[:20], [None, *filters])
    without, *times = [statistics.median(each) for each in _times_ms(search, queries, [None, *filters])]
    return [
        {
            "field": field,
            "share": share,
            "p50_cpu_ms": p50,
            "p50_without_cpu_ms": without,
            "ratio": p50 / without,
        }
        for (field, share), p50 in zip(_FILTERS, times, strict=True)
    ]


def _searches(index: engine.Engine, encoder: _RememberedQueries) -> dict[str, Search]:
    def dense(query: str, only: Filter | None) -> object:
        return index.search_vectors(encoder.encode_query(query)[None], k=10, filter=only)

    def by_text(mode: str, query: str, only: Filter | None) -> object:
        return index.search(query, k=10, mode=mode, filter=only)

    return {"dense": dense, "lexical": partial(by_text, "lexical"), "hybrid": partial(by_text, "hybrid")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench filters``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--documents", type=int, help="the first so many documents only")
    add_out(parser, "filters")


def run(options: argparse.Namespace) -> int:
    """Build, measure, print a table, append the raw results."""
    collection = load_collection(options)
    queries, encoder = list(collection.queries.values())[:_N_QUERIES], _RememberedQueries()
    with tempfile.TemporaryDirectory() as folder:
        docs = _documents(collection.documents, options.documents)
        report = engine.build(docs, Path(folder) / "idx", encoder=encoder)
        print(f"{report.n_documents} documents, {report.n_centroids} centroids, {report.duration_s:.0f} s")
        with engine.Engine.open(Path(folder) / "idx", encoder=encoder, threads=1) as index:
            sizes = {"n_documents": len(index), "n_centroids": report.n_centroids, "n_queries": len(queries)}
            evaluations = {named: _evaluation_ms(index, *named) for named in _FILTERS}
            for mode, search in _searches(index, encoder).items():
                for record, ms in zip(_measured(index, search, queries), evaluations.values(), strict=True):
                    record["evaluation_cpu_ms"] = ms
                    _report(mode, record)
                    append_record(options.out, record | sizes | {"mode": mode} | circumstances())
    return 0


def _report(mode: str, record: Mapping[str, object]) -> None:
    times = f"{record['ratio']:.2f} of {record['p50_without_cpu_ms']:.2f} without"
    evaluation = f"evaluation {record['evaluation_cpu_ms']:.3f} ms"
    what = f"{mode:<8} {record['field']:<6} {record['share']:<6}"
    print(f"{what} p50 {record['p50_cpu_ms']:6.2f} ms, {times}; {evaluation}", flush=True)
