"""Evaluates Quarry with MTEB and with BEIR on a collection of this machine: ``python -m bench suites cranfield``.

Both build an index of their own, through their own interfaces, and compute their measures from deep rankings. The
measure of this package is computed from an index with the same documents, for comparison: all three should agree.
"""

from __future__ import annotations

import argparse
import json

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import measure_quality
from bench.harness.records import add_out, append_result
from bench.suites.corpus_index import CorpusIndex
from quarry.engine import Encoder
from quarry.engine.choices import MODES, Mode

__all__ = ["add_arguments", "evaluate_with_beir", "evaluate_with_bench", "evaluate_with_mteb", "run"]

Scores = dict[str, float]
DEPTH = 1000  # of the rankings: that of both suites


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench suites``."""
    add_collection(parser)
    parser.add_argument("--mode", choices=MODES, default="hybrid", help="mode of the searches (default: hybrid)")
    add_out(parser, "suites")


def run(args: argparse.Namespace) -> int:
    """Append the scores of each suite; return 1 if they differ."""
    collection = load_collection(args)
    found = {
        "bench": evaluate_with_bench(collection, args.mode),
        "mteb": evaluate_with_mteb(collection, args.mode),
        "beir": evaluate_with_beir(collection, args.mode),
    }
    record = {
        "collection": collection.name,
        "mode": args.mode,
        "n_documents": len(collection.documents),
        "n_queries": len(collection.queries),
        **found,
    }
    print(json.dumps(record, indent=2))
    append_result(args.out, record)
    own = found["bench"]
    agree = all(abs(scores[name] - own[name]) < 1e-4 for scores in found.values() for name in own)
    return 0 if agree else 1


def evaluate_with_bench(collection: Collection, mode: Mode, encoder: Encoder | None = None) -> Scores:
    """Return nDCG@10 and R@100 as the other measurements compute them."""
    documents = ({"id": name, "text": text} for name, text in collection.documents.items())
    with CorpusIndex(documents, encoder) as index:
        found = measure_quality(collection.qrels, index.run(collection.queries, DEPTH, mode))
    return {"ndcg_10": round(found.ndcg_10, 5), "recall_100": round(found.recall_100, 5)}


def evaluate_with_mteb(collection: Collection, mode: Mode, encoder: Encoder | None = None) -> Scores:
    """Return nDCG@10 and R@100 of MTEB."""
    import mteb

    from bench.suites.mteb_search import MtebSearch, local_task

    model = MtebSearch(mode, encoder)
    try:
        result = mteb.evaluate(model, local_task(collection), cache=None, show_progress_bar=False)
    finally:
        model.close()
    (scores,) = result.task_results[0].scores[collection.split]
    return {"ndcg_10": scores["ndcg_at_10"], "recall_100": scores["recall_at_100"]}


def evaluate_with_beir(collection: Collection, mode: Mode, encoder: Encoder | None = None) -> Scores:
    """Return nDCG@10 and R@100 of BEIR."""
    from beir.retrieval.evaluation import EvaluateRetrieval

    from bench.suites.beir_search import BeirSearch

    corpus = {name: {"title": "", "text": text} for name, text in collection.documents.items()}
    evaluation = EvaluateRetrieval(BeirSearch(mode, encoder), k_values=[10, 100, DEPTH])
    found = evaluation.retrieve(corpus, dict(collection.queries))
    ndcg, _, recall, _ = evaluation.evaluate(
        collection.qrels, found, evaluation.k_values, ignore_identical_ids=False
    )
    return {"ndcg_10": ndcg["NDCG@10"], "recall_100": recall["Recall@100"]}
