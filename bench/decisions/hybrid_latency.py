"""Measures latency from text to hits by mode on a large collection.

The index has random word vectors (`bench.data.word_encoder`), because encoding the collection would take half an
hour. Each query is also encoded by the bundled encoder, whose time is part of the latency and whose vector is not
used. So latencies are realistic; quality is not measured.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.word_encoder import WordVectorEncoder
from bench.harness.latency import latency_ms
from bench.harness.records import Record, add_out, append_result
from quarry import engine
from quarry.engine.encoding.opening import open_encoder

__all__ = ["add_arguments", "add_sizes", "build_word_index", "run"]

_N_QUERIES = 500


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a measurement on an index of word vectors."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--documents", type=int, help="use only the first documents")


@contextmanager
def build_word_index(
    docs: Iterable[dict[str, object]], encoder: WordVectorEncoder
) -> Iterator[tuple[engine.Engine, Record]]:
    """Build a temporary index and open it with one thread; also yield its numbers of documents and centroids."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        report = engine.build(docs, path, encoder=encoder)
        print(f"{report.n_documents} documents, {report.n_centroids} centroids, {report.duration_s:.0f} s")
        sizes: Record = {"n_documents": report.n_documents, "n_centroids": report.n_centroids}
        with engine.Engine.open(path, encoder=encoder, threads=1) as index:
            yield index, sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench hybrid_latency``."""
    add_sizes(parser)
    add_out(parser, "hybrid_latency")


def run(args: argparse.Namespace) -> int:
    """Build, measure, print a table, append the raw results."""
    collection = load_collection(args)
    queries = list(collection.queries.values())[:_N_QUERIES]
    docs = _make_documents(collection, args.documents)
    with build_word_index(docs, WordVectorEncoder(open_encoder())) as (index, sizes):
        for mode, k in (("dense", 10), ("lexical", 10), ("hybrid", 10), ("hybrid", 100)):
            search = partial(index.search, k=k, mode=mode)
            search(queries[0])
            times = latency_ms(search, queries)
            print(f"{mode:<8} k {k:<4} p50 {times['p50_ms']:6.2f} ms  p95 {times['p95_ms']:6.2f} ms", flush=True)
            append_result(args.out, {"mode": mode, "k": k, **times, "n_queries": len(queries), **sizes})
    return 0


def _make_documents(collection: Collection, n: int | None) -> Iterator[dict[str, object]]:
    return ({"id": name, "text": text} for name, text in islice(collection.documents.items(), n))
