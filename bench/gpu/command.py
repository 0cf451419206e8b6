"""Checks and measures everything on a GPU with one command: ``python -m bench gpu --seconds 500``.

The parts run in the order of `PARTS`, each in a process of its own with a time limit, so that a lost device or
a part that hangs does not stop the others. Records are written at once; a failure is a record with its traceback.
The last records compare figures with their targets. The exit status is 1 if a check failed **or was left out**, or
a part failed. ``--dry-run`` runs the same code on the CPU at a thousandth of the size, with Triton's interpreter.

A machine without a network gets what it lacks from a folder of wheels (``--wheels``, see ``bench/gpu/carry.sh``),
and the commit, which it cannot know, from ``--commit``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast

from bench.harness.records import Record, add_out, append_record, read_records

__all__ = ["PARTS", "Part", "add_arguments", "compare_with_targets", "is_bad", "run"]

_MAX_READS = 2.0  # time of a query in reads of all centroids
_MIN_SHARE = 0.5  # of the measured rate of matrix products, for a batch
_SPEED_UPS = {"MiniLM": 2.0, "BERT-base": 1.3}  # of an encoder over torch in float16, eager
_RUNTIMES = ("torch", "onnx", "tensorrt")


def compare_with_targets(records: list[Record]) -> Iterator[Record]:
    """Yield a record for each figure: value, target and whether it is met, or which record is missing.

    Args:
        records: all records of one run.
    """
    yield _compare_reads(records)
    yield _compare_share(records)
    yield from _compare_peers(records)
    for shape, target in _SPEED_UPS.items():
        for runtime in _RUNTIMES:
            yield _compare_encoder(records, shape, runtime, target)


def _compare_reads(records: list[Record]) -> Record:
    """Return the time of a query over all float16 centroids, in reads of them at the rate of a copy."""
    name = "one query, in reads of all centroids at the speed of a copy"
    copy, stage = _find(records, what="copy"), _fastest(records, 1)
    if copy is None or stage is None:
        return _missing_figure(name, "copy and both stages")
    return _figure(name, _number(copy, "gb_s") / _number(stage, "gb_s"), _MAX_READS, at_most=True)


def _compare_share(records: list[Record]) -> Record:
    name = "both stages of a batch, share of the rate of a matrix product"
    product, stage = _find(records, what="matrix product"), _fastest(records, _largest_batch(records))
    if product is None or stage is None:
        return _missing_figure(name, "matrix product and both stages")
    return _figure(name, _number(stage, "tflop_s") / _number(product, "tflop_s"), _MIN_SHARE)


def _compare_peers(records: list[Record]) -> Iterator[Record]:
    """Yield the queries per second of a scan, relative to each other library."""
    for peer in (each for each in records if str(each.get("what")).startswith("peer ")):
        name = f"queries per second over those of {str(peer['what'])[5:]}"
        if "queries_s" not in peer:
            yield _missing_figure(name, str(peer["what"]))
            continue
        batch = cast("int", peer["batch"])
        ours = _fastest(records, batch)
        if ours:
            ratio = _number(ours, "queries_s") / _number(peer, "queries_s")
            yield {"what": "figure", "name": name, "batch": batch, "value": ratio}


def _compare_encoder(records: list[Record], shape: str, runtime: str, target: float) -> Record:
    name = f"{shape} with {runtime}, passages of 128 tokens, over torch in float16"
    rows = [
        _find(records, what="encoder", shape=shape, runtime=each, kind="passages") for each in (runtime, "eager")
    ]
    if rows[0] is None or rows[1] is None:
        return _missing_figure(name, f"encoder {runtime} and eager")
    return _figure(name, _number(rows[0], "tokens_s") / _number(rows[1], "tokens_s"), target)


def _fastest(records: list[Record], batch: int) -> Record | None:
    """Return the fastest record of float16, with or without kernels, with any aggregation."""
    same = {"what": "both stages", "batch": batch, "stored": "float16"}
    timings = [each for each in records if same.items() <= each.items() and "ms" in each]
    return min(timings, key=lambda each: _number(each, "ms"), default=None)


def _largest_batch(records: list[Record]) -> int:
    return max((cast("int", each["batch"]) for each in records if each.get("what") == "both stages"), default=0)


def _find(records: list[Record], **same: object) -> Record | None:
    matching = (each for each in records if same.items() <= each.items() and "ms" in each)
    return next(matching, None)


def _number(record: Record, name: str) -> float:
    return cast("float", record[name])


def _figure(name: str, value: float, target: float, *, at_most: bool = False) -> Record:
    met = value <= target if at_most else value >= target
    return {"what": "figure", "name": name, "value": value, "target": target, "met": met}


def _missing_figure(name: str, what: str) -> Record:
    return {"what": "figure", "name": name, "missing": f"no record of {what}"}


_SECONDS = 500  # for all parts
_GRACE_S = 5
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Attributes:
        function: ``module:function`` in `bench.gpu`, called with device, size and a folder that all parts share.
        seconds: time limit at the default of ``--seconds``, in proportion otherwise.
        checks: the checks that it makes: the beginnings of their names in the field "what".
    """

    function: str
    seconds: float
    checks: tuple[str, ...] = ()


