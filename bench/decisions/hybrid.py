"""Compares hybrid search with its two parts, and several weights of the dense scores.

``python -m bench hybrid INDEX COLLECTION [--split dev] [--queries N] [--out FILE]`` searches an index of the
collection in every mode, and hybrid with several weights of the dense side.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import Quality, measure_quality
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry.engine import Engine, Hit
from quarry.engine.search.retriever import fuse

__all__ = ["add_arguments", "run"]

_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_N_HITS = 100

Answers = Sequence[Sequence[Hit]]


def _measured(collection: Collection, answers: Answers) -> Quality:
    found = zip(collection.queries, answers, strict=True)
    return measure_quality(collection.qrels, {query: {hit.id: hit.score for hit in hits} for query, hits in found})


def _fused(collection: Collection, answers: Answers, fusion: str, weight: float) -> Quality:
    """The quality of the candidates of hybrid search, fused in another way."""
    run = {}
    for query, hits in zip(collection.queries, answers, strict=True):
        dense = np.array([hit.dense_score for hit in hits], np.float32)
        lexical = np.array([hit.lexical_score for hit in hits], np.float32)
        scores = fuse(dense, lexical, fusion, weight).tolist()
        best = sorted(zip(scores, (hit.id for hit in hits), strict=True), reverse=True)[:_N_HITS]
        run[query] = {doc_id: score for score, doc_id in best}
    return measure_quality(collection.qrels, run)


def results(index: Engine, collection: Collection) -> Iterator[tuple[str, Quality]]:
    """Every way to search an open index, by name, and its quality."""
    texts = list(collection.queries.values())
    for mode in ("dense", "lexical", "hybrid"):
        yield mode, _measured(collection, index.search(texts, _N_HITS, mode=mode))
    candidates = index.search(texts, 8 * _N_HITS, candidates=8 * _N_HITS)
    for weight in _WEIGHTS:
        yield f"linear, dense weight {weight}", _fused(collection, candidates, "linear", weight)
    yield "reciprocal ranks", _fused(collection, candidates, "rrf", 0.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench hybrid``."""
    parser.add_argument("index", type=Path)
    add_collection(parser)
    add_out(parser, "hybrid")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results to a file."""
    collection = load_collection(options)
    print(f"{collection.name}, {len(collection.queries)} queries")
    print(f"{'':<28} {'nDCG@10':>8} {'(2^g-1)':>8} {'R@100':>8} {'RR@10':>8}")
    about = {"collection": collection.name, "split": collection.split, "n_queries": len(collection.queries)}
    with Engine.open(options.index) as index:
        for name, quality in results(index, collection):
            print(f"{name:<28}" + "".join(f" {value:>8.4f}" for value in asdict(quality).values()), flush=True)
            append_record(options.out, {"search": name, **asdict(quality), **about, **circumstances()})
    return 0
