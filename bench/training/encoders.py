"""Trained encoders beside the bundled one: nDCG@10, dense and hybrid, in full vectors and in short codes.

``python -m bench trained_encoders BUNDLE ...`` indexes collections with each bundle by the default settings,
searches them, and appends one JSON line for each way to search to a file. ``bundled`` is the encoder that comes
with Quarry.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench.data.collections import Collection
from bench.data.evaluation_collections import COLLECTIONS, SMALL_COLLECTIONS
from bench.data.quality import Quality, measure_hits, measure_quality
from bench.harness.records import add_out, append_result
from quarry.engine import Document, Encoder, Engine, build, open_encoder

__all__ = ["BUNDLED", "add_arguments", "measure", "run"]

BUNDLED = "bundled"
_N_HITS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench trained_encoders``."""
    parser.add_argument("encoders", nargs="+", help=f"folders of bundles; {BUNDLED!r}: the encoder of Quarry")
    parser.add_argument(
        "--on", choices=COLLECTIONS, action="append", help="may be repeated; default: the small ones"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0], help="of the training of codes, which are measured for each"
    )
    parser.add_argument("--code-bytes", type=int, nargs="+", default=[24, 8], help="of the codes")
    add_out(parser, "trained_encoders")


def run(args: argparse.Namespace) -> int:
    """Measure every encoder on every collection, print a table and append the raw results to a file."""
    for name in args.on or SMALL_COLLECTIONS:
        collection = COLLECTIONS[name]()
        print(f"{name}: {len(collection.documents)} documents, {len(collection.queries)} queries")
        for source in args.encoders:
            encoder = open_encoder(None if source == BUNDLED else source)
            for search, seed, quality in measure(collection, encoder, args.seeds, args.code_bytes):
                print(f"  {encoder.name:<28} {search:<12} {seed:>3} {quality.ndcg_10:.4f}", flush=True)
                about = {"collection": name, "encoder": encoder.name, "encoder_identity": encoder.identity}
                sizes = {"n_documents": len(collection.documents), "n_queries": len(collection.queries)}
                append_result(args.out, {**about, "search": search, "seed": seed, **sizes, **asdict(quality)})
    return 0


def measure(
    collection: Collection, encoder: Encoder, seeds: Sequence[int] = (0,), code_sizes: Sequence[int] = (24, 8)
) -> Iterator[tuple[str, int, Quality]]:
    """Yield every way to search, the seed and the quality.

    ``dense`` and ``hybrid`` are searches of an index with the default settings. ``codes 24`` is a dense search of
    an index with codes of 24 bytes and nothing else of the vectors, ``hybrid codes 24`` a hybrid one, with the
    first seed. ``one vector`` is an exact search by each document's last row, which for passages is the mean of
    all its tokens. Documents are encoded once: the other indexes are built of the stored vectors.

    Args:
        collection: to search.
        encoder: the encoder of documents and queries.
        seeds: the seeds of the quantizers; codes are measured once for each, the rest with the first.
        code_sizes: bytes of a code.
    """
    texts = list(collection.queries.values())
    with tempfile.TemporaryDirectory() as folder:
        given = ({"id": name, "text": text} for name, text in collection.documents.items())
        build(given, Path(folder) / "index", encoder=encoder, progress=False, seed=seeds[0])
        with Engine.open(Path(folder) / "index", encoder=encoder) as index:
            for mode in ("dense", "hybrid"):
                yield mode, seeds[0], measure_hits(collection, index.search(texts, _N_HITS, mode=mode))
            documents = index.get(list(collection.documents), vectors=True)
        for code_bytes, seed in itertools.product(code_sizes, seeds):
            path = Path(folder) / f"codes-{code_bytes}-{seed}"
            build(documents, path, encoder=encoder, centroids="none", code_bytes=code_bytes, seed=seed)
            with Engine.open(path, encoder=encoder) as index:
                hits = index.search(texts, _N_HITS, mode="dense")
                yield f"codes {code_bytes}", seed, measure_hits(collection, hits)
                if seed == seeds[0]:
                    hits = index.search(texts, _N_HITS)
                    yield f"hybrid codes {code_bytes}", seed, measure_hits(collection, hits)
    yield "one vector", seeds[0], _one_vector(collection, documents, encoder)


def _one_vector(collection: Collection, documents: Sequence[Document], encoder: Encoder) -> Quality:
    last_rows = np.stack([document.vectors[-1] for document in documents if document.vectors is not None]).T
    run = {}
    for query, text in collection.queries.items():
        scores = encoder.encode_query(text) @ last_rows
        best = np.argsort(-scores, kind="stable")[:_N_HITS]
        run[query] = {documents[number].id: float(scores[number]) for number in best.tolist()}
    return measure_quality(collection.qrels, run)
