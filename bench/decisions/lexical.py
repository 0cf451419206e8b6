"""BM25 of the engine and of bm25s on the same terms: time, quality, size.

bm25s is measured with and without its numba backend; each query runs on the engine and on bm25s in turn, so that
other work on the machine affects both alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import measure_quality
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.lexical.bm25 import Bm25
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.postings.postings import PostingsReader, PostingsWriter

__all__ = ["Measured", "add_arguments", "run"]

_K = 100
_DELETED = (0.0, 0.1, 0.5)  # shares of the documents

Terms = list[str]
Found = list[tuple[int, float]]
Search = Callable[[Terms], Found]


@dataclass(frozen=True)
class Measured:
    """One measured number.

    Attributes:
        collection: on what.
        n_documents: documents in it.
        name: the quantity.
        by: whose it is.
        value: the number.
        unit: of the number.
    """

    collection: str
    n_documents: int
    name: str
    by: str
    value: float
    unit: str


class _Indexed:
    """A collection analyzed once and indexed by the engine's modules."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        self.collection = collection
        analyzer = Analyzer()
        start = time.perf_counter()
        self.documents = [analyzer.terms(text) for text in collection.documents.values()]
        analyzed = time.perf_counter()
        self.envelope = _written(Directory(folder), f"{collection.name}.seg", self.documents)
        self.postings_s = time.perf_counter() - analyzed
        self.analysis_s = analyzed - start
        self.reader = PostingsReader(self.envelope, len(self.documents))
        self.queries = {query: analyzer.terms(text) for query, text in collection.queries.items()}

    def measured(self, name: str, by: str, value: float, unit: str) -> Measured:
        return Measured(self.collection.name, len(self.documents), name, by, float(value), unit)


def _written(directory: Directory, name: str, documents: list[Terms]) -> ContainerReader:
    writer = PostingsWriter(directory)
    try:
        for terms in documents:
            writer.add(terms)
        envelope = ContainerWriter(directory, name, FileKind.SEGMENT, bytes(16))
        writer.write(envelope)
        envelope.finish({})
    finally:
        writer.close()
    return ContainerReader(directory, name, FileKind.SEGMENT)


def _engine_search(bm25: Bm25) -> Search:
    def search(terms: Terms) -> Found:
        ranking = bm25.query(terms).top(_K)
        return list(zip(ranking.docs.tolist(), ranking.scores.tolist(), strict=True))

    return search


def _bm25s_search(documents: list[Terms], backend: str) -> Search:
    import bm25s

    peer: Any = bm25s.BM25(k1=DEFAULT_K1, b=DEFAULT_B, method="lucene", backend=backend)
    peer.index(documents, show_progress=False)

    def search(terms: Terms) -> Found:
        docs, scores = peer.retrieve([terms], k=min(_K, len(documents)), show_progress=False)
        return list(zip(docs[0].tolist(), scores[0].tolist(), strict=True))

    return search


def speed(indexed: _Indexed) -> Iterator[Measured]:
    """Time to the best 100 documents of a query's terms.

    The engine is measured without its cache of decoded postings, while that fills, and again; then in turn
    with bm25s by its numba backend, and last bm25s without it.
    """
    engine = _engine_search(Bm25([indexed.reader], [None]))
    uncached = _engine_search(Bm25([indexed.reader], [None], cache_bytes=0))
    turns = {"engine": engine, "bm25s, numba": _bm25s_search(indexed.documents, "numba")}
    queries = [terms for terms in indexed.queries.values() if terms]
    for search in (uncached, *turns.values()):
        search(queries[0])
    times = _times({"engine, no cache": uncached}, queries)
    times |= _times({"engine, first time": engine}, queries)
    times |= _times(turns, queries)
    times |= _times({"bm25s, numpy": _bm25s_search(indexed.documents, "numpy")}, queries)
    for by, spent in times.items():
        for percent in (50, 99):
            yield indexed.measured(f"{_K} best, p{percent}", by, np.percentile(spent, percent) * 1e3, "ms")


