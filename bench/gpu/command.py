"""Runs all checks and timings of code for GPUs: limits of the device, correctness against numpy, speed.

``python -m bench gpu`` needs a CUDA build of torch; if something else is missing (tensorrt, onnxruntime-gpu,
faiss-gpu, cuvs, transformers), a record says so. ``--device cpu --quick`` runs the same code in a minute on any
machine. On a CUDA device each part runs in a process with a time limit, so that a lost device or a part that hangs
does not stop the others. Records are written at once; a failure is a record with its traceback. The last records
compare figures with their targets. The exit status is 1 if an answer was wrong or a part failed.

If the time for one command is limited: ``--parts ceilings,checks,sizes`` first, then ``--parts
ceilings,sizes,peers`` and so on, each with ``--seconds``. The part ``flow``, from texts to documents and to
centroids, runs a synthetic model (a table of vectors), and with ``--bundle`` also a real encoder in fp16 or fp32.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from bench.gpu.ceilings import measure_ceilings
from bench.gpu.checks import run_checks
from bench.gpu.encoders import measure_encoders
from bench.gpu.end_to_end import measure_flow
from bench.gpu.harness import guarded
from bench.gpu.peers import measure_peers
from bench.gpu.sizes import Size, measure_sizes
from bench.gpu.targets import compare_with_targets
from bench.harness.environment import describe_environment
from bench.harness.records import Record, add_out, append_record, read_records

__all__ = ["add_arguments", "run"]

_FULL = Size(
    n_rows=10_000_000,
    dim=384,
    per_document=4,
    batches=(1, 256),
    n_calls=20,
    n_documents=4096,
    checked_batches=(1, 7, 256, 1000),
)
_QUICK = Size(
    n_rows=20_000, dim=64, per_document=4, batches=(1, 16), n_calls=2, n_documents=32, checked_batches=(1, 7, 40)
)
_SECONDS = 560  # for all parts
_MAX_S = {"ceilings": 60, "checks": 180, "sizes": 240, "encoders": 240, "flow": 150, "peers": 240}
_GRACE_S = 20  # after the time limit, before the process is killed

Part = Callable[[torch.device, Size, Path | None], Iterator[Record]]
_PARTS: dict[str, Part] = {  # parts with targets first
    "ceilings": lambda place, size, _: measure_ceilings(place, size),
    "checks": lambda place, size, _: run_checks(place, size.checked_batches),
    "sizes": lambda place, size, _: measure_sizes(place, size),
    "peers": lambda place, size, _: measure_peers(place, size),
    "encoders": lambda place, size, _: measure_encoders(place, size),
    "flow": measure_flow,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench gpu``."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the measurement")
    parser.add_argument("--bundle", type=Path, help="also measure this encoder's bundle in fp16 or fp32")
    add_out(parser, "gpu")
    parser.add_argument(
        "--parts", default=",".join(_PARTS), help="parts to run, in this order (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="time limit for all parts (default: %(default)s)"
    )
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)  # run parts in this process


def run(args: argparse.Namespace) -> int:
    """Check and measure, print a line for each record; return 1 if a check or a part failed, else 0."""
    deadline = time.perf_counter() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        out = args.out or Path(folder) / "gpu.jsonl"
        n_before = len(read_records(out))
        measure = _run_here if args.inner or torch.device(args.device).type == "cpu" else _run_in_process
        for name in args.parts.split(","):
            measure(name, args, out, deadline)
        if args.inner:
            return 0
        records = read_records(out)[n_before:]
        for record in compare_with_targets(records):
            _write(record, out)
        return int(any(record.get("sound") is False or "failed" in record for record in records))


def _run_here(name: str, args: argparse.Namespace, out: Path, deadline: float) -> None:
    """Run one part in this process."""
    place = torch.device(args.device)
    about = {"part": name, **describe_environment(), "device": _describe_device(place), "torch": torch.__version__}
    about["triton"] = _triton_version()
    part = partial(_PARTS[name], place, _QUICK if args.quick else _FULL, args.bundle)
    for record in guarded({}, part):
        _write(record, out, about)
        if time.perf_counter() > deadline:
            _write({"what": "part", "left_out": "out of time"}, out, about)
            return


def _run_in_process(name: str, args: argparse.Namespace, out: Path, deadline: float) -> None:
    """Run one part in a new process, which is killed when its time is over."""
    left = min(deadline - time.perf_counter(), _MAX_S[name])
    about: Record = {"what": "part", "part": name}
    if left <= 0:
        _write({**about, "left_out": "out of time"}, out)
        return
    options = ["--device", args.device, "--out", str(out), "--parts", name, "--seconds", str(left), "--inner"]
    options += ["--quick"] * args.quick + (["--bundle", str(args.bundle)] if args.bundle else [])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench", "gpu", *options], timeout=left + _GRACE_S, check=False
        )
    except subprocess.TimeoutExpired:
        _write({**about, "left_out": f"ended after {left + _GRACE_S:.0f} s"}, out)
        return
    if done.returncode:
        _write({**about, "failed": f"ended with {done.returncode}"}, out)


def _write(record: Record, out: Path, about: Record | None = None) -> None:
    """Print a record and append it with the fields of `about`."""
    shown = {key: value for key, value in record.items() if key != "traceback"}
    print(" ".join(f"{key}={_format(value)}" for key, value in shown.items()), flush=True)
    if "traceback" in record:
        print(record["traceback"], file=sys.stderr, flush=True)
    append_record(out, {**record, **(about or {})})


def _describe_device(place: torch.device) -> str:
    """Return a description of the device."""
    if place.type != "cuda":
        return str(place)
    about = torch.cuda.get_device_properties(place)
    gib = about.total_memory / (1 << 30)
    return (
        f"{about.name}, {gib:.0f} GiB, {about.multi_processor_count} multiprocessors, "
        f"compute capability {about.major}.{about.minor}, CUDA {torch.version.cuda}"
    )


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return "not installed"
    return str(triton.__version__)


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
