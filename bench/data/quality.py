"""Computes quality measures with ir-measures; the command ``judge`` computes those of a TREC run file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ir_measures
from ir_measures import RR, R, nDCG

from bench.data.collections import Collection, add_collection, load_collection
from quarry.engine import Hit

__all__ = ["Quality", "Run", "add_arguments", "measure_hits", "measure_quality", "read_run", "run", "write_run"]

Run = dict[str, dict[str, float]]
"""Ids and scores of the retrieved documents by query id, larger is better."""


def write_run(path: Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Write a run, the documents of each query in the order of the mapping.

    trec_eval ranks by score and breaks ties by document id. To keep the order, a score that is not less than the
    previous one is written as the next smaller double.

    Raises:
        ValueError: an id is empty or contains white space, which the format cannot represent.
    """
    lines = []
    for query, scores in run.items():
        before = math.inf
        for rank, (document, score) in enumerate(scores.items(), 1):
            before = min(score, math.nextafter(before, -math.inf))
            for name in (query, document, tag):
                if name.split() != [name]:
                    raise ValueError(f"{path}: a run file cannot contain the id {name!r}")
            lines.append(f"{query} Q0 {document} {rank} {before!r} {tag}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def read_run(path: Path) -> Run:
    """Read a run file; the documents of each query are sorted by score, best first.

    Raises:
        ValueError: a line does not have six fields, a score is not a number, or a document is repeated.
    """
    run: Run = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if len(fields) != 6:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, expected 6")
        query, _, document, _, score, _ = fields
        if document in run.setdefault(query, {}):
            raise ValueError(f"{path}, line {number}: document {document} is repeated for query {query}")
        run[query][document] = _parse_score(score, path, number)
    return {query: dict(sorted(scores.items(), key=lambda item: -item[1])) for query, scores in run.items()}


def _parse_score(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, line {line}: score {text!r}, expected a finite number")
    return value


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
