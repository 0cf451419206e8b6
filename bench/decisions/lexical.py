"""Compares BM25 of the engine and of bm25s on the same terms: speed, quality, size.

bm25s is measured with and without its numba backend; each query runs on the engine and on bm25s in turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import measure_quality
from bench.harness.latency import Timing, time_in_turn
from bench.harness.records import add_out, append_result
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.lexical.bm25 import Bm25
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.postings.postings import PostingsReader, PostingsWriter

__all__ = ["Measurement", "add_arguments", "run"]

_K = 100
_DELETED = (0.0, 0.1, 0.5)  # shares of the documents

Terms = list[str]
Found = list[tuple[int, float]]
Search = Callable[[Terms], Found]


class Measurement(NamedTuple):
    """One measured value.

    Attributes:
        name: the quantity.
        by: the library and its setting.
        value: the value.
        unit: of the value.
    """

    name: str
    by: str
    value: float
    unit: str


class _Indexed:
    """A collection, analyzed and indexed by the engine."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        self.collection = collection
        analyzer = Analyzer()
        started = time.perf_counter()
        self.documents = [analyzer.terms(text) for text in collection.documents.values()]
        self.analysis_s = time.perf_counter() - started
        started = time.perf_counter()
        self.container = _write_postings(Directory(folder), f"{collection.name}.seg", self.documents)
        self.postings_s = time.perf_counter() - started
        self.reader = PostingsReader(self.container, len(self.documents))
        analyzed = {query: analyzer.terms(text) for query, text in collection.queries.items()}
        self.queries = {query: terms for query, terms in analyzed.items() if terms}

    def engine_search(self, deleted: Any = None, **settings: Any) -> Search:  # noqa: ANN401
        """Return the engine's search, after a first query, which reads the lengths of all documents."""
        bm25 = Bm25([self.reader], [deleted], **settings)

        def search(terms: Terms) -> Found:
            ranking = bm25.query(terms).top(_K)
            return list(zip(ranking.docs.tolist(), ranking.scores.tolist(), strict=True))

        search(next(iter(self.queries.values())))
        return search

    def bm25s_search(self, backend: str) -> Search:
        """Return the search of bm25s over the same terms, after a first query."""
        import bm25s

        peer: Any = bm25s.BM25(k1=DEFAULT_K1, b=DEFAULT_B, method="lucene", backend=backend)
        peer.index(self.documents, show_progress=False)

        def search(terms: Terms) -> Found:
            docs, scores = peer.retrieve([terms], k=min(_K, len(self.documents)), show_progress=False)
            return list(zip(docs[0].tolist(), scores[0].tolist(), strict=True))

        search(next(iter(self.queries.values())))
        return search

    def time(self, **searches: Search) -> dict[str, Timing[Found]]:
        """Time searches in turn on all queries."""
        return time_in_turn(searches, self.queries.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench lexical``."""
    add_collection(parser, queries=1000)
    add_out(parser, "lexical")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the raw results."""
    collection = load_collection(args)
    about = {"collection": collection.name, "n_documents": len(collection.documents)}
    print(f"{collection.name}, {len(collection.documents)} documents")
    with tempfile.TemporaryDirectory() as folder:
        indexed = _Indexed(collection, Path(folder))
        for measure in (_measure_size, _measure_speed, _measure_deletions, _measure_quality):
            for found in measure(indexed):
                print(f"{found.name:<24} {found.by:<28} {found.value:>10.4g} {found.unit}", flush=True)
                append_result(args.out, {**about, **found._asdict()})
    return 0


def _write_postings(directory: Directory, name: str, documents: list[Terms]) -> ContainerReader:
    writer = PostingsWriter(directory)
    try:
        for terms in documents:
            writer.add(terms)
        container = ContainerWriter(directory, name, FileKind.SEGMENT, bytes(16))
        writer.write(container)
        container.finish({})
    finally:
        writer.close()
    return ContainerReader(directory, name, FileKind.SEGMENT)


def _measure_size(indexed: _Indexed) -> Iterator[Measurement]:
    """Yield bytes per document by section, their sum as a share of the text, and the time to build them."""
    n_documents = len(indexed.documents)
    sections = indexed.container.section_bytes()
    text_bytes = sum(len(text.encode()) for text in indexed.collection.documents.values())
    for section, n_bytes in sections.items():
        yield Measurement(section, "engine", n_bytes / n_documents, "bytes per document")
    yield Measurement("postings of the text", "engine", 100 * sum(sections.values()) / text_bytes, "%")
    yield Measurement("analysis", "engine", indexed.analysis_s / n_documents * 1e6, "us per document")
    yield Measurement("postings", "engine", indexed.postings_s / n_documents * 1e6, "us per document")


def _measure_speed(indexed: _Indexed) -> Iterator[Measurement]:
    """Yield the latency of a query's best 100 documents.

    The engine is measured without its cache of decoded postings, while the cache fills, and with it.
    """
    cached = indexed.engine_search()
    times = indexed.time(**{"engine, no cache": indexed.engine_search(cache_bytes=0)})
    times |= indexed.time(**{"engine, first time": cached})
    times |= indexed.time(**{"engine": cached, "bm25s, numba": indexed.bm25s_search("numba")})
    times |= indexed.time(**{"bm25s, numpy": indexed.bm25s_search("numpy")})
    for by, timing in times.items():
        for percent in (50, 99):
            yield Measurement(f"{_K} best, p{percent}", by, float(np.percentile(timing.wall_ms, percent)), "ms")


def _measure_deletions(indexed: _Indexed) -> Iterator[Measurement]:
    """Yield the processor time of a query when a share of the documents is deleted.

    Deleted documents are removed from a term's postings when these are decoded, so the cache matters.
    """
    order = np.random.default_rng(0).random(len(indexed.documents))
    for share in _DELETED:
        deleted = order < share if share else None
        cached = indexed.engine_search(deleted)
        uncached = indexed.engine_search(deleted, cache_bytes=0)
        times = indexed.time(**{"no cache": uncached, "first time": cached}) | indexed.time(again=cached)
        for which, timing in times.items():
            by = f"engine, {which}, {share:.0%} deleted"
            for percent in (50, 99):
                cpu_ms = float(np.percentile(timing.cpu_ms, percent))
                yield Measurement(f"{_K} best, p{percent}", by, cpu_ms, "ms of the processor")


def _measure_quality(indexed: _Indexed) -> Iterator[Measurement]:
    ids = list(indexed.collection.documents)
    for by, search in (("engine", indexed.engine_search()), ("bm25s", indexed.bm25s_search("numpy"))):
        run = {
            query: {ids[doc]: score for doc, score in search(terms) if score > 0}
            for query, terms in indexed.queries.items()
        }
        found = measure_quality(indexed.collection.qrels, run)
        yield Measurement("nDCG@10", by, found.ndcg_10, "linear gain")
        yield Measurement("nDCG@10, gain 2^g-1", by, found.ndcg_exp_10, "2^g-1 gain")
        yield Measurement("R@100", by, found.recall_100, "")
