"""What exporting an encoder takes, and what a bundle takes to start: time, memory and the first queries.

``python -m bench export CHECKPOINT`` exports a checkpoint in every precision, with weights inside the graph and in
a file of their own. Each export and each start is a process of its own; a line for each bundle is appended to the
results. Where other work shares the processors, ``_cpu_s`` says more than times on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.circumstances import circumstances
from bench.fresh_process import in_fresh_process
from bench.process_memory import private_bytes, rss_bytes
from bench.records import append_record

__all__ = ["add_arguments", "exported", "run", "started"]

_RESULTS = Path(__file__).parent / "results" / "export.jsonl"
_PRECISIONS = ("int8", "fp32", "fp16", "int8-weights")
_QUERY = "how do plants turn sunlight into sugar"  # 12 tokens with [CLS] and [SEP] for BERT's vocabulary
_N_WARM, _N_QUERIES = 20, 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench export``."""
    parser.add_argument("checkpoint", type=Path, help="a folder that `quarry export` takes")
    parser.add_argument(
        "--out", type=Path, default=_RESULTS, help="JSON lines to append to (default: %(default)s)"
    )
    parser.add_argument("--precision", choices=_PRECISIONS, action="append", help="only this one; may be repeated")


def run(args: argparse.Namespace) -> int:
    """Run ``python -m bench export``; return the exit status."""
    known = circumstances()
    with tempfile.TemporaryDirectory() as folder:
        for precision in args.precision or _PRECISIONS:
            for external in (False, True):
                target = str(Path(folder) / f"{precision}-{external}")
                asked = {"precision": precision, "external_data": external}
                checkpoint = str(args.checkpoint.resolve())
                made = in_fresh_process(
                    "bench.export:exported", {"checkpoint": checkpoint, "out": target, **asked}
                )
                found = in_fresh_process("bench.export:started", {"bundle": target})
                record = {"measurement": "export", **asked, **made, **found}
                append_record(args.out, {**record, **known})
                print(*(f"{key}={_short(value)}" for key, value in record.items() if key != "measurement"))
    return 0


def exported(parameters: Mapping[str, Any]) -> dict[str, object]:
    """Export a checkpoint.

    Args:
        parameters: ``checkpoint``, ``out``, ``precision``, ``external_data``.

    Returns:
        ``build_s`` (checkpoint to graph in its precision, imports included) and ``export_s`` (all of it: written,
        compared with fp32, its effect on a ranking measured), each also as ``_cpu_s``; the bundle's name, size and
        records.
    """
    started_s = time.perf_counter()
    from exporters.checkpoint import read_checkpoint
    from exporters.roads import open_road
    from exporters.to_onnx import export
    from exporters.variants import encoder_variant

    source = read_checkpoint(parameters["checkpoint"])
    encoder_variant(open_road(source, "auto").backbone(), source.head, parameters["precision"])
    build_s, build_cpu_s = time.perf_counter() - started_s, time.process_time()
    started_s = time.perf_counter()
    external = parameters["external_data"]
    bundle = export(parameters["checkpoint"], parameters["out"], parameters["precision"], external_data=external)
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


def started(parameters: Mapping[str, Any]) -> dict[str, object]:
    """Start a bundle and ask it, on one thread.

    Args:
        parameters: ``bundle``.

    Returns:
        ``start_ms`` and ``start_cpu_s`` (bundle to the first query's vector, the file checked, libraries imported
        before), ``query_p50_ms`` (the same query again and again), and memory in bytes: the resident set and its
        private part, before (libraries only), after the first query, and in the end.
    """
    import numpy as np
    import tokenizers

    from engine.encoder import open_encoder
    from engine.onnx_session import import_onnxruntime

    del np, tokenizers
    import_onnxruntime()
    memory = {"libraries_rss_bytes": rss_bytes(), "libraries_private_bytes": private_bytes()}
    before, before_cpu = time.perf_counter(), time.process_time()
    encoder = open_encoder(parameters["bundle"])
    encoder.encode_query(_QUERY)
    start_ms, start_cpu_s = (time.perf_counter() - before) * 1e3, time.process_time() - before_cpu
    memory |= {"start_rss_bytes": rss_bytes(), "start_private_bytes": private_bytes()}
    times = []
    for _ in range(_N_WARM + _N_QUERIES):
        before = time.perf_counter()
        encoder.encode_query(_QUERY)
        times.append(time.perf_counter() - before)
    p50_ms = statistics.median(times[_N_WARM:]) * 1e3
    return {
        "start_ms": start_ms,
        "start_cpu_s": start_cpu_s,
        "query_p50_ms": p50_ms,
        **memory,
        "private_bytes": private_bytes(),
    }


def _short(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
