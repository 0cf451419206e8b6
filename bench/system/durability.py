"""Measures changes to an index: ``python -m bench durability [PART ...] [--out FILE]``.

Parts: ``commit`` (100 small documents), ``open`` (1 and 100 segments), ``merge`` (segments of one quantizer: rate,
memory, and seconds of each part for a million centroids, one after the other), ``updates`` (1,000 commits that
replace 100 documents each: what is left behind, and bytes of texts to those of a build), ``search`` (latency
while a merge runs against without). The encoder is a table of random vectors, so that storage is measured.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from bench.harness.environment import circumstances
from bench.harness.process_memory import private_bytes
from bench.harness.records import add_out, append_record
from bench.system.merge_parts import merge_parts
from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.documents.document import Document
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.indexer.document_encoder import EncodedDocument
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segment_merger import SegmentMerger
from quarry.engine.representation.base import DocumentVectors
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["add_arguments", "run"]

_DIM = 384
_TABLE = 4096
_WORD = re.compile(r"\w+")
Vectors = npt.NDArray[np.float32]


def _table() -> Vectors:
    vectors = np.random.default_rng(0).standard_normal((_TABLE, _DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


@dataclass(frozen=True)
class StandIn:
    """An encoder that looks words up in a table of random vectors."""

    name: str = "stand-in"
    identity: str = "stand-in"
    dim: int = _DIM
    normalize: bool = True
    beta: float | None = None
    vector_kinds: frozenset[VectorKind] = frozenset({"token"})
    trained_representation: str | None = None
    table: Vectors = field(default_factory=_table, compare=False)

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """One window of all words."""
        words = list(_WORD.finditer(text))
        values = self.table[[xxhash.xxh32_intdigest(word[0].encode()) % _TABLE for word in words]]
        bounds = np.array([word.span() for word in words], np.int64)
        mean = values.mean(axis=0)
        yield TokenVectors(values, bounds[:, 0], bounds[:, 1], mean, mean)

    def encode_query(self, text: str) -> Vectors:
        """The mean of the words."""
        mean: Vectors = self.table[[xxhash.xxh32_intdigest(word.encode()) % _TABLE for word in text.split()]].mean(
            0
        )
        return mean / np.float32(np.linalg.norm(mean))


def _documents(
    numbers: range | list[int], generator: np.random.Generator, n_words: int = 60
) -> list[dict[str, str]]:
    words = generator.zipf(1.3, (len(numbers), n_words)) % 50_000
    return [
        {"id": str(number), "text": " ".join(f"word{word}" for word in row)}
        for number, row in zip(numbers, words.tolist(), strict=True)
    ]


def _built(folder: Path, n_documents: int) -> Path:
    documents = _documents(range(n_documents), np.random.default_rng(1))
    engine.build(documents, folder, encoder=StandIn(), representation=KMeans(4))
    return folder


def _opened(path: Path) -> Engine:
    return Engine.open(path, writable=True, encoder=StandIn())


def _commit(folder: Path) -> dict[str, object]:
    """Commits of 100 small documents, the time of `commit` alone: the documents are encoded before it."""
    generator = np.random.default_rng(2)
    walls, cpus = [], []
    with _opened(_built(folder / "ix", 5000)) as index:
        for first in range(10_000, 16_000, 100):
            index.add(_documents(range(first, first + 100), generator, 20))
            wall, cpu = time.perf_counter(), time.thread_time()
            index.commit()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.thread_time() - cpu)
    return {"n_documents": 100, **_quantiles("", walls), **_quantiles("cpu_", cpus)}


def _quantiles(prefix: str, times: list[float]) -> dict[str, float]:
    """The median and the 95th percentile in milliseconds."""
    p50, p95 = np.quantile(times, [0.5, 0.95]) * 1e3
    return {f"{prefix}p50_ms": float(p50), f"{prefix}p95_ms": float(p95)}


def _open(folder: Path) -> dict[str, object]:
    """Opening an index of 1 and of 100 segments, for reading."""
    found: dict[str, object] = {}
    many = folder / "many"
    _built(many, 100)
    with closing(_writer(many)) as writer:
        for number in range(99):
            writer.add([Document(f"x{number}", "some words of a text")])
            writer.commit()
    for name, path in (("1", _built(folder / "one", 20_000)), ("100", many)):
        walls, cpus = [], []
        for _ in range(30):
            wall, cpu = time.perf_counter(), time.thread_time()
            Snapshot(Directory(path)).close()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.thread_time() - cpu)
        found |= _quantiles(f"segments_{name}_", walls) | _quantiles(f"segments_{name}_cpu_", cpus)
    return found


def _writer(path: Path) -> IndexWriter:
    return IndexWriter(Directory(path), StandIn(), 1)


def _segments(path: Path, n_segments: int, n_documents: int, n_words: int) -> Snapshot:
    """Segments of one quantizer: 4 centroids a document, texts of `n_words`; every tenth document is deleted."""
    generator = np.random.default_rng(3)
    engine.build(_documents(range(20), generator), path, encoder=StandIn(), representation=KMeans(4))
    for number in range(n_segments):
        with closing(_writer(path)) as writer:
            for encoded in _encoded(range(number * n_documents, (number + 1) * n_documents), generator, n_words):
                writer.add_encoded(encoded)
            writer.delete(str(doc) for doc in range(0, n_segments * n_documents, 10))
            writer.commit()
    return Snapshot(Directory(path))


def _encoded(numbers: range, generator: np.random.Generator, n_words: int) -> Iterator[EncodedDocument]:
    """Documents with random centroids around common ones."""
    table = _table()
    for document in _documents(numbers, generator, n_words):
        rows = table[generator.integers(0, _TABLE, 4)] + 0.03 * generator.standard_normal((4, _DIM), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = DocumentVectors(rows.astype(np.float32), tuple(((n, n + 4),) for n in range(0, 20, 5)))
        yield EncodedDocument(Document(document["id"], document["text"]), vectors, document["text"].split(), 30)


def _merge(folder: Path) -> dict[str, object]:
    """Merges of four segments into one, of documents with a word each (next to no text) and with 30."""
    found: dict[str, object] = {}
    for n_words, n_documents in ((1, 40_000), (30, 10_000)):
        snapshot = _segments(folder / f"{n_words}", 4, n_documents, n_words)
        found |= {f"{name}_{n_words}_words": value for name, value in _merged(snapshot).items()}
        snapshot.close()
    return found


def _merged(snapshot: Snapshot) -> dict[str, object]:
    merger, sources, quantizer = _merge_of(snapshot, 2)
    walls, cpus, growth = [], [], 0
    for _ in range(3):
        before = private_bytes()
        with _Sampled(private_bytes) as sampled:
            wall, cpu = time.perf_counter(), time.process_time()
            merged = merger.merge(sources, quantizer)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        growth = max(growth, sampled.largest - before)
        assert merged.record is not None
        (snapshot.directory.path / merged.record.file.name).unlink()
    n_rows = sum(segment.reader.n_rows for segment in sources)
    parts = [merge_parts(snapshot.directory, sources, quantizer.quantizer) for _ in range(5)]
    return {
        "n_centroids": n_rows,
        "input_bytes": sum(segment.reader.n_bytes for segment in sources),
        "centroids_per_s": n_rows / min(walls),
        "centroids_per_cpu_s": n_rows / min(cpus),
        "memory_growth_bytes": growth,
        **{
            f"{part}_s_per_million": float(np.median([each[part] for each in parts])) / n_rows * 1e6
            for part in parts[0]
        },
    }


def _merge_of(snapshot: Snapshot, threads: int) -> tuple[SegmentMerger, list[OpenSegment], StoredQuantizer]:
    """What merges the segments that have lists."""
    sources = [segment for segment in snapshot.segments if segment.quantizer]
    quantizer = sources[0].quantizer
    assert quantizer is not None
    merger = SegmentMerger(snapshot.directory, snapshot.manifest.settings, threads)
    return merger, sources, StoredQuantizer(quantizer, snapshot.manifest.quantizers[-1])


class _Sampled:
    """The largest value of a function while a block runs, sampled every 5 ms."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self._measure = measure
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.largest = 0

    def _work(self) -> None:
        while not self._done.wait(0.005):
            self.largest = max(self.largest, self._measure())

    def __enter__(self) -> _Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _updates(folder: Path) -> dict[str, object]:
    """Commits that each replace 100 documents of 10,000, and nothing else is ever called."""
    path, generator = _built(folder / "ix", 10_000), np.random.default_rng(4)
    with _opened(path) as index:
        for _ in range(1000):
            index.add(_documents(generator.choice(10_000, 100, replace=False).tolist(), generator))
            index.commit()
    manifest = Manifest.load(Directory(path), find_latest_generation(Directory(path)))
    sizes = [(each.file.n_bytes, each.n_deleted / each.n_docs) for each in manifest.segments]
    return {
        "n_commits": 1000,
        "n_files": sum(1 for _ in path.iterdir()),
        "n_segments": len(sizes),
        "dead_share": sum(size * dead for size, dead in sizes) / sum(size for size, _ in sizes),
        "merged_texts_to_built": _merged_to_built(path, folder / "built"),
    }


