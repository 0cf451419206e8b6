"""Measures changes to an index: ``python -m bench durability [PART ...]``.

``commit``: commits of 100 small documents; ``open``: opening 1 and 100 segments; ``merge``: rate and memory of
merging segments of one quantizer; ``updates``: files and dead bytes after 1,000 commits that replace 100 documents
each; ``search``: latency while segments are merged. Vectors are random word vectors (`bench.data.word_encoder`),
so that storage is measured and not the encoder.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from bench.data.word_encoder import DIM, WordVectorEncoder, word_vectors
from bench.harness.latency import summarize_ms, time_in_turn
from bench.harness.process_memory import private_bytes
from bench.harness.records import Record, add_out, append_result
from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.document_encoder import EncodedDocument
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_merger import SegmentMerger
from quarry.engine.representation.base import DocumentVectors
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["add_arguments", "run"]

_ENCODER = WordVectorEncoder()
_N_COMMITS = 1000
_N_REPLACED = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench durability``."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(_PARTS))
    add_out(parser, "durability")


def run(args: argparse.Namespace) -> int:
    """Measure the named parts, or all, and append the raw results."""
    for name in args.parts or _PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found = _PARTS[name](Path(folder))
        print(name, found, flush=True)
        append_result(args.out, {"part": name, **found})
    return 0


def _make_documents(
    numbers: Iterable[int], generator: np.random.Generator, n_words: int = 60
) -> list[dict[str, str]]:
    """Return documents of random words with a Zipf distribution; their ids are the numbers."""
    listed = list(numbers)
    words = generator.zipf(1.3, (len(listed), n_words)) % 50_000
    return [
        {"id": str(number), "text": " ".join(f"word{word}" for word in row)}
        for number, row in zip(listed, words.tolist(), strict=True)
    ]


def _build(folder: Path, documents: Iterable[dict[str, str]]) -> Path:
    engine.build(documents, folder, encoder=_ENCODER, representation=KMeans(4))
    return folder


def _open_writable(path: Path) -> Engine:
    return Engine.open(path, writable=True, encoder=_ENCODER)


def _open_writer(path: Path) -> IndexWriter:
    return IndexWriter(Directory(path), _ENCODER, 1)


def _measure_commits(folder: Path) -> Record:
    """Measure `commit` alone: documents are encoded by `add`."""
    generator = np.random.default_rng(2)
    wall_s, cpu_s = [], []
    path = _build(folder / "index", _make_documents(range(5000), np.random.default_rng(1)))
    with _open_writable(path) as index:
        for first in range(10_000, 16_000, _N_REPLACED):
            index.add(_make_documents(range(first, first + _N_REPLACED), generator, 20))
            wall, cpu = time.perf_counter(), time.thread_time()
            index.commit()
            wall_s.append(time.perf_counter() - wall)
            cpu_s.append(time.thread_time() - cpu)
    return {"n_documents": _N_REPLACED, **summarize_ms(wall_s), **summarize_ms(cpu_s, "cpu_")}


def _measure_opening(folder: Path) -> Record:
    """Measure opening an index of 1 and of 100 segments for reading."""
    many = _build(folder / "many", _make_documents(range(100), np.random.default_rng(1)))
    with closing(_open_writer(many)) as writer:
        for number in range(99):
            writer.add([Document(f"x{number}", "some words of a text")])
            writer.commit()
    one = _build(folder / "one", _make_documents(range(20_000), np.random.default_rng(1)))
    found: Record = {}
    calls = {
        name: lambda _, path=path: Snapshot(Directory(path)).close() for name, path in (("1", one), ("100", many))
    }
    for name, timing in time_in_turn(calls, range(30)).items():
        found |= summarize_ms((timing.wall_ms / 1e3).tolist(), f"segments_{name}_")
        found |= summarize_ms((timing.cpu_ms / 1e3).tolist(), f"segments_{name}_cpu_")
    return found


def _build_segments(path: Path, n_segments: int, n_documents: int, n_words: int) -> Snapshot:
    """Build segments of one quantizer: four centroids per document, every tenth document deleted."""
    generator = np.random.default_rng(3)
    _build(path, _make_documents(range(20), generator))
    for number in range(n_segments):
        numbers = range(number * n_documents, (number + 1) * n_documents)
        with closing(_open_writer(path)) as writer:
            for encoded in _encode(_make_documents(numbers, generator, n_words), generator):
                writer.add_batch(EncodedBatch.of([encoded], writer.metric))
            writer.delete(str(doc) for doc in range(0, n_segments * n_documents, 10))
            writer.commit()
    return Snapshot(Directory(path))


def _encode(documents: list[dict[str, str]], generator: np.random.Generator) -> Iterator[EncodedDocument]:
    """Yield documents with random centroids near word vectors."""
    table = word_vectors()
    for document in documents:
        rows = table[generator.integers(0, len(table), 4)] + 0.03 * generator.standard_normal((4, DIM), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = DocumentVectors(rows.astype(np.float32), tuple(((n, n + 4),) for n in range(0, 20, 5)))
        yield EncodedDocument(Document(document["id"], document["text"]), vectors, document["text"].split(), 30)


def _measure_merges(folder: Path) -> Record:
    """Measure merging four segments into one, of documents with 1 word (almost no text) and with 30 words."""
    found: Record = {}
    for n_words, n_documents in ((1, 40_000), (30, 10_000)):
        with closing(_build_segments(folder / f"{n_words}", 4, n_documents, n_words)) as snapshot:
            found |= {f"{name}_{n_words}_words": value for name, value in _measure_merge(snapshot).items()}
    return found


def _measure_merge(snapshot: Snapshot) -> Record:
    merger, sources, quantizer = _open_merger(snapshot, threads=2)
    growth_bytes: list[int] = []

    def merge(_: object) -> None:
        with _sample_memory(growth_bytes):
            merged = merger.merge(sources, quantizer)
        assert merged.record is not None
        (snapshot.directory.path / merged.record.file.name).unlink()

    timing = time_in_turn({"merge": merge}, range(3))["merge"]
    n_rows = sum(segment.reader.n_rows for segment in sources)
    return {
        "n_centroids": n_rows,
        "input_bytes": sum(segment.reader.n_bytes for segment in sources),
        "centroids_per_s": n_rows / float(timing.wall_ms.min()) * 1e3,
        "centroids_per_cpu_s": n_rows / float(timing.cpu_ms.min()) * 1e3,
        "memory_growth_bytes": max(growth_bytes),
    }


def _open_merger(snapshot: Snapshot, threads: int) -> tuple[SegmentMerger, list[OpenSegment], StoredQuantizer]:
    """Return a merger, the segments with inverted lists and their quantizer."""
    sources = [segment for segment in snapshot.segments if segment.quantizer]
    quantizer = sources[0].quantizer
    assert quantizer is not None
    merger = SegmentMerger(snapshot.directory, ListPlan(snapshot.manifest.settings, threads, Thresholds()))
    return merger, sources, StoredQuantizer(quantizer, snapshot.manifest.quantizers[-1])


@contextmanager
def _sample_memory(growth_bytes: list[int]) -> Iterator[None]:
    """Append the growth of private memory during a block, sampled every 5 ms."""
    before = private_bytes()
    samples = [before]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.005):
            samples.append(private_bytes())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        growth_bytes.append(max(samples) - before)


def _measure_updates(folder: Path) -> Record:
    """Measure what remains after many commits that replace 100 of 10,000 documents each."""
    generator = np.random.default_rng(4)
    path = _build(folder / "index", _make_documents(range(10_000), np.random.default_rng(1)))
    with _open_writable(path) as index:
        for _ in range(_N_COMMITS):
            index.add(_make_documents(generator.choice(10_000, _N_REPLACED, replace=False).tolist(), generator))
            index.commit()
    manifest = Manifest.load(Directory(path), find_latest_generation(Directory(path)))
    sizes = [(each.file.n_bytes, each.n_deleted / each.n_docs) for each in manifest.segments]
    return {
        "n_commits": _N_COMMITS,
        "n_files": sum(1 for _ in path.iterdir()),
        "n_segments": len(sizes),
        "dead_share": sum(size * dead for size, dead in sizes) / sum(size for size, _ in sizes),
        "merged_texts_to_built": _compare_text_bytes(path, folder / "built"),
    }


def _compare_text_bytes(path: Path, rebuilt: Path) -> float:
    """Return the bytes of texts after a merge of all segments, divided by those in a new build."""
    with _open_writable(path) as index:
        index.merge()
        documents = [{"id": each.id, "text": each.text} for each in index.get(map(str, range(10_000)))]
    return _text_bytes(path) / _text_bytes(_build(rebuilt, documents))


def _text_bytes(path: Path) -> int:
    with closing(Snapshot(Directory(path))) as snapshot:
        sections = [segment.reader.section_bytes() for segment in snapshot.segments]
    return sum(each["documents"] + each["document_dictionaries"] for each in sections)


def _measure_search(folder: Path) -> Record:
    """Measure searches during merges, alternating with searches without a merge."""
    snapshot = _build_segments(folder / "index", 4, 15_000, 30)
    merger, sources, quantizer = _open_merger(snapshot, threads=1)
    queries = [each["text"] for each in _make_documents(range(200), np.random.default_rng(5), 6)]
    alone: list[float] = []
    during: list[float] = []
    with Engine.open(folder / "index", encoder=_ENCODER, threads=1) as index:
        _search_s(index, queries)
        for _ in range(4):
            alone += _search_s(index, queries)
            thread = threading.Thread(target=lambda: merger.merge(sources, quantizer))
            thread.start()
            while thread.is_alive():
                during += _search_s(index, queries[:20])
            thread.join()
    return {**summarize_ms(alone, "alone_"), **summarize_ms(during, "meanwhile_"), "n_meanwhile": len(during)}


def _search_s(index: Engine, queries: list[str]) -> list[float]:
    """Return the seconds of each search."""
    timing = time_in_turn({"search": lambda query: index.search(query, k=10)}, queries)["search"]
    return [float(ms) / 1e3 for ms in timing.wall_ms]


_PARTS: dict[str, Callable[[Path], Record]] = {
    "commit": _measure_commits,
    "open": _measure_opening,
    "merge": _measure_merges,
    "updates": _measure_updates,
    "search": _measure_search,
}
