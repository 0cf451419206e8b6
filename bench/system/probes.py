"""Single measurements for `bench.system.figures`, each run in a new process by `bench.harness.fresh_process`.

Each function takes one mapping: ``index`` (a folder), ``collection`` (a folder) and what its docstring names.
Heavy modules are imported inside functions, so that they do not count as memory or start-up time of other probes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.data.collections import Collection, read_collection, split_of
from bench.harness.fresh_process import peak_rss_bytes, private_bytes, rss_bytes
from bench.harness.latency import latency_ms

__all__ = ["agreement", "build", "encode", "installed", "latency", "memory", "opening", "quality", "size_on_disk"]

Parameters = dict[str, Any]
Numbers = dict[str, float]
_MIB = 1 << 20
_N_PASSES = 5
_N_QUERIES = 1000
_N_DOCUMENTS = 3000


def encode(parameters: Parameters) -> Numbers:
    """Return tokens per second of tokenizer and encoder on all cores, the median of five passes."""
    from concurrent.futures import ThreadPoolExecutor

    from quarry.engine import open_encoder
    from quarry.engine.process.cpus import n_cpus

    texts = list(_read(parameters).documents.values())
    texts = texts[:: max(1, len(texts) // _N_DOCUMENTS)]
    encoder = open_encoder()

    def count_tokens(text: str) -> int:
        return sum(len(window.values) for window in encoder.windows(text))

    speeds = []
    with ThreadPoolExecutor(n_cpus()) as pool:
        list(pool.map(count_tokens, texts[:32]))
        for _ in range(_N_PASSES):
            started = time.perf_counter()
            n_tokens = sum(pool.map(count_tokens, texts))
            speeds.append(n_tokens / (time.perf_counter() - started))
    return {"tokens_per_s": statistics.median(speeds)}


def build(parameters: Parameters) -> Numbers:
    """Build an index with ``representation`` and return time, peak memory and counts."""
    from quarry import engine

    report = engine.build(
        parameters["collection"],
        parameters["index"],
        representation=parameters["representation"],
        overwrite=True,
        progress=None,
    )
    return {
        "duration_s": report.duration_s,
        "peak_rss_mb": peak_rss_bytes() / _MIB,
        "n_tokens": report.n_tokens,
        "n_centroids": report.n_centroids,
        "n_documents": report.n_documents,
        "size_bytes": report.size_bytes,
    }


def latency(parameters: Parameters) -> Numbers:
    """Return milliseconds per query for hits with texts on one thread, from text and from a vector."""
    from quarry.engine import Engine, open_encoder

    encoder = open_encoder()
    texts = _read_queries(parameters, _N_QUERIES)
    with Engine.open(parameters["index"], encoder=encoder, threads=1) as index:
        vectors = [encoder.encode_query(text)[None] for text in texts]
        dense = partial(index.search, k=100, mode="dense")
        hybrid = partial(index.search, k=100)
        dense(texts[0])
        hybrid(texts[0])
        return {
            **latency_ms(dense, texts, "text_"),
            **latency_ms(hybrid, texts, "hybrid_"),
            **latency_ms(partial(index.search_vectors, k=100), vectors, "vector_"),
            **latency_ms(partial(index.search_vectors, k=10), vectors, "vector_top_10_"),
        }


def agreement(parameters: Parameters) -> Numbers:
    """Return the share of the exact first 10 and 100 hits that the default search returns."""
    import numpy as np

    from quarry.engine import Engine, open_encoder

    encoder, path = open_encoder(), parameters["index"]
    vectors = np.stack([encoder.encode_query(text) for text in _read_queries(parameters, _N_QUERIES)])
    shares = {}
    with Engine.open(path) as default, Engine.open(path, backend="exact") as exact:
        for k in (10, 100):
            pairs = zip(default.search_vectors(vectors, k=k), exact.search_vectors(vectors, k=k), strict=True)
            same = [len({hit.id for hit in one} & {hit.id for hit in other}) / k for one, other in pairs]
            shares[f"same_top_{k}"] = statistics.fmean(same)
    return shares


def opening(parameters: Parameters) -> Numbers:
    """Return milliseconds to open an index without the encoder, and then to the first answer."""
    from quarry import Engine

    started = time.perf_counter()
    index = Engine.open(parameters["index"])
    opened = time.perf_counter()
    index.search("who was the first", k=10)
    return {"open_ms": (opened - started) * 1e3, "first_answer_ms": (time.perf_counter() - opened) * 1e3}


def memory(parameters: Parameters) -> Numbers:
    """Return resident and private megabytes after opening an index and searching ``queries``, encoder included."""
    from quarry import Engine

    index = Engine.open(parameters["index"])
    for text in parameters["queries"]:
        index.search(text, k=100)
    return {"rss_mb": rss_bytes() / _MIB, "anonymous_mb": private_bytes() / _MIB}


def quality(parameters: Parameters) -> Numbers:
    """Return nDCG@10 (linear gain, and 2^g - 1) and R@100 of a ``mode`` of search."""
    from bench.data.quality import measure_hits
    from quarry.engine import Engine

    collection = _read(parameters)
    with Engine.open(parameters["index"]) as index:
        answers = index.search(list(collection.queries.values()), k=100, mode=parameters["mode"])
    measured = measure_hits(collection, answers)
    return {"ndcg_10": measured.ndcg_10, "ndcg_exp_10": measured.ndcg_exp_10, "recall_100": measured.recall_100}


def size_on_disk(parameters: Parameters) -> Numbers:
    """Return bytes per document by part of the index."""
    from quarry.engine import Engine

    with Engine.open(parameters["index"]) as index:
        parts: Any = index.stats()["bytes"]
        return {part: n_bytes / len(index) for part, n_bytes in parts.items()}


def installed(parameters: Parameters) -> Numbers:
    """Return the MiB of an installation of the core with dependencies and bundled model, without bytecode."""
    del parameters
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", folder]
        subprocess.run([*command, str(root)], check=True)
        n_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {"installed_mib": n_bytes / _MIB}


def _read(parameters: Parameters) -> Collection:
    folder = Path(parameters["collection"])
    return read_collection(folder, split_of(folder))


def _read_queries(parameters: Parameters, n_queries: int) -> list[str]:
    return list(_read(parameters).subset(None, n_queries).queries.values())
