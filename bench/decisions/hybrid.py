"""Compares hybrid search with dense and lexical search, and several weights of the dense scores.

``python -m bench hybrid INDEX COLLECTION`` searches an index of the collection in every mode, and fuses the
candidates of hybrid search with several weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import Quality, measure_hits, measure_quality
from bench.harness.records import add_out, append_result
from quarry.engine import Engine, Hit
from quarry.engine.search.retriever import fuse

__all__ = ["add_arguments", "run"]

_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_N_HITS = 100
_N_CANDIDATES = 800


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
    candidates = index.search(texts, _N_CANDIDATES, candidates=_N_CANDIDATES)
    for weight in _WEIGHTS:
        yield f"linear, dense weight {weight}", _measure_fusion(collection, candidates, "linear", weight)
    yield "reciprocal ranks", _measure_fusion(collection, candidates, "rrf", 0.0)


def _measure_fusion(
    collection: Collection, candidates: Sequence[Sequence[Hit]], fusion: str, weight: float
) -> Quality:
    run = {}
    for query, hits in zip(collection.queries, candidates, strict=True):
        dense = np.array([hit.dense_score for hit in hits], np.float32)
        lexical = np.array([hit.lexical_score for hit in hits], np.float32)
        scores = fuse(dense, lexical, fusion, weight).tolist()
        best = sorted(zip(scores, (hit.id for hit in hits), strict=True), reverse=True)[:_N_HITS]
        run[query] = {doc_id: score for score, doc_id in best}
    return measure_quality(collection.qrels, run)
