"""Measures the latency from text to hits by mode, for a collection that would take half an hour to encode.

``python -m bench hybrid_latency COLLECTION [--documents N] [--out FILE]`` builds an index of a collection whose
vectors are sums of random vectors of its longer words, made in a fraction of the encoder's time. It asks the
collection's queries; each is encoded by the bundled encoder as well, so that its time is in the figures, and what
it gives is left aside. So latencies are realistic, and quality is not.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from bench.data.collections import add_collection, load_collection
from bench.harness.environment import circumstances
from bench.harness.records import add_out, write_records
from quarry import engine
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind

__all__ = ["WordVectors", "add_arguments", "run"]

_N_QUERIES = 500
_N_VECTORS = 1 << 14
_WORD = re.compile(r"\w+")
_LONG_WORD = re.compile(r"\w{5,}")  # short ones are in every text: they would put all vectors into few lists

Vectors = npt.NDArray[np.float32]


class WordVectors:
    """An encoder that gives each word one of 16,384 random vectors, and takes the real one's time for queries."""

    name = "random word vectors"
    identity = "random-word-vectors"
    normalize = True
    beta = None
    vector_kinds: frozenset[VectorKind] = frozenset({"token"})
    trained_representation = None

    def __init__(self, timed: Encoder) -> None:
        self._timed = timed
        self.dim = timed.dim
        table = np.random.default_rng(0).standard_normal((_N_VECTORS, timed.dim))
        self._table: Vectors = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """One window of all words."""
        words = list(_LONG_WORD.finditer(text)) or list(_WORD.finditer(text))
        if words:
            values = self._vectors([word[0] for word in words])
            bounds = np.array([word.span() for word in words], np.int64)
            mean = values.mean(axis=0)
            yield TokenVectors(values, bounds[:, 0], bounds[:, 1], mean, mean)

    def encode_query(self, text: str) -> Vectors:
        """Encode with the real encoder, and answer with the sum of the words' vectors."""
        self._timed.encode_query(text)
        vector = self._vectors(_LONG_WORD.findall(text) or _WORD.findall(text)).sum(axis=0)
        scaled: Vectors = vector / np.linalg.norm(vector)
        return scaled

    def _vectors(self, words: list[str]) -> Vectors:
        return self._table[[xxhash.xxh3_64_intdigest(word.lower().encode()) % _N_VECTORS for word in words]]


def _times_ms(index: engine.Engine, queries: list[str], mode: str, k: int) -> list[float]:
    index.search(queries[0], k, mode=mode)
    times = []
    for query in queries:
        started = time.perf_counter()
        index.search(query, k, mode=mode)
        times.append((time.perf_counter() - started) * 1e3)
    return times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench hybrid_latency``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--documents", type=int, help="the first so many documents only")
    add_out(parser, "hybrid_latency", replaces=True)


def run(options: argparse.Namespace) -> int:
    """Build, measure, print a table, write the raw results."""
    collection = load_collection(options)
    queries = list(collection.queries.values())[:_N_QUERIES]
    docs = ({"id": name, "text": text} for name, text in islice(collection.documents.items(), options.documents))
    encoder, records = WordVectors(open_encoder()), []
    with tempfile.TemporaryDirectory() as folder:
        report = engine.build(docs, Path(folder) / "idx", encoder=encoder)
        print(f"{report.n_documents} documents, {report.n_centroids} centroids, {report.duration_s:.0f} s")
        with engine.Engine.open(Path(folder) / "idx", encoder=encoder, threads=1) as index:
            for mode, k in (("dense", 10), ("lexical", 10), ("hybrid", 10), ("hybrid", 100)):
                times = _times_ms(index, queries, mode, k)
                p50, p95 = statistics.median(times), float(np.quantile(times, 0.95))
                print(f"{mode:<8} k {k:<4} p50 {p50:6.2f} ms  p95 {p95:6.2f} ms", flush=True)
                numbers = {"mode": mode, "k": k, "p50_ms": p50, "p95_ms": p95, "n_queries": len(queries)}
                sizes = {"n_documents": report.n_documents, "n_centroids": report.n_centroids}
                records.append({**numbers, **sizes, **circumstances()})
    write_records(options.out, records)
    return 0
