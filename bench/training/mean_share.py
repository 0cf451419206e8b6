"""Which share the mean of a document's scores should have in an index of codes alone.

``python -m bench mean_share`` indexes collections with the bundled encoder, makes codes of several sizes, decodes
all of them and scores every document for every query with several shares: an exhaustive search, so that neither
lists nor candidates play a part. The engine's share (`quarry.engine.scoring.stored_vectors.mean_share`) was chosen
with the result.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bench.data.collections import Collection
from bench.data.quality import Quality, measure_quality
from bench.data.recode import recode_index
from bench.harness.records import add_out, append_result
from bench.training.collections import COLLECTIONS, SMALL_COLLECTIONS
from quarry.engine import build
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.scoring.stored_vectors import StoredVectors, mean_share
from quarry.formats.arrays import Float32Array
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["SHARES", "add_arguments", "measure_shares", "run"]

SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
_N_HITS = 100
_QUERIES_AT_ONCE = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench mean_share``."""
    parser.add_argument(
        "--on", choices=COLLECTIONS, action="append", help="may be repeated; default: the small ones"
    )
    parser.add_argument("--code-bytes", type=int, nargs="+", default=[24, 16, 8, 4], help="of the codes")
    add_out(parser, "mean_share")


def run(args: argparse.Namespace) -> int:
    """Measure every share in codes of every size, print a line for each size and append the raw results."""
    encoder = open_encoder()
    for name in args.on or SMALL_COLLECTIONS:
        collection = COLLECTIONS[name]()
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            documents = ({"id": key, "text": text} for key, text in collection.documents.items())
            build(documents, index, encoder=encoder, progress=False)
            for code_bytes in args.code_bytes:
                codes = Path(folder) / f"codes-{code_bytes}"
                codes.mkdir()
                about = {"collection": name, "encoder": encoder.name, "code_bytes": code_bytes}
                chosen, found = _measure(collection, encoder, index, codes, code_bytes)
                for share, quality in found.items():
                    append_result(args.out, {**about, "chosen": chosen, "share": share, **asdict(quality)})
                shown = "  ".join(f"{share}: {quality.ndcg_10:.4f}" for share, quality in found.items())
                print(f"{name} {code_bytes} bytes, chosen {chosen:.2f}  {shown}", flush=True)
    return 0


def _measure(
    collection: Collection, encoder: Encoder, index: Path, folder: Path, code_bytes: int
) -> tuple[float, dict[float, Quality]]:
    """Return the engine's share, and the quality by share."""
    full = Snapshot(Directory(index))
    settings = replace(full.manifest.settings, centroids="none", code_bytes=code_bytes)
    snapshot = recode_index(full, folder, settings)
    (segment,) = snapshot.segments
    reader, queries = (
        segment.reader,
        np.stack([encoder.encode_query(text) for text in collection.queries.values()]),
    )
    vectors = StoredVectors(segment).vectors(np.arange(reader.n_rows))
    names = [reader.ids[doc] for doc in range(reader.n_docs)]
    found = measure_shares(collection, names, queries, vectors, reader.centroids.offsets)
    chosen = mean_share(segment)
    for each in (snapshot, full):
        each.close()
    return chosen, found


def measure_shares(
    collection: Collection,
    names: Sequence[str],
    queries: Float32Array,
    vectors: Float32Array,
    offsets: np.ndarray,
) -> dict[float, Quality]:
    """Return the quality of exhaustive searches by share.

    Args:
        collection: has the judgments.
        names: ids of the n documents.
        queries: (n_queries, dim) float32, in the order of the collection's queries.
        vectors: (n_rows, dim) float32, those of each document after those of the one before.
        offsets: (n + 1,) int64, first row of each document.
    """
    runs: dict[float, dict[str, dict[str, float]]] = {share: {} for share in SHARES}
    keys, sizes = list(collection.queries), np.diff(offsets)
    for low in range(0, len(queries), _QUERIES_AT_ONCE):
        scores = queries[low : low + _QUERIES_AT_ONCE] @ vectors.T
        best = np.maximum.reduceat(scores, offsets[:-1], axis=1)
        mean = np.add.reduceat(scores, offsets[:-1], axis=1) / sizes
        for share, run_of_share in runs.items():
            mixed = best - share * (best - mean)
            first = np.argsort(-mixed, axis=1, kind="stable")[:, :_N_HITS]
            for place, documents in enumerate(first.tolist()):
                run_of_share[keys[low + place]] = {names[doc]: float(mixed[place, doc]) for doc in documents}
    return {share: measure_quality(collection.qrels, of_share) for share, of_share in runs.items()}