def _merged_to_built(path: Path, target: Path) -> float:
    """How many times the bytes the texts take, once all is merged, that they would in an index built at once."""
    with _opened(path) as index:
        index.merge()
        documents = [{"id": each.id, "text": each.text} for each in index.get(map(str, range(10_000)))]
    engine.build(documents, target, encoder=StandIn(), representation=KMeans(4))
    return _text_bytes(path) / _text_bytes(target)


def _text_bytes(path: Path) -> int:
    with closing(Snapshot(Directory(path))) as snapshot:
        sections = [segment.reader.section_bytes() for segment in snapshot.segments]
    return sum(each["documents"] + each["document_dictionaries"] for each in sections)


def _search(folder: Path) -> dict[str, object]:
    """Searches one after the other while segments merge again and again, alternating with searches alone."""
    snapshot = _segments(folder / "ix", 4, 15_000, 30)
    merger, sources, quantizer = _merge_of(snapshot, 1)
    queries = _documents(range(200), np.random.default_rng(5), 6)
    alone: list[float] = []
    meanwhile: list[float] = []
    with Engine.open(folder / "ix", encoder=StandIn(), threads=1) as index:
        _latencies(index, queries)
        for _ in range(4):
            alone += _latencies(index, queries)
            thread = threading.Thread(target=lambda: merger.merge(sources, quantizer))
            thread.start()
            while thread.is_alive():
                meanwhile += _latencies(index, queries[:20])
            thread.join()
    return {
        **_quantiles("alone_", alone),
        **_quantiles("meanwhile_", meanwhile),
        "n_meanwhile": len(meanwhile),
    }


def _latencies(index: Engine, queries: list[dict[str, str]]) -> list[float]:
    times = []
    for query in queries:
        started = time.perf_counter()
        index.search(query["text"], k=10)
        times.append(time.perf_counter() - started)
    return times


_PARTS: dict[str, Callable[[Path], dict[str, object]]] = {
    "commit": _commit,
    "open": _open,
    "merge": _merge,
    "updates": _updates,
    "search": _search,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench durability``."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(_PARTS))
    add_out(parser, "durability")


def run(args: argparse.Namespace) -> int:
    """Measure the parts that are named, or all."""
    for name in args.parts or _PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found = _PARTS[name](Path(folder))
        print(name, found, flush=True)
        append_record(args.out, {"part": name, **found, **circumstances()})
    return 0
