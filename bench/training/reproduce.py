"""Claims of the papers in small: ``python -m bench reproduce EXPERIMENT CHECKPOINT --seeds 0 1 2``.

An experiment trains encoders on squad's training questions in several ways, a run of minutes for each way and
seed, and searches paragraphs with its dev questions. Ways are compared by paired bootstrap over the questions'
means of all seeds, beside the figures of the paper. Raw results, the rank of every question among them, are
appended to a file, run by run, seed after seed; a run that is in it is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from hashlib import blake2b
from pathlib import Path

from bench.data.collections import data_folder, read_collection
from bench.harness.records import Record, add_out, append_result, read_records
from bench.training.reproduction.aggregation import Aggregation
from bench.training.reproduction.compression import Compression
from bench.training.reproduction.evaluation import Evaluation
from bench.training.reproduction.experiment import Experiment, select
from bench.training.reproduction.first_vectors import FirstVectorsOfDocuments
from bench.training.reproduction.pseudo_queries import PseudoQueryEmbeddings
from bench.training.reproduction.ranks import reciprocals, unpack_ranks
from bench.training.reproduction.small_run import SmallRun

__all__ = ["EXPERIMENTS", "add_arguments", "run"]

EXPERIMENTS: dict[str, type[Experiment]] = {
    "compression": Compression,
    "pseudo_queries": PseudoQueryEmbeddings,
    "first_vectors": FirstVectorsOfDocuments,
    "aggregation": Aggregation,
}
"""Experiments by name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench reproduce``."""
    names = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        own = names.add_parser(name, help=experiment.summary, description=experiment.__doc__)
        _add_shared(own)
        experiment.add_arguments(own)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, help="folder of the Hugging Face checkpoint to start from")
    parser.add_argument("--name", help="of the checkpoint in the results (default: that of its folder)")
    parser.add_argument("--collection", default="squad", help="trained on its split train (default: %(default)s)")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2], help="none: only the table is printed")
    parser.add_argument("--steps", type=int, help="of a run (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, help="(default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="of the encoder (default: %(default)s)")
    parser.add_argument(
        "--frozen-layers", type=int, help="from below, with the embeddings; -1: nothing (default: %(default)s)"
    )
    parser.add_argument("--train-documents", type=int, help="of split train (default: %(default)s)")
    parser.add_argument("--train-prefix", default="train-", help="of the ids of these documents")
    parser.add_argument("--held-out", type=int, default=40, help="articles of split train that are left out")
    parser.add_argument("--tokens", type=int, default=64, help="of a document in training (default: %(default)s)")
    parser.add_argument("--query-tokens", type=int, default=24)
    parser.add_argument("--search-tokens", type=int, default=96, help="of a document that is searched")
    parser.add_argument("--documents", type=int, default=4067, help="that are searched (default: %(default)s)")
    parser.add_argument("--queries", type=int, help="of split dev (default: all)")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--runs", type=Path, default=Path("bench/results/runs/reproduce"), help="folder for runs")
    add_out(parser, "reproduce")


def run(args: argparse.Namespace) -> int:
    """Train and measure what is missing in the file of results, and print a table."""
    about, experiment = _make(args)
    for seed in args.seeds:
        for case in experiment.cases():
            known = {**about, **case, "seed": seed}
            if select(read_records(args.out), known):
                continue
            started = time.perf_counter()
            found = dict(experiment.measure(case, seed))
            rr_10 = round(float(reciprocals(unpack_ranks(found["ranks"])).mean()), 5)
            took = round(time.perf_counter() - started)
            append_result(args.out, {**known, **found, "rr_10": rr_10, "seconds": took})
            what = ", ".join(f"{name} {value}" for name, value in case.items())
            print(f"{what}, seed {seed}: {rr_10:.4f} ({took} s)", flush=True)
    records: list[Record] = select(read_records(args.out), about)
    print("\n".join(experiment.table(records)))
    return 0


def _make(args: argparse.Namespace) -> tuple[dict[str, object], Experiment]:
    """The experiment, and what its results say about it."""
    folder = data_folder(args.collection)
    collection = read_collection(folder, "dev").subset(args.documents, args.queries)
    small = SmallRun(
        checkpoint=args.checkpoint,
        data=folder,
        steps=args.steps,
        batch_size=args.batch_size,
        n_documents=args.train_documents,
        id_prefix=args.train_prefix,
        held_out=args.held_out,
        query_tokens=args.query_tokens,
        document_tokens=args.tokens,
        frozen_layers=None if args.frozen_layers < 0 else args.frozen_layers,
        learning_rate=args.learning_rate,
        precision=args.precision,
    )
    evaluation = Evaluation(collection, args.query_tokens, args.search_tokens)
    experiment = EXPERIMENTS[args.experiment](small, evaluation, args)
    about: dict[str, object] = {
        "experiment": args.experiment,
        "collection": folder.name,
        "checkpoint": args.name or args.checkpoint.name,
        "n_documents": len(collection.documents),
        "n_queries": len(collection.queries),
        "steps": small.steps,
        "batch_size": small.batch_size,
        "learning_rate": small.learning_rate,
        "frozen_layers": args.frozen_layers,
        "train_documents": small.n_documents,
        "held_out": small.held_out,
        "tokens": small.document_tokens,
        "query_tokens": small.query_tokens,
        "search_tokens": args.search_tokens,
        **experiment.settings(),
    }
    digest = blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=4).hexdigest()
    experiment.folder = args.runs / f"{args.experiment}-{digest}"
    return about, experiment
