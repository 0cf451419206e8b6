"""Measures the export of an encoder and the start of its bundle: time, memory and first queries.

``python -m bench export CHECKPOINT`` exports a checkpoint in every precision and starts each bundle as it is and,
where it can be, lean. Each export and each start is a process of its own, starts are medians of several; a line
for each start is appended to the results, with an account of the memory by what backs it. Where other work shares
the processors, ``_cpu_s`` says more than times on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from bench.harness.environment import circumstances
from bench.harness.fresh_process import in_fresh_process
from bench.harness.records import add_out, append_record

__all__ = ["add_arguments", "exported", "run"]

_STARTS = {"int8": (False, True), "fp32": (False, True), "fp16": (False,), "int8-weights": (False,)}
_N_STARTS = 7
_UNPRINTED = ("measurement", "resident_by_file", "parity", "retrieval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench export``."""
    parser.add_argument("checkpoint", type=Path, help="a folder that `quarry export` takes")
    add_out(parser, "export")
    parser.add_argument("--precision", choices=_STARTS, action="append", help="only this one; may be repeated")


def run(args: argparse.Namespace) -> int:
    """Run ``python -m bench export``; return the exit status."""
    known = circumstances()
    checkpoint = str(args.checkpoint.resolve())
    with tempfile.TemporaryDirectory() as folder:
        for precision in args.precision or _STARTS:
            bundle = str(Path(folder) / precision)
            asked = {"checkpoint": checkpoint, "out": bundle, "precision": precision}
            made = in_fresh_process("bench.system.export:exported", asked)
            for lean in _STARTS[precision]:
                opened = {"bundle": bundle, "lean": lean}
                found = _started("bench.system.encoder_start:session", opened) | _started(
                    "bench.system.encoder_start:query", opened
                )
                record = {"measurement": "export", "precision": precision, "lean": lean, **made, **found}
                append_record(args.out, {**record, **known})
                print(*(f"{key}={_short(value)}" for key, value in record.items() if key not in _UNPRINTED))
    return 0


def exported(parameters: Mapping[str, Any]) -> dict[str, object]:
    """Export a checkpoint.

    Args:
        parameters: ``checkpoint``, ``out``, ``precision``.

    Returns:
        ``build_s`` (checkpoint to graph in its precision, imports included) and ``export_s`` (all of it: written,
        compared with fp32, its effect on a ranking measured), each also as ``_cpu_s``; the bundle's name, size and
        records.
    """
    started_s = time.perf_counter()
    from quarry.exporters.checkpoint.checkpoint import read_checkpoint
    from quarry.exporters.export import export
    from quarry.exporters.graph.sources import open_graph_source
    from quarry.exporters.precision.variants import encoder_variant

    source = read_checkpoint(parameters["checkpoint"])
    encoder_variant(open_graph_source(source).build(), source.head, parameters["precision"])
    build_s, build_cpu_s = time.perf_counter() - started_s, time.process_time()
    started_s = time.perf_counter()
    bundle = export(parameters["checkpoint"], parameters["out"], parameters["precision"])
    export_s = time.perf_counter() - started_s
    settings = bundle.settings
    return {
        "encoder": settings.name,
        "build_s": build_s,
        "build_cpu_s": build_cpu_s,
        "export_s": export_s,
        "export_cpu_s": time.process_time() - build_cpu_s,
        "graph_bytes": sum(file.n_bytes for name, file in bundle.files.items() if name.startswith("model.onnx")),
        "parity": None if settings.parity is None else asdict(settings.parity),
        "retrieval": None if settings.retrieval is None else asdict(settings.retrieval),
    }


def _started(target: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Medians over several processes; of what is no number, the last one's."""
    runs = [in_fresh_process(target, parameters) for _ in range(_N_STARTS)]
    return {
        name: statistics.median(cast("float", run[name]) for run in runs) if isinstance(value, float) else value
        for name, value in runs[-1].items()
    }


def _short(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
