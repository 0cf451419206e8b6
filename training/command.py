"""Train an encoder by a recipe, or resume a run that was stopped."""

from __future__ import annotations

import argparse
import json
import sys

from quarry.engine.cli.output import print_lines
from quarry.engine.cli.words import parse_path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry train``."""
    parser.add_argument("recipe", type=parse_path, metavar="CONFIG.toml", help="the recipe")
    parser.add_argument(
        "out",
        type=parse_path,
        metavar="OUT",
        help="folder of the run: checkpoints, history, curves, and in the end OUT/final for quarry export",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry train``; return the exit status.

    Raises:
        QuarryError: what `quarry.training.run.train` raises; BackendUnavailable when torch is not installed.
    """
    from quarry.engine.process.libraries import requiring

    with requiring("training needs libraries that are not installed", "'quarry-search[train]'"):
        from quarry.training.run import train
    final = train(args.recipe, args.out, show_progress=sys.stderr is not None and sys.stderr.isatty())
    told = f"{final}: trained; quarry export makes a bundle of it"
    print_lines(json.dumps({"checkpoint": str(final)}) if args.json else told)
    return 0
