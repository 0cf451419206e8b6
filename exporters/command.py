"""Export a trained checkpoint, encoder or reranker, as a bundle, or check a bundle."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from quarry.engine.cli.output import print_lines
from quarry.engine.cli.words import parse_path
from quarry.exporters.plan_command import build_and_print
from quarry.formats.bundle.encoder import EncoderBundle, ParityRecord, RetrievalRecord
from quarry.formats.bundle.folder import read_bundle_kind
from quarry.formats.bundle.reranker import RerankerBundle, RerankerParity
from quarry.formats.errors import InvalidSetting

__all__ = ["add_arguments", "run"]

_PRECISION = "int8"
_ENCODER_OPTIONS = ("head", "normalize", "query_checkpoint")
_TENSORRT_OPTIONS = ("tensorrt", "target")
_OPTIONS = ("precision", "name", *_ENCODER_OPTIONS, *_TENSORRT_OPTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry export``."""
    parser.add_argument(
        "checkpoint",
        type=parse_path,
        metavar="CHECKPOINT",
        help="a Hugging Face or sentence-transformers folder, or owner/name on the hub; with --check a bundle",
    )
    parser.add_argument(
        "out", type=parse_path, nargs="?", metavar="OUT", help="the folder to create, which must not exist"
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "fp32", "fp16", "int8-weights"),
        help="int8 (default): fast on CPUs; fp32: exact; fp16: for GPUs; int8-weights: small, close to fp32",
    )
    parser.add_argument(
        "--name",
        help="the model's name (default: the model_name of its README.md, or that of the checkpoint's folder)",
    )
    parser.add_argument(
        "--head",
        choices=("mean", "weightedmean", "cls", "lasttoken", "max"),
        help="pooling in place of the checkpoint's own",
    )
    parser.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, help="whether vectors have L2 norm 1, likewise"
    )
    parser.add_argument(
        "--query-checkpoint",
        type=parse_path,
        metavar="FOLDER",
        help="a separate encoder for queries, if the model has one",
    )
    parser.add_argument(
        "--tensorrt", action="store_true", help="also build a TensorRT engine, as `quarry plan` does (fp16, fp32)"
    )
    parser.add_argument("--target", help="with --tensorrt: compute capability, such as sm89; default: this GPU's")
    parser.add_argument(
        "--check", action="store_true", help="compare a bundle with the results that its export recorded"
    )
    parser.add_argument("--json", action="store_true", help="print JSON objects, for programs")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry export``; return the exit status.

    Raises:
        QuarryError: the checkpoint cannot be exported, or the bundle's vectors or scores differ from the record.
    """
    if args.check:
        return _check(args)
    if args.out is None:
        raise InvalidSetting("OUT is missing", expected="the folder to create")
    args.precision = args.precision or _PRECISION
    with _exit_on_sigterm():
        if args.tensorrt:
            _check_tensorrt(args)
        elif args.target is not None:
            raise InvalidSetting("--target needs --tensorrt", actual=args.target)
        return _export(args)


def _check(args: argparse.Namespace) -> int:
    from quarry.exporters.parity.encoder import check_bundle
    from quarry.exporters.parity.reranker import check_reranker_bundle

    if args.out is not None:
        raise InvalidSetting("--check takes one folder, a bundle", actual=args.out)
    _refuse(args, _OPTIONS, "not an option with --check")
    check = check_reranker_bundle if read_bundle_kind(args.checkpoint) == "reranker" else check_bundle
    record = check(args.checkpoint)
    if args.json:
        print_lines(json.dumps({"path": str(args.checkpoint), "parity": asdict(record)}))
    else:
        print_lines(f"{args.checkpoint}: as recorded ({_format_record(record)})")
    return 0


def _check_tensorrt(args: argparse.Namespace) -> None:
    """Find out before the export whether an engine can be built from the bundle."""
    from quarry.exporters.to_tensorrt import check_builder

    if args.precision not in ("fp16", "fp32"):
        raise InvalidSetting(
            "TensorRT does not support this precision", expected="fp16 or fp32", actual=args.precision
        )
    _refuse(args, ("query_checkpoint",), "not an option with --tensorrt, which builds one graph")
    check_builder(args.target)


def _export(args: argparse.Namespace) -> int:
    from quarry.exporters.checkpoint.checkpoint import checkpoint_kind
    from quarry.exporters.checkpoint.files import find_checkpoint_folder
    from quarry.exporters.export import export, export_reranker

    folder = find_checkpoint_folder(args.checkpoint)
    kind = checkpoint_kind(folder)
    exported: EncoderBundle | RerankerBundle
    if kind == "reranker":
        _refuse(args, (*_ENCODER_OPTIONS, *_TENSORRT_OPTIONS), "not an option for rerankers")
        exported = export_reranker(folder, args.out, args.precision, name=args.name)
    else:
        options = {name: getattr(args, name) for name in _ENCODER_OPTIONS}
        exported = export(folder, args.out, args.precision, name=args.name, **options)
    settings = exported.settings
    records = {"parity": settings.parity, "retrieval": getattr(settings, "retrieval", None)}
    if args.json:
        told = {"path": str(exported.path), "kind": kind, "name": settings.name, "precision": settings.precision}
        measured = {name: asdict(record) for name, record in records.items() if record is not None}
        print_lines(json.dumps({**told, "identity": exported.identity, **measured}))
    else:
        print_lines(f"{exported.path}: {kind} {settings.name}, {settings.precision}, {exported.identity}")
        for what, record in zip(("compared with fp32", "effect"), records.values(), strict=True):
            if record is not None:
                print_lines(f"{what}: {_format_record(record)}")
    if args.tensorrt:
        build_and_print(exported.path, args.json, target=args.target)
    return 0


def _refuse(args: argparse.Namespace, names: tuple[str, ...], message: str) -> None:
    """Refuse options that would have no effect."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) not in (None, False)]
    given += ["--no-normalize"] if "normalize" in names and args.normalize is False else []
    if given:
        raise InvalidSetting(message, actual=", ".join(given))


def _format_record(record: ParityRecord | RetrievalRecord | RerankerParity) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(record).items())


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process by an exception, so that temporary folders are deleted."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set a handler
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
