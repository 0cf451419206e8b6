"""Convert a trained checkpoint, encoder or reranker, into a bundle, or check a bundle."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from exporters.plan_command import build_and_tell
from formats.bundle_folder import bundle_kind
from formats.encoder_bundle import EncoderBundle
from formats.errors import InvalidSetting
from formats.reranker_bundle import RerankerBundle

__all__ = ["add_arguments", "run"]

_ENCODER_OPTIONS = {"head": None, "normalise": None, "query_checkpoint": None}
_DEFAULTS = {**_ENCODER_OPTIONS, "tensorrt": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry export``."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a Hugging Face or sentence-transformers folder, or owner/name of the hub; with --check a bundle",
    )
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="the bundle's folder, which must not exist yet"
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "fp32", "fp16", "int8-weights"),
        default="int8",
        help="int8 (default): fast on CPUs; fp32: exact; fp16: for GPUs; int8-weights: small, close to fp32",
    )
    parser.add_argument("--name", help="the encoder's name, by default that of the checkpoint's folder")
    parser.add_argument(
        "--head", choices=("mean", "cls", "max"), help="pooling instead of what the checkpoint says"
    )
    parser.add_argument(
        "--normalise", action=argparse.BooleanOptionalAction, help="whether vectors get length 1, likewise"
    )
    parser.add_argument(
        "--query-checkpoint",
        type=Path,
        metavar="FOLDER",
        help="the encoder for queries, where they have their own",
    )
    parser.add_argument(
        "--tensorrt", action="store_true", help="build a TensorRT engine too, as `quarry plan` does (fp16, fp32)"
    )
    parser.add_argument("--target", help="compute capability to build it for, such as sm89; default: this GPU's")
    parser.add_argument("--check", action="store_true", help="compare a bundle with what its export recorded")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry export``; return the exit status.

    Raises:
        QuarryError: the checkpoint cannot be exported, or the bundle gives other vectors than it should.
    """
    if args.check:
        return _check(args)
    if args.out is None:
        raise InvalidSetting("where to? OUT is missing", expected="the folder to make")
    if args.tensorrt and args.precision not in ("fp16", "fp32"):
        raise InvalidSetting("TensorRT reads no such graph", expected="fp16 or fp32", actual=args.precision)
    return _export(args)


def _check(args: argparse.Namespace) -> int:
    from exporters.reference import check_bundle
    from exporters.reranker_reference import check_reranker_bundle

    if args.out is not None:
        raise InvalidSetting("--check takes one folder, that of a bundle", actual=args.out)
    check = check_reranker_bundle if bundle_kind(args.checkpoint) == "reranker" else check_bundle
    numbers = ", ".join(f"{name} {value}" for name, value in asdict(check(args.checkpoint)).items())
    sys.stdout.write(f"{args.checkpoint}: as recorded ({numbers})\n")
    return 0


def _export(args: argparse.Namespace) -> int:
    from exporters.checkpoint import checkpoint_kind
    from exporters.hub import checkpoint_folder
    from exporters.to_onnx import export, export_reranker

    folder = checkpoint_folder(args.checkpoint)
    kind = checkpoint_kind(folder)
    options = {name: getattr(args, name) for name in _ENCODER_OPTIONS}
    exported: EncoderBundle | RerankerBundle
    if kind == "reranker":
        options["tensorrt"] = args.tensorrt
        given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value != _DEFAULTS[name]]
        if given:
            raise InvalidSetting("not an option of rerankers", actual=", ".join(given))
        exported = export_reranker(folder, args.out, args.precision, name=args.name)
    else:
        exported = export(folder, args.out, args.precision, name=args.name, **options)
    settings = exported.settings
    if args.tensorrt:
        build_and_tell(exported.path, target=args.target)
    sys.stdout.write(f"{exported.path}: {kind} {settings.name}, {settings.precision}, {exported.identity}\n")
    return 0
