"""Computes quality measures with ir-measures; the command ``judge`` computes those of a TREC run file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ir_measures
from ir_measures import RR, R, nDCG

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.trec_run import read_run
from quarry.engine import Hit

__all__ = ["Quality", "add_arguments", "measure_hits", "measure_quality", "run"]


@dataclass(frozen=True)
class Quality:
    """Means over the queries with judgments.

    Attributes:
        ndcg_10: nDCG@10 with linear gain: a document's gain is its judged score, as in trec_eval.
        ndcg_exp_10: nDCG@10 with gain 2^score - 1, the same value if every score is 0 or 1.
        recall_100: R@100, the share of the documents with score 1 or higher that are among the first 100.
        rr_10: RR@10, the reciprocal rank of the first of them, 0 if it is not among the first 10.
    """

    ndcg_10: float
    ndcg_exp_10: float
    recall_100: float
    rr_10: float


def measure_quality(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> Quality:
    """Compute the quality of a run.

    Args:
        qrels: ids and integer scores of the judged documents by query id; unjudged documents have score 0.
        run: ids and scores of the retrieved documents by query id, larger is better; a query that is missing has
            no results. Documents of equal score are ranked by id, descending for nDCG and R (trec_eval's rule).

    Raises:
        ValueError: there are no judgments.
    """
    if not qrels:
        raise ValueError("there are no judgments to evaluate the run with")
    scores = {score for judged in qrels.values() for score in judged.values() if score > 0}
    exponential = nDCG(gains={score: 2**score - 1 for score in sorted(scores)}) @ 10
    values = ir_measures.calc_aggregate([nDCG @ 10, R @ 100, RR @ 10], qrels, run)
    # A separate call: in one call with the others ir-measures 0.4.3 may give both kinds of nDCG the same gains.
    values |= ir_measures.calc_aggregate([exponential], qrels, run)
    return Quality(values[nDCG @ 10], values[exponential], values[R @ 100], values[RR @ 10])


def measure_hits(collection: Collection, answers: Sequence[Sequence[Hit]]) -> Quality:
    """Compute the quality of the engine's answers to the queries of a collection, in their order."""
    judged = zip(collection.queries, answers, strict=True)
    return measure_quality(
        collection.qrels, {query: {hit.id: hit.score for hit in hits} for query, hits in judged}
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench judge``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--run", dest="run_file", type=Path, required=True, help="the run file")


def run(args: argparse.Namespace) -> int:
    """Print nDCG@10 (linear gain, and 2^g - 1), R@100 and RR@10 over the queries in the run file."""
    qrels = load_collection(args).qrels
    answered = read_run(args.run_file)
    judged = {query: scores for query, scores in qrels.items() if query in answered}
    print(f"{'n_queries':<12} {len(judged)} of {len(qrels)}")
    for name, value in asdict(measure_quality(judged, answered)).items():
        print(f"{name:<12} {value:.4f}")
    return 0
