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
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bench.data.collections import Collection
from bench.data.quality import Quality, measure_hits, measure_quality
from bench.data.recode import recode_index
from bench.harness.records import add_out, append_result
from bench.training.collections import COLLECTIONS, SMALL_COLLECTIONS
from quarry.engine import Engine, build
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["BUNDLED", "add_arguments", "measure", "measure_hybrid_codes", "run"]

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
    """Every way to search, the seed and the quality.

    ``dense`` and ``hybrid`` are searches of an index with the default settings. ``codes 24`` is a
    dense search of an index with codes of 24 bytes and nothing else of the vectors, ``hybrid codes 24`` a hybrid
    one, with the first seed. ``one vector`` is an exact search by each document's last row, which for passages is
    the mean of all its tokens.

    Args:
        collection: to search.
        encoder: of documents and queries.
        seeds: of the quantizers; codes are measured once for each, the rest with the first.
        code_sizes: bytes of a code.
    """
    texts = list(collection.queries.values())
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        documents = ({"id": name, "text": text} for name, text in collection.documents.items())
        build(documents, index, encoder=encoder, progress=False, seed=seeds[0])
        with Engine.open(index, encoder=encoder) as opened:
            for mode in ("dense", "hybrid"):
                yield mode, seeds[0], measure_hits(collection, opened.search(texts, _N_HITS, mode=mode))
        queries = np.stack([encoder.encode_query(text) for text in texts])
        snapshot = Snapshot(Directory(index))
        for code_bytes, seed in itertools.product(code_sizes, seeds):
            codes = Path(folder) / f"codes-{code_bytes}-{seed}"
            codes.mkdir()
            settings = replace(snapshot.manifest.settings, centroids="none", code_bytes=code_bytes, seed=seed)
            recode_index(snapshot, codes, settings, encoder=encoder, texts=collection.documents).close()
            with Engine.open(codes, encoder=encoder) as opened:
                yield (
                    f"codes {code_bytes}",
                    seed,
                    measure_hits(collection, opened.search_vectors(queries, _N_HITS)),
                )
        for code_bytes in code_sizes:
            quality = measure_hybrid_codes(collection, snapshot, encoder, Path(folder), code_bytes, seeds[0])
            yield f"hybrid codes {code_bytes}", seeds[0], quality
        yield "one vector", seeds[0], _one_vector(collection, snapshot, queries)
        snapshot.close()


def measure_hybrid_codes(
    collection: Collection,
    snapshot: Snapshot,
    encoder: Encoder,
    folder: Path,
    code_bytes: int,
    seed: int,
    thresholds: Thresholds | None = None,
) -> Quality:
    """The hybrid search of an index of codes alone, built from texts and their stored vectors.

    Args:
        collection: texts, queries and judgments.
        snapshot: one segment with the vectors.
        encoder: of the queries.
        folder: of the index, which is made in it.
        code_bytes: of a code.
        seed: of the quantizer.
        thresholds: which codes a size has; None: the defaults.
    """
    (segment,) = snapshot.segments
    table, vectors = segment.reader.centroids, StoredVectors(segment)
    documents = (
        {
            "id": segment.reader.ids[doc],
            "text": collection.documents[segment.reader.ids[doc]],
            "vectors": vectors.vectors(table.rows_of(np.array([doc]))[0]),
        }
        for doc in range(segment.record.n_docs)
    )
    index = folder / f"hybrid-codes-{code_bytes}"
    build(
        documents,
        index,
        encoder=encoder,
        centroids="none",
        code_bytes=code_bytes,
        seed=seed,
        progress=False,
        thresholds=thresholds,
    )
    with Engine.open(index, encoder=encoder) as opened:
        return measure_hits(collection, opened.search(list(collection.queries.values()), _N_HITS))


def _one_vector(collection: Collection, snapshot: Snapshot, queries: np.ndarray) -> Quality:
    (segment,) = snapshot.segments
    table, vectors = segment.reader.centroids, StoredVectors(segment)
    last_rows = [int(table.rows_of(np.array([doc]))[0][-1]) for doc in range(segment.record.n_docs)]
    ids = [segment.reader.ids[doc] for doc in range(segment.record.n_docs)]
    run = {}
    documents = vectors.vectors(np.array(last_rows)).T
    for query, vector in zip(collection.queries, queries, strict=True):
        scores = vector @ documents
        best = np.argsort(-scores, kind="stable")[:_N_HITS]
        run[query] = {ids[number]: float(scores[number]) for number in best.tolist()}
    return measure_quality(collection.qrels, run)
