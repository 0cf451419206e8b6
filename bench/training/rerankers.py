"""Rerankers: nDCG@10 of the first hits before and after they are reranked, and the time of a text.

``python -m bench rerankers BUNDLE ...`` indexes collections with the bundled encoder by the default settings,
searches them in hybrid mode, scores the first hits of every query with each reranker, and appends one JSON line
for each number of hits that are reranked to a file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.data.collections import Collection
from bench.data.quality import Quality, measure_quality
from bench.harness.records import add_out, append_result
from bench.training.collections import COLLECTIONS, SMALL_COLLECTIONS
from quarry.engine import Engine, build
from quarry.engine.search.reranker import Reranker, open_reranker

__all__ = ["add_arguments", "first_hits", "measure_reranker", "run"]

_N_HITS = 100
_DEPTHS = (5, 10, 20, 50)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench rerankers``."""
    parser.add_argument("rerankers", nargs="+", help="folders of bundles")
    parser.add_argument(
        "--on", choices=COLLECTIONS, action="append", help="may be repeated; default: the small ones"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=list(_DEPTHS), help="hits that are reranked")
    parser.add_argument("--queries", type=int, default=300, help="of a collection, at equal distances")
    add_out(parser, "rerankers")


def run(args: argparse.Namespace) -> int:
    """Measure every reranker on every collection, print a table and append the raw results to a file."""
    for name in args.on or SMALL_COLLECTIONS:
        collection = COLLECTIONS[name]()
        hits = first_hits(collection, args.queries)
        judged = {query: collection.qrels[query] for query in hits}
        first = measure_quality(judged, {query: _descending(found) for query, found in hits.items()})
        print(f"{name}: {len(collection.documents)} documents, {len(hits)} queries, hybrid {first.ndcg_10:.4f}")
        for source in args.rerankers:
            reranker = open_reranker(source)
            for depth, quality, ms in measure_reranker(collection, hits, reranker, args.depths):
                print(f"  {reranker.name:<28} {depth:>3} {quality.ndcg_10:.4f} {ms:.1f} ms a text", flush=True)
                about = {"collection": name, "reranker": reranker.name, "depth": depth, "ms_per_text": ms}
                sizes = {"n_documents": len(collection.documents), "n_queries": len(hits)}
                append_result(
                    args.out, {**about, **sizes, "first_stage_ndcg_10": first.ndcg_10, **asdict(quality)}
                )
    return 0


def first_hits(collection: Collection, n_queries: int) -> dict[str, list[str]]:
    """The ids of the hits of some queries that have judgments, in hybrid mode, by query id."""
    judged = [query for query in collection.queries if query in collection.qrels]
    count = min(n_queries, len(judged))
    chosen = [judged[number * len(judged) // count] for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        documents = ({"id": name, "text": text} for name, text in collection.documents.items())
        build(documents, index, progress=False)
        with Engine.open(index) as opened:
            answers = opened.search([collection.queries[query] for query in chosen], _N_HITS)
    return {query: [hit.id for hit in hits] for query, hits in zip(chosen, answers, strict=True)}


def measure_reranker(
    collection: Collection, hits: dict[str, list[str]], reranker: Reranker, depths: Sequence[int]
) -> Iterator[tuple[int, Quality, float]]:
    """The quality with each number of reranked hits, and the CPU milliseconds of a text.

    Args:
        collection: texts and judgments.
        hits: for each query id the ids of its hits, the best first.
        reranker: scores the first of them once; the rest keep their order behind those that are reranked.
        depths: how many are reranked.
    """
    deepest = max(depths)
    scores: dict[str, list[float]] = {}
    started = time.process_time()
    for query, found in hits.items():
        texts = [collection.documents[name] for name in found[:deepest]]
        scores[query] = reranker.scores(collection.queries[query], texts).tolist() if texts else []
    ms = 1000 * (time.process_time() - started) / max(1, sum(map(len, scores.values())))
    judged = {query: collection.qrels[query] for query in hits}
    for depth in depths:
        run = {query: _descending(_reranked(found, scores[query][:depth])) for query, found in hits.items()}
        yield depth, measure_quality(judged, run), ms


def _reranked(found: list[str], scores: list[float]) -> list[str]:
    """Hits with the first ones in the order of their scores, equal ones as they were."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [found[place] for place in order] + found[len(scores) :]


def _descending(found: list[str]) -> dict[str, float]:
    """The hits with scores in their order."""
    return {name: float(len(found) - place) for place, name in enumerate(found)}
