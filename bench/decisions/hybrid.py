"""Compares hybrid search with dense and lexical search, and several weights of the dense scores.

``python -m bench hybrid INDEX COLLECTION`` searches an index of the collection in every mode, and with several
weights and by reciprocal ranks in hybrid mode.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import Quality, measure_hits
from bench.harness.records import add_out, append_result
from quarry.engine import Engine

__all__ = ["add_arguments", "run"]

_WEIGHTS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
_N_HITS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench hybrid``."""
    parser.add_argument("index", type=Path)
    add_collection(parser)
    add_out(parser, "hybrid")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    collection = load_collection(args)
    print(f"{collection.name}, {len(collection.queries)} queries")
    print(f"{'':<28} {'nDCG@10':>8} {'(2^g-1)':>8} {'R@100':>8} {'RR@10':>8}")
    about = {"collection": collection.name, "split": collection.split, "n_queries": len(collection.queries)}
    with Engine.open(args.index) as index:
        for name, quality in _measure(index, collection):
            print(f"{name:<28}" + "".join(f" {value:>8.4f}" for value in asdict(quality).values()), flush=True)
            append_result(args.out, {"search": name, **asdict(quality), **about})
    return 0


def _measure(index: Engine, collection: Collection) -> Iterator[tuple[str, Quality]]:
    """Yield names and qualities of the modes and of the ways to fuse."""
    texts = list(collection.queries.values())
    for mode in ("dense", "lexical", "hybrid"):
        yield mode, measure_hits(collection, index.search(texts, _N_HITS, mode=mode))
    for weight in _WEIGHTS:
        hits = index.search(texts, _N_HITS, dense_weight=weight)
        yield f"linear, dense weight {weight}", measure_hits(collection, hits)
    yield "reciprocal ranks", measure_hits(collection, index.search(texts, _N_HITS, fusion="rrf"))
