"""Single measurements, each in a process of its own: ``python -m bench.readme.probes NAME ARGUMENT...``.

A probe prints one JSON object of numbers. `bench.readme.figures` runs them and sets their results against targets.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bench.data.collections import read_collection
from bench.data.quality import measure_quality

__all__ = ["PROBES", "main"]

Numbers = dict[str, float]
_REPEATS = 5


def encode(collection: str, n_documents: str) -> Numbers:
    """Tokens per second through tokenizer and encoder, on all cores; the median of five passes."""
    from concurrent.futures import ThreadPoolExecutor

    from quarry.engine.encoding.encoder import open_encoder
    from quarry.engine.options import OpenOptions

    documents = read_collection(Path(collection), _split(collection)).documents
    step = max(1, len(documents) // int(n_documents))
    texts = list(documents.values())[::step]
    encoder = open_encoder()

    def n_tokens(text: str) -> int:
        return sum(len(window.values) for window in encoder.windows(text))

    speeds = []
    with ThreadPoolExecutor(OpenOptions().n_threads) as pool:
        list(pool.map(n_tokens, texts[:32]))
        for _ in range(_REPEATS):
            started = time.perf_counter()
            total = sum(pool.map(n_tokens, texts))
            speeds.append(total / (time.perf_counter() - started))
    return {"tokens_per_s": statistics.median(speeds)}


def build(source: str, index: str, representation: str) -> Numbers:
    """One build: seconds, peak resident megabytes, tokens."""
    from quarry import engine

    report = engine.build(source, index, representation=representation, overwrite=True, progress=None)
    return {
        "duration_s": report.duration_s,
        "peak_rss_mb": _peak_rss_mb(),
        "n_tokens": report.n_tokens,
        "n_centroids": report.n_centroids,
        "n_documents": report.n_documents,
        "size_bytes": report.size_bytes,
    }


def latency(index: str, collection: str, n_queries: str) -> Numbers:
    """Milliseconds a query for 100 hits with texts, one thread: from text, and from a vector."""
    from quarry.engine import Engine
    from quarry.engine.encoding.encoder import open_encoder

    encoder = open_encoder()
    texts = _questions(collection, int(n_queries))
    with Engine.open(index, encoder=encoder, threads=1) as opened:
        vectors = np.stack([encoder.encode_query(text) for text in texts])
        opened.search(texts[0], k=100)
        opened.search(texts[0], k=100, mode="dense")
        from_text = [_ms(partial(opened.search, text, k=100, mode="dense")) for text in texts]
        hybrid = [_ms(partial(opened.search, text, k=100)) for text in texts]
        from_vector = [_ms(partial(opened.search_vectors, row[None], k=100)) for row in vectors]
        top_10 = [_ms(partial(opened.search_vectors, row[None], k=10)) for row in vectors]
    return {
        "text_p50_ms": statistics.median(from_text),
        "text_p99_ms": float(np.quantile(from_text, 0.99)),
        "hybrid_p50_ms": statistics.median(hybrid),
        "hybrid_p99_ms": float(np.quantile(hybrid, 0.99)),
        "vector_p50_ms": statistics.median(from_vector),
        "vector_p99_ms": float(np.quantile(from_vector, 0.99)),
        "vector_top_10_p50_ms": statistics.median(top_10),
    }


def agreement(index: str, collection: str, n_queries: str) -> Numbers:
    """Share of the exact oracle's hits that the default search returns, for the first 10 and the first 100."""
    from quarry.engine import Engine
    from quarry.engine.encoding.encoder import open_encoder

    encoder = open_encoder()
    vectors = np.stack([encoder.encode_query(text) for text in _questions(collection, int(n_queries))])
    with Engine.open(index) as fast, Engine.open(index, backend="exact") as oracle:
        shares = {}
        for k in (10, 100):
            pairs = zip(fast.search_vectors(vectors, k=k), oracle.search_vectors(vectors, k=k), strict=True)
            same = [len({hit.id for hit in ours} & {hit.id for hit in theirs}) / k for ours, theirs in pairs]
            shares[f"same_top_{k}"] = statistics.fmean(same)
    return shares


