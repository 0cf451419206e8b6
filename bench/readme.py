"""Everything the README quotes, in one run: figures, peers, sweep, encoders, the paper's table, and the report.

On 2 quiet cores about 75 minutes with squad whole: 12 for the figures, 20 for the peers (without installing them),
30 for the sweep, 5 for the encoders, 5 for the paper's table. What peers and sweep have done already is not done
again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import __main__ as commands

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench readme``."""
    parser.add_argument("--dataset", default="squad", help="name or path of a BEIR folder (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="default: %(default)s")
    parser.add_argument("--documents", type=int, help="search this many documents only")
    parser.add_argument(
        "--checkpoint", type=Path, help="of all-MiniLM-L6-v2: adds precisions and torch to encoders"
    )
    parser.add_argument("--without", nargs="*", default=[], help="steps to leave out")


def run(args: argparse.Namespace) -> int:
    """Run one step after another; stop where one fails."""
    sizes = ["--documents", str(args.documents)] if args.documents else []
    checkpoint = ["--checkpoint", str(args.checkpoint)] if args.checkpoint else []
    steps = {
        "figures": ["--out", str(args.out / "figures.jsonl")],
        "peers": [args.dataset, "--out", str(args.out), "--install", *sizes],
        "tradeoff": [args.dataset, "--out", str(args.out), *sizes],
        "encode": ["cranfield", "--out", str(args.out / "encode.jsonl"), *checkpoint],
        "paper_table": [args.dataset, "--out", str(args.out / "paper_table.jsonl"), *sizes],
        "report": [str(args.out)],
    }
    for name, arguments in steps.items():
        if name in args.without:
            continue
        print(f"--- {name} {' '.join(arguments)}", flush=True)
        status = commands.main([name, *arguments])
        if status:
            return status
    return 0
