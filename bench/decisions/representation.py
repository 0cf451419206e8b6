"""Compares representations: quality by number of vectors, with exact search over fp32 centroids.

Every document is encoded once for all representations (`bench.data.prepare`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepare import REPRESENTATIONS, prepare, representation_key
from bench.data.prepared import cache_folder
from bench.data.quality import Quality, measure_quality
from bench.data.trec_run import run_from_ranking
from bench.harness.records import Record, add_out, append_result
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.pieces import Pieces

__all__ = ["add_arguments", "measure", "run"]

_COMPARED = (*REPRESENTATIONS, Pieces(20), Pieces(28), Pieces(40))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench representation``."""
    add_collection(parser)
    parser.add_argument("--encoder", help="bundle folder (default: the bundled encoder)")
    add_out(parser, "representation")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    collection = load_collection(args)
    print(f"{collection.name}: {len(collection.documents)} documents, {len(collection.queries)} queries")
    print(f"{'':<28} {'vectors':>8} {'nDCG@10':>8} {'(2^g-1)':>8} {'R@100':>8} {'RR@10':>8}")
    for key, record, quality in measure(collection, open_encoder(args.encoder), cache_folder()):
        values = " ".join(f"{value:>8.4f}" for value in asdict(quality).values())
        print(f"{key:<28} {record['vectors_a_document']:>8.2f} {values}", flush=True)
        append_result(args.out, {**record, "quality": asdict(quality)})
    return 0


def measure(collection: Collection, encoder: Encoder, cache: Path) -> Iterator[tuple[str, Record, Quality]]:
    """Yield key, description and quality of each representation.

    Args:
        collection: documents, queries and judgments.
        encoder: makes token vectors and query vectors.
        cache: folder for prepared collections.
    """
    prepared = prepare(collection, encoder, _COMPARED, cache)
    ids, queries = prepared.documents()[0], prepared.queries()[0]
    for representation in _COMPARED:
        key = representation_key(representation)
        values, offsets = prepared.vectors(key)
        quality = measure_quality(prepared.qrels(), run_from_ranking(queries, ids, prepared.oracle(key).tolist()))
        record = {
            **prepared.about(),
            "aggregation": "max",
            "representation": representation.name,
            "settings": representation.settings(),
            "vectors_a_document": len(values) / (len(offsets) - 1),
        }
        yield key, record, quality
