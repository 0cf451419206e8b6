"""Runs prepare, figures, peers, tradeoff, encode, paper_table and report in order.

On 2 quiet cores about an hour with squad whole: 4 minutes to encode it for all that follows, 11 for the figures,
12 for the peers (without installing them), 7 for those of late interaction, which get a slice, 16 for the sweep,
5 for the encoders, 2 for the paper's table. A run that was stopped goes on where preparation, peers and sweep
were; the others are short, and left out with ``--without``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import __main__ as commands
from bench.data.collections import add_collection
from bench.harness.records import add_out

__all__ = ["add_arguments", "run"]

_LATE = 2100  # documents: clustering all tokens of more takes too long on a CPU


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench readme``."""
    add_collection(parser)
    add_out(parser, "readme", is_folder=True)
    parser.add_argument(
        "--checkpoint", type=Path, help="of all-MiniLM-L6-v2: adds precisions and torch to encoders"
    )
    parser.add_argument("--without", nargs="*", default=[], help="steps to leave out")


def run(args: argparse.Namespace) -> int:
    """Run one step after another; stop where one fails."""
    sizes = ["--documents", str(args.documents)] if args.documents else []
    sizes += ["--queries", str(args.queries)] if args.queries else []
    checkpoint = ["--checkpoint", str(args.checkpoint)] if args.checkpoint else []
    whole = [args.collection, "--out", str(args.out)]
    late = ["--queries", "300", "--only", "FastPlaid", "dense", "FAISS Flat"]
    steps = {
        "prepare": [args.collection, *sizes],
        "figures": [args.collection, "--out", str(args.out / "figures.jsonl")],
        "peers": [*whole, "--install", *sizes],
        "late": [*whole, "--documents", str(min(args.documents or _LATE, _LATE)), *late],
        "tradeoff": [*whole, *sizes],
        "encode": [args.collection, "--out", str(args.out / "encode.jsonl"), *sizes, *checkpoint],
        "paper_table": [args.collection, "--out", str(args.out / "paper_table.jsonl"), *sizes],
        "report": [str(args.out)],
    }
    for name, arguments in steps.items():
        if name in args.without:
            continue
        command = "peers" if name == "late" else name
        print(f"--- {command} {' '.join(arguments)}", flush=True)
        status = commands.main([command, *arguments])
        if status:
            return status
    return 0
