"""Curves over the number of vectors: build, open, first query, latency at a recall of .99, resident memory.

``python -m bench scale_curve`` builds an index of each size with each library, of the vectors of
`bench.data.vector_stream` and, for Quarry, eight words of text each, and searches it: one step for each, in a
process of its own. The result of a step is appended to the raw results as soon as it is known, and a step whose
result is there is not done again, so a run that was stopped is continued by the same command. A step that takes
longer than ``--limit`` is stopped and recorded as failed; a library that needs more memory than there is, is left
out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data.vector_stream import VectorStream, find_nearest
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.latency import summarize_ms
from bench.harness.process_memory import peak_rss_bytes, private_bytes, reset_peak_rss, rss_bytes
from bench.harness.records import Record, add_out, append_result, read_records
from bench.peers.scale_engines import ENGINES, Quarry, ScaleEngine, make_texts

__all__ = ["add_arguments", "build_step", "run", "search_step"]

_SIZES = (100_000, 1_000_000, 4_000_000, 10_000_000)
_RECALL = 0.99
_K = 10
_MEMORY_SHARE = 0.9
_QUERY_TEXTS = 1 << 40  # the number of a row that no index has


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench scale_curve``."""
    names = ", ".join(ENGINES)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(_SIZES), help="numbers of vectors")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), help=names)
    parser.add_argument("--base", type=Path, help="index whose centroids the vectors are made of (synthetic)")
    parser.add_argument("--dim", type=int, default=384, help="length of synthetic vectors (384)")
    parser.add_argument("--queries", type=int, default=200, help="number of queries (200)")
    parser.add_argument("--limit", type=int, default=7200, help="seconds for a step (7200)")
    parser.add_argument(
        "--folder", type=Path, default=Path(".cache/scale_curve"), help="of indexes and checkpoints"
    )
    parser.add_argument("--keep", action="store_true", help="keep the indexes")
    add_out(parser, "scale_curve")


def run(args: argparse.Namespace) -> int:
    """Do the steps that are not done yet, size by size, and print each result."""
    folder = args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    base = str(args.base.absolute()) if args.base else ""
    common = {"base": base, "dim": args.dim, "n_queries": args.queries}
    done = {_key(record): record for record in read_records(args.out)}
    for size in sorted(args.sizes):
        for engine in args.engines:
            step: Record = {"engine": engine, "n": size, **common}
            if _key(step) in done:
                continue
            if ENGINES[engine]().bytes_per_row * size > _MEMORY_SHARE * _memory_bytes():
                result: Record = {"left_out": "needs more memory than there is"}
            else:
                truth = _find_truth(folder, args, size)
                result = _measure({**step, "folder": str(folder / f"{engine}-{size}"), "truth": str(truth)}, args)
            append_result(args.out, {**step, **result})
            print(engine, size, result, flush=True)
    return 0


