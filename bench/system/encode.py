"""Compares encoders: tokens per second, latency of a query, time to start, quality.

All runtimes get the same passages, chunk by chunk in turn, so that what else the machine does falls on all of
them. Passages are cut to what fits every encoder's window. Vectors are each encoder's own mean pooling.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepare import oracle
from bench.data.quality import measure_quality
from bench.harness.environment import circumstances
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.latency import latency_ms
from bench.harness.process_memory import rss_bytes
from bench.harness.progress import Clock
from bench.harness.records import Record, add_out, append_record
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.encoder import open_encoder
from quarry.engine.encoding.onnx_session import import_onnxruntime
from quarry.engine.encoding.tokenizer import TextTokenizer
from quarry.engine.options import OpenOptions
from quarry.engine.representation.single import Mean
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import QuarryError

__all__ = ["Runtime", "add_arguments", "run", "start"]

_PRECISIONS = ("fp32", "fp16", "int8-weights", "int8")
_CHUNK = 64
_N_WORDS = 150  # of a passage: under 256 tokens in nearly all of them
_QUERY = "how do mangrove roots protect a coast from storms"  # 12 tokens with the special ones
_N_QUERIES = 300
_ELSEWHERE = {
    "fastembed": "its models are downloaded at first use, which is not possible here",
    "model2vec": "its models are downloaded at first use, which is not possible here",
}

Floats = npt.NDArray[np.float32]


class Runtime(Protocol):
    """Something that encodes texts, on all the threads it was given."""

    def documents(self, texts: list[str]) -> Floats:
        """(n, dim) float32, L2 norm 1."""
        ...

    def query(self, text: str) -> Floats:
        """(dim,) float32, L2 norm 1."""
        ...


@dataclass
class _Measured:
    name: str
    runtime: Runtime
    speeds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    vectors: list[Floats] = field(default_factory=list)


class _Quarry:
    """A bundle by the engine: one text a thread."""

    def __init__(self, bundle: Path | None, threads: int) -> None:
        self._encoder = open_encoder(bundle)
        self._pool = ThreadPoolExecutor(threads)

    def documents(self, texts: list[str]) -> Floats:
        return np.concatenate(list(self._pool.map(self._document, texts)))

    def query(self, text: str) -> Floats:
        return self._encoder.encode_query(text)

    def _document(self, text: str) -> Floats:
        return Mean().represent(text, self._encoder.windows(text), self._encoder.normalize).values


class _SentenceTransformers:
    """A checkpoint by sentence-transformers with torch on the CPU, in its default batches of 32."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(checkpoint), device="cpu")

    def documents(self, texts: list[str]) -> Floats:
        return cast(Floats, self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False))

    def query(self, text: str) -> Floats:
        return cast(Floats, self._model.encode([text], normalize_embeddings=True, show_progress_bar=False)[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench encode``."""
    add_collection(parser, queries=300)
    add_out(parser, "encode")
    parser.add_argument("--checkpoint", type=Path, help="of all-MiniLM-L6-v2: adds precisions and torch")
    parser.add_argument("--threads", type=int, default=OpenOptions().n_threads, help="default: all (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure every runtime that is here, print a line for each and append the raw results."""
    collection = load_collection(args)
    with tempfile.TemporaryDirectory() as work:
        bundles, skipped = _bundles(args.checkpoint, Path(work))
        measured = [_Measured(name, _Quarry(bundle, args.threads)) for name, bundle in bundles.items()]
        if args.checkpoint and find_spec("sentence_transformers"):
            measured.append(
                _Measured("sentence-transformers", _SentenceTransformers(args.checkpoint, args.threads))
            )
        else:
            skipped["sentence-transformers"] = "needs the library and --checkpoint"
        n_tokens = _encode_all(measured, collection)
        about = {**_about(collection, n_tokens, args.threads), **circumstances()}
        for each in measured:
            starts = _starts(bundles[each.name]) if each.name in bundles else {}
            record = {"name": each.name, **_numbers(each, collection, n_tokens), **starts, **about}
            append_record(args.out, record)
            print(_line(record))
    for name, reason in {**skipped, **_ELSEWHERE}.items():
        append_record(args.out, {"name": name, "skipped": reason, **about})
        print(f"{name:<28} skipped: {reason}")
    return 0


def start(parameters: dict[str, object]) -> dict[str, object]:
    """Open a bundle in a fresh process and encode one query.

    Args:
        parameters: ``bundle``: its folder, or None.

    Returns:
        import_ms (ONNX Runtime), start_ms (from the bundle to the first vector, digests checked),
        start_rss_bytes after it, and that before it (before_rss_bytes).
    """
    begun = time.perf_counter()
    import_onnxruntime()
    imported = time.perf_counter()
    before = rss_bytes()
    bundle = parameters["bundle"]
    open_encoder(None if bundle is None else str(bundle)).encode_query(_QUERY)
    return {
        "import_ms": (imported - begun) * 1e3,
        "start_ms": (time.perf_counter() - imported) * 1e3,
        "before_rss_bytes": before,
        "start_rss_bytes": rss_bytes(),
    }


def _bundles(checkpoint: Path | None, work: Path) -> tuple[dict[str, Path | None], dict[str, str]]:
    """The bundles that can be made here, and why the others cannot."""
    bundles: dict[str, Path | None] = {"quarry int8 (bundled)": None}
    skipped = {}
    for precision in _PRECISIONS:
        name = f"quarry {precision}"
        if checkpoint is None:
            skipped[name] = "needs --checkpoint"
            continue
        try:
            bundles[name] = export(checkpoint, work / precision, precision).path
        except (QuarryError, ImportError, ValueError) as error:
            skipped[name] = str(error)
    return bundles, skipped


def _encode_all(measured: list[_Measured], collection: Collection) -> int:
    """Every runtime encodes every passage; the number of tokens, special ones left out."""
    texts = [" ".join(text.split()[:_N_WORDS]) for text in collection.documents.values()]
    tokenizer = TextTokenizer(load_bundle(default_bundle_path()).tokenizer_path)
    for each in measured:
        each.runtime.documents(texts[:8])
    total = 0
    clock = Clock(-(-len(texts) // _CHUNK), "chunks of passages")
    for low in range(0, len(texts), _CHUNK):
        chunk = texts[low : low + _CHUNK]
        n_tokens = sum(len(tokenizer.tokenize(text).ids) for text in chunk)
        total += n_tokens
        for each in measured[:: -1 if low // _CHUNK % 2 else 1]:
            started = time.perf_counter()
            each.vectors.append(each.runtime.documents(chunk))
            seconds = time.perf_counter() - started
            each.seconds += seconds
            each.speeds.append(n_tokens / seconds)
        clock.tick()
    return total


def _numbers(each: _Measured, collection: Collection, n_tokens: int) -> Record:
    queries = np.stack([each.runtime.query(text) for text in collection.queries.values()])
    vectors = np.concatenate(each.vectors)
    found = oracle(queries, vectors, np.arange(len(vectors) + 1))
    names = list(collection.documents)
    run = {
        query: {names[document]: float(-rank) for rank, document in enumerate(documents.tolist())}
        for query, documents in zip(collection.queries, found, strict=True)
    }
    return {
        "tokens_per_s": n_tokens / each.seconds,
        "tokens_per_s_median": statistics.median(each.speeds),
        "ndcg_10": measure_quality(collection.qrels, run).ndcg_10,
        **latency_ms(each.runtime.query, [_QUERY] * _N_QUERIES, "query_"),
    }


def _starts(bundle: Path | None) -> Record:
    try:
        runs = [
            in_fresh_process("bench.system.encode:start", {"bundle": bundle and str(bundle)}) for _ in range(3)
        ]
    except ProcessFailed as error:
        return {"start_failed": str(error)[-300:]}
    return {name: statistics.median(cast(float, each[name]) for each in runs) for name in runs[0]}


def _about(collection: Collection, n_tokens: int, threads: int) -> Record:
    sizes = {"n_documents": len(collection.documents), "n_queries": len(collection.queries)}
    return {"collection": collection.name, **sizes, "n_tokens": n_tokens, "threads": threads, "query": _QUERY}


def _line(record: Record) -> str:
    start_ms = cast(float, record.get("start_ms", float("nan")))
    return (
        f"{record['name']:<28} {record['tokens_per_s_median']:>8.0f} tokens/s  query p50 "
        f"{record['query_p50_ms']:>6.2f} ms  nDCG@10 {record['ndcg_10']:.4f}  start {start_ms:>5.0f} ms"
    )
