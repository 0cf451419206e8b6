"""Measures the export of an encoder and the start of its bundle: time, memory and first queries.

``python -m bench export CHECKPOINT`` exports a checkpoint in every precision and starts each bundle normally and,
for int8 and fp32, lean. Each export and each start runs in a new process; starts are medians of several. On a
machine with other load, processor times (``_cpu_s``) are more reliable than wall-clock times.
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

from bench.harness.fresh_process import in_fresh_process
from bench.harness.process_memory import private_bytes, resident_by_file, rss_bytes
from bench.harness.records import Record, add_out, append_result

__all__ = ["add_arguments", "export_checkpoint", "measure_starts", "open_graph", "run", "start_encoder"]

_STARTS = {"int8": (False, True), "fp32": (False, True), "fp16": (False,), "int8-weights": (False,)}
_N_STARTS = 7
_NOT_PRINTED = ("measurement", "resident_by_file", "parity", "retrieval")
_QUERY = "how do plants turn sunlight into sugar"  # 9 tokens with [CLS] and [SEP] in BERT's vocabulary
_N_WARM, _N_QUERIES = 20, 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench export``."""
    parser.add_argument("checkpoint", type=Path, help="a folder that `quarry export` can read")
    add_out(parser, "export")
    parser.add_argument("--precision", choices=_STARTS, action="append", help="only this one; may be repeated")


def run(args: argparse.Namespace) -> int:
    """Export, start, print a line for each kind of start and append the raw results."""
    with tempfile.TemporaryDirectory() as folder:
        for precision in args.precision or _STARTS:
            bundle = str(Path(folder) / precision)
            request = {"checkpoint": str(args.checkpoint.resolve()), "out": bundle, "precision": precision}
            exported = in_fresh_process("bench.system.export:export_checkpoint", request)
            for lean in _STARTS[precision]:
                parameters = {"bundle": bundle, "lean": lean}
                started = measure_starts("open_graph", parameters) | measure_starts("start_encoder", parameters)
                record = {"measurement": "export", "precision": precision, "lean": lean, **exported, **started}
                append_result(args.out, record)
                print(*(f"{key}={_format(value)}" for key, value in record.items() if key not in _NOT_PRINTED))
    return 0


def measure_starts(function: str, parameters: Mapping[str, object], n_starts: int = _N_STARTS) -> Record:
    """Run a function of this module in several new processes and return the medians of its numbers.

    Of values that are not floating-point numbers the last one is returned.
    """
    runs = [in_fresh_process(f"bench.system.export:{function}", parameters) for _ in range(n_starts)]
    return {
        name: statistics.median(cast("float", run[name]) for run in runs) if isinstance(value, float) else value
        for name, value in runs[-1].items()
    }


def export_checkpoint(parameters: Mapping[str, Any]) -> Record:
    """Export a checkpoint.

    Args:
        parameters: ``checkpoint``, ``out``, ``precision``.

    Returns:
        ``build_s`` (from the checkpoint to the graph in its precision, imports included) and ``export_s`` (the
        whole export with its comparisons), each also as ``_cpu_s``; the bundle's name, size and records.
    """
    started, started_cpu = time.perf_counter(), time.process_time()
    from quarry.exporters.checkpoint.checkpoint import read_checkpoint
    from quarry.exporters.export import export
    from quarry.exporters.graph.sources import open_graph_source
    from quarry.exporters.precision.variants import convert_encoder

    source = read_checkpoint(parameters["checkpoint"])
    convert_encoder(open_graph_source(source).build(), source.head, parameters["precision"])
    built, built_cpu = time.perf_counter(), time.process_time()
    bundle = export(parameters["checkpoint"], parameters["out"], parameters["precision"])
    settings = bundle.settings
    return {
        "encoder": settings.name,
        "build_s": built - started,
        "build_cpu_s": built_cpu - started_cpu,
        "export_s": time.perf_counter() - built,
        "export_cpu_s": time.process_time() - built_cpu,
        "graph_bytes": sum(file.n_bytes for name, file in bundle.files.items() if name.startswith("model.onnx")),
        "parity": None if settings.parity is None else asdict(settings.parity),
        "retrieval": None if settings.retrieval is None else asdict(settings.retrieval),
    }


def open_graph(parameters: Mapping[str, Any]) -> Record:
    """Open a session with a bundle's graph and nothing else.

    Args:
        parameters: ``bundle``, ``lean``.

    Returns:
        ``session_ms`` and ``session_cpu_s`` (the file's checksum included), and the memory of the process
        afterwards: ``session_rss_bytes``, the resident set, and ``session_private_bytes``, its part without a
            file.
    """
    from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime, open_session
    from quarry.formats.bundle.encoder import load_bundle

    import_onnxruntime()
    started, started_cpu = time.perf_counter(), time.process_time()
    bundle = load_bundle(parameters["bundle"])
    bundle.verify_graph("model.onnx")
    session = open_session(bundle.model_path, parameters["lean"])
    found: Record = {
        "session_ms": (time.perf_counter() - started) * 1e3,
        "session_cpu_s": time.process_time() - started_cpu,
        "session_rss_bytes": rss_bytes(),
        "session_private_bytes": private_bytes(),
    }
    del session
    return found


def start_encoder(parameters: Mapping[str, Any]) -> Record:
    """Open a bundle and encode queries on one thread.

    Args:
        parameters: ``bundle`` (None: the bundled encoder), ``lean``.

    Returns:
        ``import_ms`` (of the libraries), ``start_ms`` and ``start_cpu_s`` (from the bundle to the first query's
        vector, checksums included), ``query_p50_ms`` and ``query_p50_cpu_ms`` (one query, repeated), and memory in
        bytes: the resident set and its private part before the start (``libraries_``), after the first query
        (``start_``) and at the end; ``resident_by_file`` after the first query.
    """
    started = time.perf_counter()
    import tokenizers  # noqa: F401

    from quarry.engine.encoding.opening import open_encoder
    from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime

    import_onnxruntime()
    import_ms = (time.perf_counter() - started) * 1e3
    memory: Record = {"libraries_rss_bytes": rss_bytes(), "libraries_private_bytes": private_bytes()}
    started, started_cpu = time.perf_counter(), time.process_time()
    encoder = open_encoder(parameters["bundle"], lean=parameters["lean"])
    encoder.encode_query(_QUERY)
    start_ms, start_cpu_s = (time.perf_counter() - started) * 1e3, time.process_time() - started_cpu
    memory |= {"start_rss_bytes": rss_bytes(), "start_private_bytes": private_bytes()}
    memory["resident_by_file"] = resident_by_file()
    from bench.harness.latency import time_in_turn  # imports more libraries

    timing = time_in_turn({"query": encoder.encode_query}, [_QUERY] * (_N_WARM + _N_QUERIES))["query"]
    return {
        "import_ms": import_ms,
        "start_ms": start_ms,
        "start_cpu_s": start_cpu_s,
        "query_p50_ms": statistics.median(timing.wall_ms[_N_WARM:].tolist()),
        "query_p50_cpu_ms": statistics.median(timing.cpu_ms[_N_WARM:].tolist()),
        **memory,
        "private_bytes": private_bytes(),
    }


def _format(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
