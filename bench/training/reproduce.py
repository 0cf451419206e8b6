"""Claims of the papers in small: ``python -m bench reproduce CHECKPOINT --seeds 0 1 2``.

RepCONC's Table 2 (Zhan et al. 2022): at 16 and 48 bytes a vector OPQ < DPQ < JPQ < clustering < clustering under
the uniformity constraint, MRR@10. An encoder is trained on squad's training questions with each method and
searched by codes alone on its dev questions. Methods are compared by paired bootstrap over the questions' means of
all seeds. Raw results, the value of every question among them, are appended to a file; a run that is in it is not
repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.data.collections import data_folder, read_collection
from bench.harness.records import Record, add_out, append_result, read_records
from bench.training.bootstrap import paired_difference, seed_means
from bench.training.compression import METHODS, Experiment, measure_coded, train_method

__all__ = ["add_arguments", "run", "summary"]

_PAPER = {
    ("opq", 16): 0.234, ("dpq", 16): 0.244, ("jpq", 16): 0.273, ("clustering", 16): 0.275, ("repconc", 16): 0.284,
    ("repconc+jpq", 16): 0.294, ("opq", 48): 0.290, ("dpq", 48): 0.305, ("jpq", 48): 0.332,
    ("clustering", 48): 0.332, ("repconc", 48): 0.337, ("repconc+jpq", 48): 0.340,
}  # fmt: skip
"""MRR@10 on MS MARCO passages, Table 2."""

_ORDER = ("opq", "dpq", "jpq", "clustering", "repconc", "repconc+jpq")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench reproduce``."""
    parser.add_argument("checkpoint", type=Path, help="folder of the Hugging Face checkpoint to start from")
    parser.add_argument("--collection", default="squad", help="trained on its split train (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--code-bytes", nargs="+", type=int, default=[16, 48])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--documents", type=int, default=4067, help="of the collection that is searched")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--error-weight", type=float, default=0.05)
    parser.add_argument("--held-out", type=int, default=40, help="articles of split train that are not trained on")
    parser.add_argument("--runs", type=Path, default=Path("bench/results/runs/reproduce"), help="folder for runs")
    add_out(parser, "reproduce")


def run(args: argparse.Namespace) -> int:
    """Train and measure what is missing in the file of results, and print a table."""
    collection = read_collection(data_folder(args.collection), "dev").subset(args.documents, args.queries)
    for code_bytes in args.code_bytes:
        for seed in args.seeds:
            experiment = Experiment(
                checkpoint=args.checkpoint,
                data=data_folder(args.collection),
                code_bytes=code_bytes,
                seed=seed,
                steps=args.steps,
                batch_size=args.batch_size,
                error_weight=args.error_weight,
                held_out=args.held_out,
            )
            for method in args.methods:
                about = {
                    "experiment": "compression",
                    "collection": args.collection,
                    "checkpoint": args.checkpoint.name,
                    "method": method,
                    "code_bytes": code_bytes,
                    "seed": seed,
                    "steps": args.steps,
                    "batch_size": args.batch_size,
                    "error_weight": args.error_weight,
                    "n_documents": len(collection.documents),
                    "n_queries": len(collection.queries),
                }
                if any(about.items() <= record.items() for record in read_records(args.out)):
                    continue
                folder = args.runs / f"{args.checkpoint.name}-{args.steps}x{args.batch_size}-{code_bytes}-{seed}"
                values, n_words = measure_coded(train_method(experiment, method, folder), collection)
                scores = {"rr_10": float(np.mean(list(values.values()))), "effective_codewords": n_words}
                rounded = [round(value, 4) for value in values.values()]
                append_result(args.out, {**about, **scores, "rr_10_by_query": rounded})
                print(f"{method} {code_bytes} bytes, seed {seed}: {scores['rr_10']:.4f}", flush=True)
    print("\n".join(summary(read_records(args.out))))
    return 0


def summary(records: Sequence[Record]) -> Iterator[str]:
    """The lines of a table beside the paper's: each method, and its difference from the one before it."""
    yield "| bytes | method | seeds | RR@10 | above the one before (95 %) | codewords used | MRR@10 in the paper |"
    yield "| ---: | --- | ---: | ---: | --- | ---: | ---: |"
    for code_bytes in sorted({int(str(record["code_bytes"])) for record in records}):
        own = {
            method: [each for each in records if (each["method"], each["code_bytes"]) == (method, code_bytes)]
            for method in _ORDER
        }
        present = [method for method in _ORDER if own[method]]
        for before, method in pairwise([None, *present]):
            assert method is not None
            runs = own[method]
            difference = "" if before is None else _difference(own[before], runs)
            mean = np.mean([float(str(each["rr_10"])) for each in runs])
            words = np.mean([float(str(each["effective_codewords"])) for each in runs])
            paper = _PAPER.get((method, code_bytes))
            yield (
                f"| {code_bytes} | {method} | {len(runs)} | {mean:.4f} | {difference} | {words:.1f} | "
                f"{'' if paper is None else f'{paper:.3f}'} |"
            )


def _difference(before: Sequence[Record], after: Sequence[Record]) -> str:
    first, second = (seed_means([each["rr_10_by_query"] for each in runs]) for runs in (before, after))  # type: ignore[misc]
    found = paired_difference(second, first)
    return f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
