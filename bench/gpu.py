"""All checks and timings of the GPU backend, with one command: correctness against numpy, then speed at size.

``python -m bench gpu`` needs a CUDA build of torch; ``--device cpu --quick`` runs the same code in seconds on any
machine. It ends with status 1 where an answer was wrong. What is not measured within seven minutes is left out.

From texts to documents and to centroids it runs a model made up of a table of vectors; with ``--bundle`` a real
encoder in fp16 or fp32 too, with what runs it there (TensorRT, or ONNX Runtime for CUDA).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.circumstances import circumstances
from bench.gpu_ceilings import ceilings
from bench.gpu_checks import checks
from bench.gpu_flow import encoder_of, flow_checks, flow_timings
from bench.gpu_peers import peers
from bench.gpu_sizes import Size, timings
from bench.records import Record, append_record

__all__ = ["add_arguments", "run"]

_FULL = Size(n_rows=10_000_000, dim=384, per_document=4, batches=(1, 256), n_calls=20, n_documents=4096)
_QUICK = Size(n_rows=20_000, dim=64, per_document=4, batches=(1, 16), n_calls=2, n_documents=32)
_MOST_S = 420


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench gpu``."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look whether everything runs")
    parser.add_argument("--bundle", type=Path, help="an encoder's bundle in fp16 or fp32, to be run as well")
    parser.add_argument("--out", type=Path, help="JSON lines are appended to this file")


def run(args: argparse.Namespace) -> int:
    """Check and measure; print a line for each result. Returns 1 where a check failed, else 0."""
    place = torch.device(args.device)
    machine = {**circumstances(), "device": describe(place), "torch": torch.__version__, "triton": _triton()}
    size = _QUICK if args.quick else _FULL
    failed = 0
    started = time.perf_counter()
    for record in _records(place, size, args.bundle):
        print(" ".join(f"{key}={_short(value)}" for key, value in record.items()), flush=True)
        failed += record.get("sound") is False
        if args.out:
            append_record(args.out, {**record, **machine})
        if time.perf_counter() - started > _MOST_S:
            print("the time is up: what would follow is left out", flush=True)
            break
    return 1 if failed else 0


def _records(place: torch.device, size: Size, bundle: Path | None) -> Iterator[Record]:
    yield from checks(place)
    encoders = [(encoder_of(place, each), each) for each in (None, *([bundle] if bundle else []))]
    for encoder, source in encoders:
        yield from flow_checks(place, encoder, source)
    yield from ceilings(place, size)
    for encoder, source in encoders:
        yield from flow_timings(place, size, encoder, source)
    yield from timings(place, size)
    yield from peers(place, size)


def describe(place: torch.device) -> str:
    """The device in words."""
    if place.type != "cuda":
        return str(place)
    about = torch.cuda.get_device_properties(place)
    gib = about.total_memory / (1 << 30)
    return (
        f"{about.name}, {gib:.0f} GiB, {about.multi_processor_count} multiprocessors, "
        f"compute capability {about.major}.{about.minor}, CUDA {torch.version.cuda}"
    )


def _triton() -> str:
    try:
        import triton
    except ImportError:
        return "not installed"
    return str(triton.__version__)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
