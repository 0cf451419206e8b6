"""Compute the quality of a TREC run file of any system by the judgments of a collection."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from bench.data.collections import add_collection, load_collection
from bench.data.quality import measure_quality
from bench.data.trec_run import read_run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench judge``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--run", dest="run_file", type=Path, required=True, help="the run file")


def run(args: argparse.Namespace) -> int:
    """Print nDCG@10 (linear gain, and 2^g - 1), R@100 and RR@10 over the queries that the run answers."""
    qrels = load_collection(args).qrels
    answered = read_run(args.run_file)
    judged = {query: scores for query, scores in qrels.items() if query in answered}
    print(f"{'n_queries':<12} {len(judged)} of {len(qrels)}")
    for name, value in asdict(measure_quality(judged, answered)).items():
        print(f"{name:<12} {value:.4f}")
    return 0