PARTS = {
    "imports": Part("device:check_imports", 15, ("check import",)),
    "kernels": Part("checks:check_kernels", 35, tuple(f"check kernel {n}" for n in ("document", "pair", "score"))),
    "backends": Part("checks:check_backends", 115, ("check scan", "check lists", "check tests")),
    "engine": Part("engine:check_engine", 35, ("check bundled encoder", "check metric")),
    "memory": Part("memory:check_memory", 25, ("check budget", "check out of memory", "check closing")),
    "ceilings": Part("device:measure_ceilings", 15),
    "sizes": Part("sizes:measure_sizes", 70),
    "encoders": Part("encoders:measure_encoders", 60, ("check vectors",)),
    "flow": Part("end_to_end:measure_flow", 35, ("check queries stay", "check bad query", "check centroids")),
    "build": Part("engine:measure_build", 40, ("check build",)),
    "papers": Part("papers:measure_papers", 55, ("check two steps",)),
}
"""The parts by name, in the order in which they run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench gpu``."""
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, at a thousandth of the size")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to run (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="time limit for all parts (default: %(default)s)"
    )
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install first, for this run only")
    parser.add_argument("--commit", help="commit for the records; default: that of the checkout")
    add_out(parser, "gpu")


def run(args: argparse.Namespace, grace_s: float = _GRACE_S) -> int:
    """Check and measure, and print a line for each record; return 1 if anything failed or was left out, else 0.

    Args:
        args: see `add_arguments`.
        grace_s: seconds after the time limit of a part, before its process is killed.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        out = args.out or work / "gpu.jsonl"
        n_before = len(read_records(out))
        _set_path(work / "site", args.wheels)
        names = args.parts.split(",")
        for name in names:
            _run_part(name, args, out, work, started, grace_s)
        records = read_records(out)[n_before:]
        for record in _find_left_out(names, records):
            _write(record, out)
        for record in _compare(records):
            _write(record, out)
        print(f"all parts: {time.perf_counter() - started:.0f} s", flush=True)
        records = read_records(out)[n_before:]
    return int(any(map(is_bad, records)))


def is_bad(record: Record) -> bool:
    """Return whether a part failed, or a check failed, was left out, or could not be made."""
    is_check = str(record.get("what")).startswith("check")
    return "failed" in record or "left_out" in record or (is_check and record.get("sound") is not True)


def _set_path(site: Path, wheels: Path | None) -> None:
    """Install the wheels, and let the processes of the parts import them, quarry and bench."""
    if wheels is not None:
        options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site)]
        subprocess.run([*command, *map(str, sorted(wheels.glob("*.whl")))], check=True)
        sys.path.insert(0, str(site))
    paths = [site, _ROOT, _ROOT / ".links", _ROOT / "tests", os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, filter(None, paths)))


def _run_part(name: str, args: argparse.Namespace, out: Path, work: Path, started: float, grace_s: float) -> None:
    """Run one part in a new process, which is killed when its time is over."""
    part, about = PARTS[name], {"what": "part", "part": name}
    left = args.seconds - (time.perf_counter() - started)
    limit = left if args.dry_run else min(left, part.seconds * args.seconds / _SECONDS)
    print(f"part {name}: at most {limit:.0f} s, {left:.0f} s left", flush=True)
    if limit <= 0:
        _write({**about, "left_out": "out of time"}, out)
        return
    context = multiprocessing.get_context("forkserver")  # a process starts with torch imported, and without CUDA
    context.set_forkserver_preload(["torch"])
    process = context.Process(target=_run_here, args=(name, part, args, out, work, limit))
    before = time.perf_counter()
    process.start()
    process.join(limit + grace_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        _write({**about, "left_out": f"ended after {limit + grace_s:.0f} s"}, out)
    elif process.exitcode:
        _write({**about, "failed": f"ended with {process.exitcode}"}, out)
    _write({**about, "s": time.perf_counter() - before, "limit_s": limit}, out)


def _run_here(name: str, part: Part, args: argparse.Namespace, out: Path, work: Path, limit: float) -> None:
    """Run one part in this process."""
    deadline = time.perf_counter() + limit
    if args.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    import torch

    from bench.gpu.device import describe
    from bench.gpu.harness import guarded
    from bench.gpu.sizes import DRY, FULL

    if args.dry_run:
        torch.set_num_threads(1)  # tests run beside it
    place, size = torch.device("cpu" if args.dry_run else "cuda"), DRY if args.dry_run else FULL
    about = {"part": name, **describe(place), "size": asdict(size)}
    about["commit"] = args.commit or about["commit"]
    for record in guarded({"what": "part"}, partial(_measure, part, place, size, work), absent=()):
        _write(record, out, about)
        if time.perf_counter() > deadline:
            _write({"what": "part", "left_out": "out of time"}, out, about)
            return


def _measure(part: Part, *arguments: object) -> Iterator[Record]:
    module, _, function = part.function.partition(":")
    yield from getattr(import_module(f"bench.gpu.{module}"), function)(*arguments)


def _find_left_out(names: list[str], records: list[Record]) -> Iterator[Record]:
    """Yield a record for each check that no record reports."""
    for name in names:
        made = [str(each.get("what")) for each in records if each.get("part") == name and "sound" in each]
        for check in PARTS[name].checks:
            if not any(each.startswith(check) for each in made):
                yield {"what": check, "part": name, "left_out": "no such check was made"}


def _compare(records: list[Record]) -> Iterator[Record]:
    """Yield the figures with their targets; none without torch, whose absence is a failure of every part."""
    with suppress(ImportError):
        from bench.gpu.command import compare_with_targets

        yield from compare_with_targets(records)


def _write(record: Record, out: Path, about: Record | None = None) -> None:
    """Print a record and append it with the fields of `about`."""
    shown = {key: value for key, value in record.items() if key != "traceback"}
    print(" ".join(f"{key}={_format(value)}" for key, value in shown.items()), flush=True)
    if "traceback" in record:
        print(record["traceback"], file=sys.stderr, flush=True)
    append_record(out, {**record, **(about or {})})


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
