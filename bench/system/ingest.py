"""Measures the engine's own work per document and per vector: ``python -m bench ingest [PART ...]``.

``documents``: documents of 100 words with 4 given vectors of 384 numbers, everything stored, lists and codes
included. ``columns``: vectors alone, by `Engine.add_columns`. ``faiss``: the same vectors in an IVF-PQ index of
FAISS with as many lists and code bytes, training and adding apart. Vectors are points around random centers.

Each run is in a process of its own, in turn, so that a busy machine affects all parts alike; the medians of
several runs count. CPU seconds of all threads are recorded beside the wall time; threads of OpenMP wait without
spinning, which would count as CPU seconds on a busy machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from bench.harness.fresh_process import in_fresh_process, peak_rss_bytes, rss_bytes
from bench.harness.records import add_out, append_result
from quarry import engine
from quarry.engine import Engine

__all__ = ["add_arguments", "measure_part", "run"]

_DIM = 384
_N_WORDS = 100
_N_VECTORS = 4  # of a document
_CENTERS = 1000
_CODE_BYTES = 48
_VOCABULARY = 30_000
_ROWS_AT_ONCE = 10_000
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}

Floats = npt.NDArray[np.float32]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench ingest``."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(_PARTS))
    parser.add_argument("--documents", type=int, default=20_000, help="documents of 4 vectors (20000)")
    parser.add_argument("--vectors", type=int, default=100_000, help="vectors of columns and of FAISS (100000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each part, in turn (3)")
    add_out(parser, "ingest")


def run(args: argparse.Namespace) -> int:
    """Measure the named parts, or all, and append the raw results and their medians."""
    parts = args.parts or list(_PARTS)
    results: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    for _ in range(args.runs):
        for part in parts:
            size = args.documents if part == "documents" else args.vectors
            parameters = {"part": part, "n": size}
            measured = in_fresh_process("bench.system.ingest:measure_part", parameters, environment=_WAITING)
            results[part].append(cast("dict[str, float]", dict(measured)))
            print(part, measured, flush=True)
    for part, runs in results.items():
        medians = {name: statistics.median(each[name] for each in runs) for name in runs[0]}
        append_result(args.out, {"part": part, **medians, "runs": runs})
        print(part, medians, flush=True)
    return 0


def measure_part(parameters: Mapping[str, object]) -> dict[str, object]:
    """Measure one part in this process.

    Args:
        parameters: ``part`` and ``n``, the number of documents or of vectors.

    Returns:
        n, wall_s, cpu_s, rate_per_s (of wall time), memory_bytes (peak less what was held before), and for FAISS
        and columns the times of their steps.
    """
    n = int(str(parameters["n"]))
    return {"n": n, **_PARTS[str(parameters["part"])](n)}


def _measure_documents(n: int) -> dict[str, float]:
    texts = _make_texts(2000)
    held = rss_bytes()
    with tempfile.TemporaryDirectory() as folder:
        started, cpu_started = time.perf_counter(), time.process_time()
        making = [0.0, 0.0]
        engine.build(_make_documents(n, texts, making), folder, dim=_DIM, code_bytes=_CODE_BYTES)
        wall, cpu = time.perf_counter() - started - making[0], time.process_time() - cpu_started - making[1]
    return {"wall_s": wall, "cpu_s": cpu, "rate_per_s": n / wall, "memory_bytes": peak_rss_bytes() - held}


def _make_texts(n: int) -> list[str]:
    generator = np.random.default_rng(0)
    words = np.minimum(generator.zipf(1.2, (n, _N_WORDS)), _VOCABULARY)
    return [" ".join(f"w{word:x}" for word in line) for line in words.tolist()]


def _make_documents(n: int, texts: list[str], making: list[float]) -> Iterator[dict[str, object]]:
    """Yield documents; the wall and CPU seconds that making their vectors takes are added to `making`."""
    number = 0
    for batch in _make_vectors(n * _N_VECTORS, making):
        for vectors in batch.reshape(-1, _N_VECTORS, _DIM):
            yield {"id": f"doc {number}", "text": f"{texts[number % len(texts)]} {number}", "vectors": vectors}
            number += 1


def _make_vectors(n: int, making: list[float] | None = None) -> Iterator[Floats]:
    generator = np.random.default_rng(1)
    centers = generator.standard_normal((_CENTERS, _DIM), np.float32)
    for low in range(0, n, _ROWS_AT_ONCE):
        started, cpu_started = time.perf_counter(), time.thread_time()
        size = min(_ROWS_AT_ONCE, n - low)
        vectors = generator.standard_normal((size, _DIM), np.float32)
        vectors += centers[generator.integers(0, _CENTERS, size)]
        if making is not None:
            making[0] += time.perf_counter() - started
            making[1] += time.thread_time() - cpu_started
        yield vectors


def _all_vectors(n: int) -> Floats:
    vectors = np.empty((n, _DIM), np.float32)
    for number, part in enumerate(_make_vectors(n)):
        vectors[number * _ROWS_AT_ONCE : number * _ROWS_AT_ONCE + len(part)] = part
    return vectors


def _measure_columns(n: int) -> dict[str, float]:
    vectors, ids = _all_vectors(n), [str(number) for number in range(n)]
    held = rss_bytes()
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(Path(folder) / "index", writable=True, create=True, dim=_DIM, code_bytes=_CODE_BYTES) as index,
    ):
        started, cpu_started = time.perf_counter(), time.process_time()
        index.add_columns(ids=ids, vectors=vectors)
        added = time.perf_counter() - started
        index.commit()
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        "wall_s": wall,
        "add_s": added,
        "commit_s": wall - added,
        "cpu_s": cpu,
        "rate_per_s": n / wall,
        "memory_bytes": peak_rss_bytes() - held,
    }


def _measure_faiss(n: int) -> dict[str, float]:
    import faiss

    vectors, held = _all_vectors(n), rss_bytes()
    nlist = 2 ** round(math.log2(0.75 * math.sqrt(n)))  # as an index of so many vectors has
    index = faiss.IndexIVFPQ(faiss.IndexFlatIP(_DIM), _DIM, nlist, 2 * _CODE_BYTES, 4, faiss.METRIC_INNER_PRODUCT)
    started, cpu_started = time.perf_counter(), time.process_time()
    index.train(vectors[:: max(1, math.ceil(n / (64 * nlist)))])
    trained, cpu_trained = time.perf_counter() - started, time.process_time() - cpu_started
    index.add(vectors)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        "wall_s": wall,
        "train_s": trained,
        "add_s": wall - trained,
        "cpu_s": cpu,
        "train_cpu_s": cpu_trained,
        "rate_per_s": n / wall,
        "add_rate_per_s": n / (wall - trained),
        "memory_bytes": peak_rss_bytes() - held,
    }


_PARTS: Mapping[str, Callable[[int], dict[str, float]]] = {
    "documents": _measure_documents,
    "columns": _measure_columns,
    "faiss": _measure_faiss,
}
