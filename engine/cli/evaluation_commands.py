"""The commands ``quarry eval`` and ``quarry tune``: quality of an index, and its weight of dense scores."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from quarry import engine
from quarry.engine.choices import MODES
from quarry.engine.cli.output import print_lines
from quarry.engine.cli.words import parse_path

if TYPE_CHECKING:
    from quarry.engine.evaluation.evaluation import Interval

__all__ = ["EVAL_SUMMARY", "TUNE_SUMMARY", "add_eval_arguments", "add_tune_arguments", "run_eval", "run_tune"]

EVAL_SUMMARY = "measure the quality of an index with judged queries"
TUNE_SUMMARY = "choose the weight of dense against lexical scores by judged queries, and store it in the index"


def add_eval_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quarry eval``, without those that other commands have too."""
    _add_judgments(parser)
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="mode to measure; may be repeated (default: all)"
    )
    parser.add_argument(
        "-k", type=int, default=100, help="number of hits that recall is measured in (default: 100)"
    )


def add_tune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quarry tune``, without those that other commands have too."""
    _add_judgments(parser)
    parser.add_argument("--dry-run", action="store_true", help="store nothing")


def _add_judgments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queries", type=parse_path, required=True, metavar="FILE", help="JSON Lines, or lines of id, tab, text"
    )
    parser.add_argument(
        "--qrels", type=parse_path, required=True, metavar="FILE", help="judgments in the format of BEIR or TREC"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the confidence intervals (default: 0)")


def run_eval(args: argparse.Namespace) -> int:
    """Run ``quarry eval``; return the exit status."""
    from quarry.engine.evaluation.evaluation import count_missing, evaluate
    from quarry.engine.evaluation.judgments import read_judged_queries

    queries = read_judged_queries(args.queries, args.qrels)
    with engine.Engine.open(args.index, encoder=args.encoder, threads=args.threads) as index:
        n_missing = count_missing(index, queries)
        qualities = evaluate(index, queries, args.mode or MODES, args.k, args.seed)
    counts = {
        "n_queries": len(queries.texts),
        "n_queries_without_relevant": queries.n_without,
        "n_relevant_missing": n_missing,
        "k": args.k,
    }
    if args.json:
        print_lines(json.dumps(counts | {"modes": {mode: asdict(quality) for mode, quality in qualities.items()}}))
        return 0
    recall = f"recall@{args.k}"
    lines = [f"{len(queries.texts)} queries; intervals of 95 %"]
    if n_missing:
        lines.append(f"{n_missing} relevant documents are not in the index; they count as not found")
    lines.append(f"{'mode':<8}  {'nDCG@10':<22}  {recall:<22}  MRR@10")
    for mode, quality in qualities.items():
        cells = (_format(each) for each in (quality.ndcg_10, quality.recall, quality.rr_10))
        lines.append(f"{mode:<8}  " + "  ".join(f"{cell:<22}" for cell in cells).rstrip())
    print_lines(*lines)
    return 0


def run_tune(args: argparse.Namespace) -> int:
    """Run ``quarry tune``; return the exit status."""
    from quarry.engine.evaluation.judgments import read_judged_queries
    from quarry.engine.evaluation.tuning import tune

    queries = read_judged_queries(args.queries, args.qrels)
    with engine.Engine.open(
        args.index, writable=not args.dry_run, encoder=args.encoder, threads=args.threads
    ) as index:
        tuned = tune(index, queries, args.seed)
        is_stored = tuned.is_better and not args.dry_run
        if is_stored:
            index.set_dense_weight(tuned.dense_weight)
    if args.json:
        print_lines(json.dumps(asdict(tuned) | {"is_stored": is_stored}))
        return 0
    gain = tuned.gain
    print_lines(
        f"dense_weight {tuned.dense_weight} instead of {tuned.before}: nDCG@10 {gain.mean:+.4f}"
        f" ({gain.low:+.4f} to {gain.high:+.4f}, cross-validated over {tuned.n_queries} queries)"
    )
    if not tuned.is_better:
        print_lines("not stored: the gain is not significant")
    elif is_stored:
        print_lines("stored in the index")
    return 0


def _format(interval: Interval) -> str:
    return f"{interval.mean:.4f} ({interval.low:.3f}-{interval.high:.3f})"