def _key(record: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(record.get(name) for name in ("engine", "n", "base", "dim", "n_queries"))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _find_truth(folder: Path, args: argparse.Namespace, size: int) -> Path:
    """Return the file with the rows nearest to the queries, made once for all sizes."""
    name = f"truth-{args.base.name if args.base else 'synthetic'}-{args.dim}-{args.queries}"
    wanted = folder / f"{name}-{size}.npy"
    if not wanted.exists():
        stream = VectorStream(args.base, args.dim)
        for found, rows in find_nearest(stream, args.sizes, stream.queries(args.queries), _K):
            np.save(folder / f"{name}-{found}.npy", rows)
    return wanted


def _measure(step: Record, args: argparse.Namespace) -> Record:
    """Build and search in processes of their own."""
    folder, result = Path(str(step["folder"])), Record()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for target in ("build_step", "search_step"):
            result |= in_fresh_process(f"bench.peers.scale_curve:{target}", step, timeout_s=args.limit)
    except ProcessFailed as error:
        result["failed"] = str(error)[-500:]
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def build_step(parameters: Mapping[str, object]) -> dict[str, object]:
    """Build an index in this process.

    Returns:
        build_s (the time of making vectors and texts included), build_cpu_s, making_cpu_s (the part of it that
        making the vectors takes), build_peak_bytes (less what was held before) and disk_bytes.
    """
    stream, n, folder = _stream(parameters), int(str(parameters["n"])), Path(str(parameters["folder"]))
    engine = _imported(parameters)
    reset_peak_rss()
    held, cpu = rss_bytes(), time.process_time()
    for _ in stream.blocks(min(n, 1 << 17)):
        pass
    making = (time.process_time() - cpu) * n / min(n, 1 << 17)
    started, cpu = time.perf_counter(), time.process_time()
    engine.build(folder, stream, n)
    return {
        "build_s": time.perf_counter() - started,
        "build_cpu_s": time.process_time() - cpu,
        "making_cpu_s": making,
        "build_peak_bytes": peak_rss_bytes() - held,
        "disk_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    }


def search_step(parameters: Mapping[str, object]) -> dict[str, object]:
    """Open an index in this process and search it.

    Returns:
        open_ms, first_ms (first search), default_recall and default_p50_ms (first setting, after a search for each
        query that is not measured: parts of files are checked when they are first read), the least p50 of a
        setting with a recall of .99 with its name and recall, hybrid_p50_ms (of one search for each text), and
        rss_bytes and private_bytes after all searches, less what was held before. Beside each p50 is the mean CPU
        time of a search: if other programs use the cores, a search of 2 ms waits for several more.
    """
    queries = _stream(parameters).queries(int(str(parameters["n_queries"])))
    truth = np.load(str(parameters["truth"]))
    engine = _imported(parameters)
    held, held_private, started = rss_bytes(), private_bytes(), time.perf_counter()
    engine.open(Path(str(parameters["folder"])))
    result: dict[str, object] = {"open_ms": (time.perf_counter() - started) * 1e3}
    best = float("inf")
    for number, setting in enumerate(engine.settings()):
        if not number:
            started = time.perf_counter()
            setting.find(queries[0])
            result["first_ms"] = (time.perf_counter() - started) * 1e3
            for query in queries:  # so that what is read and checked once is not counted
                setting.find(query)
        times, n_found, cpu = [], 0, time.process_time()
        for query, rows in zip(queries, truth, strict=True):
            started = time.perf_counter()
            found = setting.find(query)
            times.append(time.perf_counter() - started)
            n_found += len(set(found) & set(map(str, rows.tolist())))
        recall, p50 = n_found / truth.size, summarize_ms(times)["p50_ms"]
        cpu_ms = (time.process_time() - cpu) * 1e3 / len(times)
        if not number:
            result |= {"default_setting": setting.name, "default_recall": recall}
            result |= {"default_p50_ms": p50, "default_cpu_ms": cpu_ms}
        if recall >= _RECALL and p50 < best:
            best = p50
            result |= {"setting": setting.name, "recall": recall, "p50_ms": p50, "cpu_ms": cpu_ms}
    if isinstance(engine, Quarry):
        result |= _measure_hybrid(engine, queries)
    return result | {"rss_bytes": rss_bytes() - held, "private_bytes": private_bytes() - held_private}


def _measure_hybrid(engine: Quarry, queries: npt.NDArray[np.float32]) -> dict[str, float]:
    times: list[float] = []
    cpu = time.process_time()
    for text, query in zip(make_texts(_QUERY_TEXTS, len(queries)), queries, strict=True):
        started = time.perf_counter()
        engine.find_hybrid(" ".join(text.split()[:3]), query)
        times.append(time.perf_counter() - started)
    cpu_ms = (time.process_time() - cpu) * 1e3 / len(times)
    return {**summarize_ms(times, "hybrid_"), "hybrid_cpu_ms": cpu_ms}


def _imported(parameters: Mapping[str, object]) -> ScaleEngine:
    """Return the library of a step, imported."""
    engine = ENGINES[str(parameters["engine"])]()
    for module in engine.imports:
        import_module(module)
    return engine


def _stream(parameters: Mapping[str, object]) -> VectorStream:
    base = str(parameters["base"])
    return VectorStream(Path(base) if base else None, int(str(parameters["dim"])))
