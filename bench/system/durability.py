"""Measures changes to an index: ``python -m bench durability [PART ...]``.

``commit``: commits of 100 small documents; ``open``: opening 1 and 100 segments; ``merge``: rate and memory of
merging segments of one quantizer; ``updates``: segments and deleted documents after 1,000 commits that replace 100
documents each; ``search``: latency while segments are merged. Vectors are random word vectors
(`bench.data.word_encoder`), so that storage is measured and not the encoder.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.data.word_encoder import WordVectorEncoder, word_vectors
from bench.harness.fresh_process import in_fresh_process, private_bytes
from bench.harness.latency import summarize_ms, time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.thresholds import MergeLimits, Thresholds

__all__ = ["add_arguments", "merge_index", "run"]

_ENCODER = WordVectorEncoder()
_N_COMMITS = 1000
_N_REPLACED = 100
_UNMERGED = Thresholds(merging=MergeLimits(width=1000, dead_share=1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench durability``."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(_PARTS))
    add_out(parser, "durability")


def run(args: argparse.Namespace) -> int:
    """Measure the named parts, or all, and append the raw results."""
    for name in args.parts or _PARTS:
        with tempfile.TemporaryDirectory() as folder:
            record = _PARTS[name](Path(folder))
        print(name, record, flush=True)
        append_result(args.out, {"part": name, **record})
    return 0


def _make_texts(n: int, generator: np.random.Generator, n_words: int = 60) -> list[str]:
    """Return texts of random words with a Zipf distribution."""
    words = generator.zipf(1.3, (n, n_words)) % 50_000
    return [" ".join(f"word{word}" for word in row) for row in words.tolist()]


def _make_documents(
    numbers: Iterable[int], generator: np.random.Generator, n_words: int = 60
) -> list[dict[str, str]]:
    """Return documents of random words; their ids are the numbers."""
    ids = list(map(str, numbers))
    texts = _make_texts(len(ids), generator, n_words)
    return [{"id": name, "text": text} for name, text in zip(ids, texts, strict=True)]


def _build(folder: Path, n_documents: int) -> Path:
    documents = _make_documents(range(n_documents), np.random.default_rng(1))
    engine.build(documents, folder, encoder=_ENCODER, representation=KMeans(4))
    return folder


def _open_writable(path: Path, thresholds: Thresholds | None = None) -> Engine:
    return Engine.open(path, writable=True, encoder=_ENCODER, thresholds=thresholds)


def _measure_commits(folder: Path) -> Record:
    """Measure `commit` alone: documents are encoded by `add`."""
    generator = np.random.default_rng(2)
    wall_s, cpu_s = [], []
    with _open_writable(_build(folder / "index", 5000)) as index:
        for first in range(10_000, 16_000, _N_REPLACED):
            index.add(_make_documents(range(first, first + _N_REPLACED), generator, 20))
            wall, cpu = time.perf_counter(), time.thread_time()
            index.commit()
            wall_s.append(time.perf_counter() - wall)
            cpu_s.append(time.thread_time() - cpu)
    return {"n_documents": _N_REPLACED, **summarize_ms(wall_s), **summarize_ms(cpu_s, "cpu_")}


def _measure_opening(folder: Path) -> Record:
    """Measure opening an index of 1 and of 100 segments for reading."""
    one, many = _build(folder / "one", 20_000), _build(folder / "many", 100)
    with _open_writable(many, _UNMERGED) as index:
        for number in range(99):
            index.add([{"id": f"x{number}", "text": "some words of a text"}])
            index.commit()
    calls = {
        name: lambda _, path=path: Engine.open(path, encoder=_ENCODER).close()
        for name, path in (("1", one), ("100", many))
    }
    record: Record = {}
    for name, timing in time_in_turn(calls, range(30)).items():
        record |= summarize_ms((timing.wall_ms / 1e3).tolist(), f"segments_{name}_")
        record |= summarize_ms((timing.cpu_ms / 1e3).tolist(), f"segments_{name}_cpu_")
    return record


def _build_segments(path: Path, n_segments: int, n_documents: int, n_words: int) -> Path:
    """Build segments of one quantizer: four vectors per document, near word vectors; every tenth is deleted."""
    generator, table = np.random.default_rng(3), word_vectors()
    with _open_writable(_build(path, 20), _UNMERGED) as index:
        for segment in range(n_segments):
            numbers = range(segment * n_documents, (segment + 1) * n_documents)
            rows = table[generator.integers(0, len(table), (n_documents, 4))]
            rows = rows + 0.03 * generator.standard_normal(rows.shape, np.float32)
            texts = _make_texts(n_documents, generator, n_words)
            index.add_columns(ids=[f"n{number}" for number in numbers], vectors=rows, texts=texts)
            index.commit()
        index.delete(f"n{number}" for number in range(0, n_segments * n_documents, 10))
        index.commit()
    return path


def _measure_merges(folder: Path) -> Record:
    """Measure merging four segments into one, of documents with 1 word (almost no text) and with 30 words."""
    record: Record = {}
    for n_words, n_documents in ((1, 40_000), (30, 10_000)):
        path = _build_segments(folder / f"{n_words}", 4, n_documents, n_words)
        record |= {f"{name}_{n_words}_words": value for name, value in _measure_merge(path).items()}
    return record


def _measure_merge(path: Path) -> Record:
    """Merge three copies, each in a process of its own; return the best rates and the largest growth of memory."""
    runs = []
    for number in range(3):
        copy = shutil.copytree(path, path.with_name(f"{path.name}-{number}"))
        runs.append(in_fresh_process("bench.system.durability:merge_index", {"path": str(copy)}))
        shutil.rmtree(copy)
    values = {name: [cast(float, run[name]) for run in runs] for name in runs[0]}
    n_rows = values["n_centroids"][0]
    return {
        "n_centroids": n_rows,
        "input_bytes": values["input_bytes"][0],
        "centroids_per_s": n_rows / min(values["wall_s"]),
        "centroids_per_cpu_s": n_rows / min(values["cpu_s"]),
        "memory_growth_bytes": max(values["memory_growth_bytes"]),
    }


def merge_index(parameters: Mapping[str, object]) -> dict[str, object]:
    """Merge the segments of an index, ``path``, with `Engine.merge`; the commit of the merged one is included.

    Returns:
        n_centroids, input_bytes, wall_s, cpu_s, memory_growth_bytes.
    """
    with _open_writable(Path(str(parameters["path"])), _UNMERGED) as index:
        statistics, growth_bytes = index.stats(), list[int]()
        wall, cpu = time.perf_counter(), time.process_time()
        with _sample_memory(growth_bytes):
            index.merge()
        return {
            "n_centroids": statistics["n_centroids"],
            "input_bytes": statistics["size_bytes"],
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "memory_growth_bytes": growth_bytes[0],
        }


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
    generator, path = np.random.default_rng(4), _build(folder / "index", 10_000)
    with _open_writable(path) as index:
        for _ in range(_N_COMMITS):
            index.add(_make_documents(generator.choice(10_000, _N_REPLACED, replace=False).tolist(), generator))
            index.commit()
        n_files, statistics = sum(1 for _ in path.iterdir()), cast(dict[str, Any], index.stats())
        index.merge()
        merged, documents = cast(dict[str, Any], index.stats()), list(index.documents())
    engine.build(documents, folder / "built", encoder=_ENCODER, representation=KMeans(4))
    with Engine.open(folder / "built", encoder=_ENCODER) as index:
        built = cast(dict[str, Any], index.stats())
    return {
        "n_commits": _N_COMMITS,
        "n_files": n_files,
        "n_segments": statistics["n_segments"],
        "dead_share": statistics["n_deleted"] / (statistics["n_deleted"] + statistics["n_documents"]),
        "merged_texts_to_built": merged["bytes"]["documents"] / built["bytes"]["documents"],
    }


def _measure_search(folder: Path) -> Record:
    """Measure searches during merges, alternating with searches without a merge."""
    path = _build_segments(folder / "index", 4, 15_000, 30)
    queries = _make_texts(200, np.random.default_rng(5), 6)
    alone: list[float] = []
    during: list[float] = []
    with Engine.open(path, encoder=_ENCODER, threads=1) as index:
        _search_s(index, queries)
        for number in range(4):
            copy = Path(shutil.copytree(path, folder / f"copy-{number}"))
            alone += _search_s(index, queries)
            with _open_writable(copy, _UNMERGED) as changed:
                thread = threading.Thread(target=changed.merge)
                thread.start()
                while thread.is_alive():
                    during += _search_s(index, queries[:20])
                thread.join()
            shutil.rmtree(copy)
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