def _times(
    searches: dict[str, Search], queries: list[Terms], clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {by: [] for by in searches}
    for terms in queries:
        for by, search in searches.items():
            start = clock()
            search(terms)
            times[by].append(clock() - start)
    return times


def deletions(indexed: _Indexed) -> Iterator[Measured]:
    """Processor time to the best 100 documents when a share of the documents is deleted.

    Deleted documents are taken out of a term's postings when these are decoded. So there are three times: without
    a cache of decoded postings, while it fills, and again.
    """
    queries = [terms for terms in indexed.queries.values() if terms]
    places = np.random.default_rng(0).random(len(indexed.documents))
    for share in _DELETED:
        flags = places < share if share else None
        kept = _engine_search(Bm25([indexed.reader], [flags]))
        turns = {"no cache": _engine_search(Bm25([indexed.reader], [flags], cache_bytes=0)), "first time": kept}
        for search in turns.values():
            search(queries[0])  # which reads the lengths of all documents
        times = _times(turns, queries, time.process_time) | _times({"again": kept}, queries, time.process_time)
        for which, spent in times.items():
            by = f"engine, {which}, {share:.0%} deleted"
            for percent in (50, 99):
                value = np.percentile(spent, percent) * 1e3
                yield indexed.measured(f"{_K} best, p{percent}", by, value, "ms of the processor")


def size(indexed: _Indexed) -> Iterator[Measured]:
    """Bytes a document by section, all together as a share of the text, and the time it took to make them."""
    n_documents = len(indexed.documents)
    parts = indexed.envelope.section_bytes()
    text_bytes = sum(len(text.encode()) for text in indexed.collection.documents.values())
    for part, n_bytes in parts.items():
        yield indexed.measured(part, "engine", n_bytes / n_documents, "bytes per document")
    yield indexed.measured("postings of the text", "engine", 100 * sum(parts.values()) / text_bytes, "%")
    yield indexed.measured("analysis", "engine", indexed.analysis_s / n_documents * 1e6, "us a document")
    yield indexed.measured("postings", "engine", indexed.postings_s / n_documents * 1e6, "us a document")


def quality(indexed: _Indexed) -> Iterator[Measured]:
    """Quality of the best 100 documents."""
    ids = list(indexed.collection.documents)
    searches = {
        "engine": _engine_search(Bm25([indexed.reader], [None])),
        "bm25s": _bm25s_search(indexed.documents, "numpy"),
    }
    for by, search in searches.items():
        run = {
            query: {ids[doc]: score for doc, score in search(terms) if score > 0}
            for query, terms in indexed.queries.items()
            if terms
        }
        found = measure_quality(indexed.collection.qrels, run)
        yield indexed.measured("nDCG@10", by, found.ndcg_10, "linear gain")
        yield indexed.measured("nDCG@10, gain 2^g-1", by, found.ndcg_exp_10, "2^g-1 gain")
        yield indexed.measured("R@100", by, found.recall_100, "")


def measurements(collection: Collection) -> Iterator[Measured]:
    """Measure size, speed and quality, one number after another."""
    with tempfile.TemporaryDirectory() as folder:
        indexed = _Indexed(collection, Path(folder))
        yield from size(indexed)
        yield from speed(indexed)
        yield from deletions(indexed)
        yield from quality(indexed)


def _row(found: Measured) -> str:
    where = f"{found.collection}, {found.n_documents} documents"
    return f"{where:<28} {found.name:<24} {found.by:<20} {found.value:>10.4g} {found.unit}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench lexical``."""
    add_collection(parser, queries=1000)
    add_out(parser, "lexical")


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, append the raw results."""
    for found in measurements(load_collection(options)):
        print(_row(found), flush=True)
        append_record(options.out, {**asdict(found), **circumstances()})
    return 0