def opening(index: str) -> Numbers:
    """Milliseconds to open without the encoder, and of a fresh process from open to its first answer."""
    code = (
        "import time; started = time.perf_counter(); from quarry import Engine; imported = time.perf_counter();"
        f"index = Engine.open({index!r}); opened = time.perf_counter();"
        "index.search('who was the first', k=10); answered = time.perf_counter();"
        "print(opened - imported, answered - opened, imported - started)"
    )
    runs = [
        [float(part) * 1e3 for part in subprocess.check_output([sys.executable, "-c", code], text=True).split()]
        for _ in range(2 * _REPEATS + 1)
    ]
    opened, answered, imported = (statistics.median(column) for column in zip(*runs, strict=True))
    return {"open_ms": opened, "first_answer_ms": answered, "import_ms": imported}


def memory(index: str, collection: str) -> Numbers:
    """Resident megabytes after opening an index and 100 queries in text, encoder included."""
    texts = json.dumps(_questions(collection, 100))
    code = (
        "import json, sys; from pathlib import Path; from quarry import Engine; texts = json.load(sys.stdin);"
        f"index = Engine.open({index!r}); [index.search(text, k=100) for text in texts];"
        "lines = Path('/proc/self/status').read_text().splitlines();"
        "print(*(line.split()[1] for line in lines if line.startswith(('VmRSS', 'RssAnon'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=texts, text=True, capture_output=True, check=True)
    resident, anonymous = (float(part) / 1024 for part in done.stdout.split())
    return {"rss_mb": resident, "anonymous_mb": anonymous}


def quality(index: str, collection: str, mode: str) -> Numbers:
    """NDCG@10 (linear gain, and 2^g - 1) and R@100 of a mode of search."""
    from quarry.engine import Engine

    split = _split(collection)
    judged = read_collection(Path(collection), split)
    with Engine.open(index) as opened:
        answers = opened.search(list(judged.queries.values()), k=100, mode=mode)
    run = {query: {hit.id: hit.score for hit in hits} for query, hits in zip(judged.queries, answers, strict=True)}
    found = measure_quality(judged.qrels, run)
    return {"ndcg_10": found.ndcg_10, "ndcg_exp_10": found.ndcg_exp_10, "recall_100": found.recall_100}


def size_on_disk(index: str) -> Numbers:
    """Bytes a document by part."""
    from quarry.engine import Engine

    with Engine.open(index) as opened:
        numbers = opened.stats()
    parts = numbers["bytes"]
    n_documents = numbers["n_documents"]
    assert isinstance(parts, dict)
    assert isinstance(n_documents, int)
    return {f"{part}_bytes_per_doc": n_bytes / n_documents for part, n_bytes in parts.items()}


def installed() -> Numbers:
    """MiB of a fresh installation of the core: every dependency and the bundled model, no bytecode."""
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", folder]
        subprocess.run([*command, str(root)], check=True)
        n_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {"installed_mib": n_bytes / (1 << 20)}


PROBES: dict[str, Callable[..., Numbers]] = {
    probe.__name__: probe
    for probe in (encode, build, latency, agreement, opening, memory, quality, size_on_disk, installed)
}


def main(arguments: Sequence[str]) -> int:
    """Run one probe and print its numbers."""
    print(json.dumps(PROBES[arguments[0]](*arguments[1:])))
    return 0


def _split(collection: str) -> str:
    return "dev" if (Path(collection) / "qrels" / "dev.tsv").exists() else "test"


def _questions(collection: str, n_queries: int) -> list[str]:
    judged = read_collection(Path(collection), _split(collection))
    return list(judged.subset(None, n_queries).queries.values())


def _ms(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
