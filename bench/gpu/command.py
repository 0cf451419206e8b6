"""All checks and timings of what runs on a GPU, with one command: ceilings, correctness against numpy, speed.

``python -m bench gpu --out FILE`` needs a CUDA build of torch, msgpack, zstandard and xxhash; if something else
is missing (tensorrt, onnxruntime-gpu, faiss-gpu, cuvs, transformers), a record says so. ``--device cpu --quick``
runs the same code in a minute on any machine. On a CUDA device each part has a process and a time of its own, so
that neither a device that is lost nor a part that hangs takes the others with it; records are written as they
come, and what failed is one of them, with its traceback. The last records are the figures that have a target. It
ends with status 1 where an answer was wrong or something failed.

Where the time of one command is short: ``--parts ceilings,checks,sizes`` first, then ``--parts
ceilings,sizes,peers`` and so on, each with ``--seconds``. From texts to documents and to centroids a synthetic
model, a table of vectors, is run; with ``--bundle`` a real encoder in fp16 or fp32 too.
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

from bench.gpu.ceilings import ceilings
from bench.gpu.checks import checks
from bench.gpu.encoders import encoders
from bench.gpu.end_to_end import flow
from bench.gpu.harness import guarded
from bench.gpu.peers import peers
from bench.gpu.sizes import Size, timings
from bench.gpu.targets import figures
from bench.harness.environment import circumstances
from bench.harness.records import Record, add_out, append_record, read_records

__all__ = ["add_arguments", "run"]

_FULL = Size(n_rows=10_000_000, dim=384, per_document=4, batches=(1, 256), n_calls=20, n_documents=4096)
_QUICK = Size(n_rows=20_000, dim=64, per_document=4, batches=(1, 16), n_calls=2, n_documents=32)
_SECONDS = 560  # of all parts
_MOST_S = {"ceilings": 60, "checks": 180, "sizes": 240, "encoders": 240, "flow": 150, "peers": 240}
_GRACE_S = 20  # of a process that is still measuring when its time is up

Part = Callable[[torch.device, Size, Path | None], Iterator[Record]]
_PARTS: dict[str, Part] = {  # what has a target comes first
    "ceilings": lambda place, size, _: ceilings(place, size),
    "checks": lambda place, _, __: checks(place),
    "sizes": lambda place, size, _: timings(place, size),
    "peers": lambda place, size, _: peers(place, size),
    "encoders": lambda place, size, _: encoders(place, size),
    "flow": flow,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench gpu``."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look whether everything runs")
    parser.add_argument("--bundle", type=Path, help="an encoder's bundle in fp16 or fp32, to be run as well")
    add_out(parser, "gpu")
    parser.add_argument("--parts", default=",".join(_PARTS), help="which, in this order (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="for all (default: %(default)s)")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)  # a process of one part


def run(args: argparse.Namespace) -> int:
    """Check and measure; print a line for each result. Returns 1 where a check or a part failed, else 0."""
    ends = time.perf_counter() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        out = args.out or Path(folder) / "gpu.jsonl"
        n_before = len(read_records(out))
        measure = _measure if args.inner or torch.device(args.device).type == "cpu" else _apart
        for name in args.parts.split(","):
            measure(name, args, out, ends)
        if args.inner:
            return 0
        records = read_records(out)[n_before:]
        for record in figures(records):
            _written(record, out)
        return int(any(record.get("sound") is False or "failed" in record for record in records))


def _measure(name: str, args: argparse.Namespace, out: Path, ends: float) -> None:
    """One part, in this process."""
    place = torch.device(args.device)
    about = {"part": name, **circumstances(), "device": describe(place), "torch": torch.__version__}
    about["triton"] = _triton()
    part = partial(_PARTS[name], place, _QUICK if args.quick else _FULL, args.bundle)
    for record in guarded({}, part):
        _written(record, out, about)
        if time.perf_counter() > ends:
            _written({"what": "part", "left_out": "the time is up"}, out, about)
            return


def _apart(name: str, args: argparse.Namespace, out: Path, ends: float) -> None:
    """One part, in a process of its own, which is ended when its time is up."""
    left = min(ends - time.perf_counter(), _MOST_S[name])
    about: Record = {"what": "part", "part": name}
    if left <= 0:
        _written({**about, "left_out": "the time is up"}, out)
        return
    options = ["--device", args.device, "--out", str(out), "--parts", name, "--seconds", str(left), "--inner"]
    options += ["--quick"] * args.quick + (["--bundle", str(args.bundle)] if args.bundle else [])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench", "gpu", *options], timeout=left + _GRACE_S, check=False
        )
    except subprocess.TimeoutExpired:
        _written({**about, "left_out": f"ended after {left + _GRACE_S:.0f} s"}, out)
        return
    if done.returncode:
        _written({**about, "failed": f"ended with {done.returncode}"}, out)


def _written(record: Record, out: Path, about: Record | None = None) -> None:
    """Print a record, and append it with what was measured where."""
    shown = {key: value for key, value in record.items() if key != "traceback"}
    print(" ".join(f"{key}={_short(value)}" for key, value in shown.items()), flush=True)
    if "traceback" in record:
        print(record["traceback"], file=sys.stderr, flush=True)
    append_record(out, {**record, **(about or {})})


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
