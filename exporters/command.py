"""Convert a trained checkpoint, encoder or reranker, into a bundle."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry export``."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a Hugging Face folder, BERT family")
    parser.add_argument("out", type=Path, metavar="OUT", help="the bundle's folder, which must not exist yet")
    parser.add_argument("--precision", choices=("int8", "fp32"), default="int8", help="default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry export``; return the exit status.

    Raises:
        QuarryError: the checkpoint cannot be exported.
    """
    from exporters.checkpoint import checkpoint_kind
    from exporters.to_onnx import export, export_reranker

    kind = checkpoint_kind(args.checkpoint)
    exported = (export_reranker if kind == "reranker" else export)(args.checkpoint, args.out, args.precision)
    settings = exported.settings
    sys.stdout.write(f"{exported.path}: {kind} {settings.name}, {settings.precision}, {exported.identity}\n")
    return 0
