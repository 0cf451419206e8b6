"""Build a TensorRT engine from an encoder's bundle (none has been run on a GPU yet)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from quarry.engine.cli.output import print_lines
from quarry.engine.cli.words import parse_path
from quarry.formats.bundle.plan import LIBRARIES

__all__ = ["add_arguments", "build_and_print", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry plan``."""
    parser.add_argument("bundle", type=parse_path, metavar="BUNDLE", help="an encoder's bundle in fp16 or fp32")
    parser.add_argument("--target", help="compute capability to build for, such as sm89 (default: this GPU's)")
    parser.add_argument("--library", choices=LIBRARIES, help="(default: the first that is installed)")
    parser.add_argument(
        "--timing-cache", type=parse_path, metavar="FILE", help="file that keeps kernel timings between builds"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry plan``; return the exit status.

    Raises:
        QuarryError: the engine cannot be built.
    """
    choices = {"target": args.target, "library": args.library, "timing_cache": args.timing_cache}
    build_and_print(args.bundle, args.json, **choices)
    return 0


def build_and_print(
    bundle: Path,
    as_json: bool,
    *,
    target: str | None,
    library: str | None = None,
    timing_cache: Path | None = None,
) -> None:
    """Build a bundle's engine (`quarry.exporters.to_tensorrt.build_plan`) and print its path and size."""
    from quarry.exporters.to_tensorrt import build_plan

    plan = build_plan(bundle, target=target, library=library, timing_cache=timing_cache)
    path, n_bytes = f"{bundle / plan.stem}.plan", plan.file.n_bytes
    print_lines(json.dumps({"path": path, "n_bytes": n_bytes}) if as_json else f"{path}: {n_bytes} bytes")
