"""Compares encoders: tokens per second, latency of a query, time to start, quality.

All runtimes encode the same passages, chunk by chunk in turn, so that other load on the machine affects all of
them. Passages are shortened to fit every encoder's window. Vectors are each encoder's own mean pooling.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepare import find_exact
from bench.data.quality import measure_quality
from bench.data.trec_run import run_from_ranking
from bench.harness.fresh_process import ProcessFailed
from bench.harness.latency import Timing, latency_ms, time_in_turn
from bench.harness.records import Record, add_out, append_result
from bench.system.export import measure_starts
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.tokenizer import TextTokenizer
from quarry.engine.options import OpenOptions
from quarry.engine.representation.single import Mean
from quarry.exporters.export import PRECISIONS, export
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import QuarryError

__all__ = ["Runtime", "add_arguments", "run"]

_CHUNK = 64
_N_WORDS = 150  # of a passage: fewer than 256 tokens in nearly all of them
_QUERY = "how do mangrove roots protect a coast from storms"  # 11 tokens with the special ones
_N_QUERIES = 300
_N_STARTS = 3
_TORCH = "sentence-transformers"

Floats = npt.NDArray[np.float32]


class Runtime(Protocol):
    """A library with a model, on a fixed number of threads."""

    def encode_documents(self, texts: list[str]) -> Floats:
        """Return (n, dim) float32, L2 norm 1."""
        ...

    def encode_query(self, text: str) -> Floats:
        """Return (dim,) float32, L2 norm 1."""
        ...


class _Quarry:
    """A bundle in the engine: each thread encodes one text at a time."""

    def __init__(self, bundle: Path | None, threads: int) -> None:
        self._encoder = open_encoder(bundle)
        self._pool = ThreadPoolExecutor(threads)
        self.encode_query = self._encoder.encode_query

    def encode_documents(self, texts: list[str]) -> Floats:
        return np.concatenate(list(self._pool.map(self._encode_document, texts)))

    def _encode_document(self, text: str) -> Floats:
        return Mean().represent(text, self._encoder.windows(text), self._encoder.normalize).values


class _SentenceTransformers:
    """A checkpoint in sentence-transformers with torch on the CPU, in its default batches of 32."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(checkpoint), device="cpu")

    def encode_documents(self, texts: list[str]) -> Floats:
        return cast(Floats, self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False))

    def encode_query(self, text: str) -> Floats:
        return cast(Floats, self.encode_documents([text])[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench encode``."""
    add_collection(parser, queries=300)
    add_out(parser, "encode")
    parser.add_argument("--checkpoint", type=Path, help="of all-MiniLM-L6-v2: adds precisions and torch")
    parser.add_argument("--threads", type=int, default=OpenOptions().n_threads, help="(default: all, %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure every available runtime, print a line for each and append the raw results."""
    collection = load_collection(args)
    texts = [" ".join(text.split()[:_N_WORDS]) for text in collection.documents.values()]
    with tempfile.TemporaryDirectory() as work:
        bundles, skipped = _export_bundles(args.checkpoint, Path(work))
        runtimes: dict[str, Runtime] = {name: _Quarry(bundle, args.threads) for name, bundle in bundles.items()}
        if args.checkpoint and find_spec("sentence_transformers"):
            runtimes[_TORCH] = _SentenceTransformers(args.checkpoint, args.threads)
        else:
            skipped[_TORCH] = "needs the library and --checkpoint"
        for runtime in runtimes.values():
            runtime.encode_documents(texts[:8])
        chunks = [texts[low : low + _CHUNK] for low in range(0, len(texts), _CHUNK)]
        timings = time_in_turn({name: each.encode_documents for name, each in runtimes.items()}, chunks)
        n_tokens = _count_tokens(chunks)
        about = _describe(collection, int(n_tokens.sum()), args.threads)
        for name, runtime in runtimes.items():
            starts = _measure_starts(bundles[name]) if name in bundles else {}
            record = {"name": name, **_summarize(runtime, timings[name], n_tokens, collection), **starts, **about}
            append_result(args.out, record)
            print(_format_row(record))
    for name, reason in skipped.items():
        append_result(args.out, {"name": name, "skipped": reason, **about})
        print(f"{name:<28} skipped: {reason}")
    return 0


def _export_bundles(checkpoint: Path | None, work: Path) -> tuple[dict[str, Path | None], dict[str, str]]:
    """Return bundles by name (None: the bundled encoder), and why others are skipped."""
    bundles: dict[str, Path | None] = {"quarry int8 (bundled)": None}
    skipped = {}
    for precision in PRECISIONS:
        name = f"quarry {precision}"
        if checkpoint is None:
            skipped[name] = "needs --checkpoint"
            continue
        try:
            bundles[name] = export(checkpoint, work / precision, precision).path
        except (QuarryError, ImportError, ValueError) as error:
            skipped[name] = str(error)
    return bundles, skipped


def _count_tokens(chunks: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
    """Return the number of tokens of each chunk, without special tokens."""
    tokenizer = TextTokenizer(load_bundle(default_bundle_path()).tokenizer_path)
    return np.array([sum(len(tokenizer.tokenize(text).ids) for text in chunk) for chunk in chunks])


def _summarize(
    runtime: Runtime, timing: Timing[Floats], n_tokens: npt.NDArray[np.int64], collection: Collection
) -> Record:
    vectors = np.concatenate(timing.results)
    queries = np.stack([runtime.encode_query(text) for text in collection.queries.values()])
    found = find_exact(queries, vectors, np.arange(len(vectors) + 1))
    run = run_from_ranking(collection.queries, list(collection.documents), found.tolist())
    return {
        "tokens_per_s": float(n_tokens.sum() / timing.wall_ms.sum() * 1e3),
        "tokens_per_s_median": float(np.median(n_tokens / timing.wall_ms) * 1e3),
        "ndcg_10": measure_quality(collection.qrels, run).ndcg_10,
        **latency_ms(runtime.encode_query, [_QUERY] * _N_QUERIES, "query_"),
    }


def _measure_starts(bundle: Path | None) -> Record:
    parameters = {"bundle": bundle and str(bundle), "lean": False}
    try:
        found = measure_starts("start_encoder", parameters, _N_STARTS)
    except ProcessFailed as error:
        return {"start_failed": str(error)[-300:]}
    return {name: found[name] for name in ("import_ms", "start_ms", "start_rss_bytes")}


def _describe(collection: Collection, n_tokens: int, threads: int) -> Record:
    sizes = {"n_documents": len(collection.documents), "n_queries": len(collection.queries)}
    return {"collection": collection.name, **sizes, "n_tokens": n_tokens, "threads": threads, "query": _QUERY}


def _format_row(record: Record) -> str:
    start_ms = cast(float, record.get("start_ms", float("nan")))
    return (
        f"{record['name']:<28} {record['tokens_per_s_median']:>8.0f} tokens/s  query p50 "
        f"{record['query_p50_ms']:>6.2f} ms  nDCG@10 {record['ndcg_10']:.4f}  start {start_ms:>5.0f} ms"
    )
