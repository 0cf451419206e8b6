"""Starts of an encoder, each in a process of its own that imports nothing else (`bench.harness.fresh_process`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.harness.process_memory import private_bytes, resident_by_file, rss_bytes

__all__ = ["query", "session"]

_QUERY = "how do plants turn sunlight into sugar"  # 12 tokens with [CLS] and [SEP] for BERT's vocabulary
_N_WARM, _N_QUERIES = 20, 300


def session(parameters: Mapping[str, Any]) -> dict[str, object]:
    """Make a session of a bundle's graph and nothing else.

    Args:
        parameters: ``bundle``, ``lean``.

    Returns:
        ``session_ms`` and ``session_cpu_s`` (the file checked), and memory of the process in bytes after it:
        ``session_rss_bytes``, all that is resident, and ``session_private_bytes``, what no file backs.
    """
    from quarry.engine.encoding.onnx_session import import_onnxruntime, open_session
    from quarry.formats.bundle.encoder import load_bundle

    import_onnxruntime()
    before, before_cpu = time.perf_counter(), time.process_time()
    bundle = load_bundle(parameters["bundle"])
    bundle.verify_graph("model.onnx")
    made = open_session(bundle.model_path, parameters["lean"])
    times = {
        "session_ms": (time.perf_counter() - before) * 1e3,
        "session_cpu_s": time.process_time() - before_cpu,
    }
    found = {"session_rss_bytes": rss_bytes(), "session_private_bytes": private_bytes()}
    del made
    return {**times, **found}


def query(parameters: Mapping[str, Any]) -> dict[str, object]:
    """Start a bundle and ask it, on one thread.

    Args:
        parameters: ``bundle``, ``lean``.

    Returns:
        ``start_ms`` and ``start_cpu_s`` (bundle to the first query's vector, the files checked, libraries imported
        before), ``query_p50_ms`` and ``query_p50_cpu_ms`` (the same query again and again), and memory in bytes:
        the resident set and its private part, before (libraries only), after the first query, and in the end;
        ``resident_by_file`` after the first query.
    """
    import numpy as np
    import tokenizers

    from quarry.engine.encoding.encoder import open_encoder
    from quarry.engine.encoding.onnx_session import import_onnxruntime

    del np, tokenizers
    import_onnxruntime()
    memory: dict[str, object] = {"libraries_rss_bytes": rss_bytes(), "libraries_private_bytes": private_bytes()}
    before, before_cpu = time.perf_counter(), time.process_time()
    encoder = open_encoder(parameters["bundle"], lean=parameters["lean"])
    encoder.encode_query(_QUERY)
    start_ms, start_cpu_s = (time.perf_counter() - before) * 1e3, time.process_time() - before_cpu
    memory |= {"start_rss_bytes": rss_bytes(), "start_private_bytes": private_bytes()}
    memory["resident_by_file"] = resident_by_file()
    return {
        "start_ms": start_ms,
        "start_cpu_s": start_cpu_s,
        **_p50(lambda: encoder.encode_query(_QUERY)),
        **memory,
        "private_bytes": private_bytes(),
    }


def _p50(ask: Callable[[], object]) -> dict[str, object]:
    """The median on the clock, and that of this thread's work, which does it all."""
    times, works = [], []
    for _ in range(_N_WARM + _N_QUERIES):
        before, before_cpu = time.perf_counter(), time.thread_time()
        ask()
        works.append(time.thread_time() - before_cpu)
        times.append(time.perf_counter() - before)
    middle = _N_QUERIES // 2
    return {
        "query_p50_ms": sorted(times[_N_WARM:])[middle] * 1e3,
        "query_p50_cpu_ms": sorted(works[_N_WARM:])[middle] * 1e3,
    }
