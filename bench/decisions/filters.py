"""Measures queries with filters of different selectivity, and the same queries without a filter.

The index has random word vectors (`bench.data.word_encoder`). Each document has two integers as metadata: ``row``,
its position in the collection, so that neighbors have similar values, and ``dealt``, its position in a random
order. Every query is run without a filter and with each filter in turn, on one thread. Times are processor times,
and encoding is not part of them, so the share of the filter is as large as it can be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np

from bench.data.collections import load_collection
from bench.data.word_encoder import WordVectorEncoder
from bench.decisions.hybrid_latency import add_sizes, build_word_index
from bench.harness.latency import time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry import engine
from quarry.engine.choices import Mode

__all__ = ["add_arguments", "run"]

_N_QUERIES = 300
_FILTERS = [(field, share) for field in ("dealt", "row") for share in (0.001, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9)]
_N_EVALUATIONS = 50

Filter = Mapping[str, object]
Search = Callable[[Filter | None, str], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench filters``."""
    add_sizes(parser)
    add_out(parser, "filters")


def run(args: argparse.Namespace) -> int:
    """Build, measure, print a table, append the raw results."""
    collection = load_collection(args)
    queries, encoder = list(collection.queries.values())[:_N_QUERIES], WordVectorEncoder()
    with build_word_index(_make_documents(collection.documents, args.documents), encoder) as (index, sizes):
        evaluations = {named: _evaluation_cpu_ms(index, *named) for named in _FILTERS}
        for mode, search in _searches(index, encoder, queries).items():
            for record in _measure_filters(index, search, queries):
                record["evaluation_cpu_ms"] = evaluations[str(record["field"]), float(str(record["share"]))]
                print(_format_row(mode, record), flush=True)
                append_result(args.out, {**record, **sizes, "n_queries": len(queries), "mode": mode})
    return 0


def _make_documents(texts: Mapping[str, str], n: int | None) -> Iterator[dict[str, object]]:
    chosen = list(islice(texts.items(), n))
    positions = np.random.default_rng(0).permutation(len(chosen)).tolist()
    for row, ((name, text), dealt) in enumerate(zip(chosen, positions, strict=True)):
        yield {"id": name, "text": text, "metadata": {"row": row, "dealt": dealt}}


def _evaluation_cpu_ms(index: engine.Engine, field: str, share: float) -> float:
    """Return the median time to evaluate a filter that is not cached and to count its documents."""
    n = len(index)
    lows = [int(n * (1 - share) * step / _N_EVALUATIONS) for step in range(_N_EVALUATIONS)]
    ranges = [{field: {"$gte": low, "$lt": low + int(n * share)}} for low in lows]
    return float(np.median(time_in_turn({"count": index.count}, ranges)["count"].cpu_ms))


def _searches(index: engine.Engine, encoder: WordVectorEncoder, queries: Sequence[str]) -> dict[str, Search]:
    vectors = {query: encoder.encode_query(query)[None] for query in queries}

    def search_dense(only: Filter | None, query: str) -> object:
        return index.search_vectors(vectors[query], k=10, filter=only)

    def search_text(mode: Mode, only: Filter | None, query: str) -> object:
        return index.search(query, k=10, mode=mode, filter=only)

    modes_of_text: tuple[Mode, ...] = ("lexical", "hybrid")
    modes = {str(mode): partial(search_text, mode) for mode in modes_of_text}
    return {"dense": search_dense, **modes}


def _measure_filters(index: engine.Engine, search: Search, queries: Sequence[str]) -> Iterator[Record]:
    filters: list[Filter | None] = [
        None,
        *({field: {"$lt": int(len(index) * share)}} for field, share in _FILTERS),
    ]
    calls = {str(number): partial(search, only) for number, only in enumerate(filters)}
    time_in_turn(calls, queries[:20])  # warm-up
    without, *medians = [float(np.median(timing.cpu_ms)) for timing in time_in_turn(calls, queries).values()]
    for (field, share), p50 in zip(_FILTERS, medians, strict=True):
        times = {"p50_cpu_ms": p50, "p50_without_cpu_ms": without, "ratio": p50 / without}
        yield {"field": field, "share": share, **times}


def _format_row(mode: str, record: Record) -> str:
    times = f"{record['ratio']:.2f} of {record['p50_without_cpu_ms']:.2f} without"
    evaluation = f"evaluation {record['evaluation_cpu_ms']:.3f} ms"
    about = f"{mode:<8} {record['field']:<6} {record['share']:<6}"
    return f"{about} p50 {record['p50_cpu_ms']:6.2f} ms, {times}; {evaluation}"
