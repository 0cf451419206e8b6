"""Measures what Quarry needs on small machines: ``python -m bench small``.

Each step is a process of its own in a memory control group with a limit, of version 1 or 2, which takes the right
to make one. ``texts`` builds 1,000 documents of 40 words with the lean encoder, and searches them 60 times;
``vectors`` builds 100,000 with a vector of 384 numbers each, of which codes alone are stored; ``opened`` opens
that index, and ``searched`` asks it 60 queries by words and 60 by vectors. A step that the system ends is recorded
as failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import quarry
from bench.harness.fresh_process import ProcessFailed, in_fresh_process, peak_rss_bytes, private_bytes
from bench.harness.records import Record, add_out, append_result
from quarry.engine.bundled.stdlib_docstrings import stdlib_documents

__all__ = ["add_arguments", "measure_step", "run"]

_GROUPS = Path("/sys/fs/cgroup")
_DIM = 384
_N_WORDS = 40
_N_QUERIES = 60
_VECTORS_AT_ONCE = 1000
_LIMITS_MB = {"texts": (256,), "vectors": (256, 512), "opened": (256,), "searched": (256,)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench small``."""
    parser.add_argument("--texts", type=int, default=1000, help="documents that are encoded (1000)")
    parser.add_argument("--vectors", type=int, default=100_000, help="documents that come with vectors (100000)")
    add_out(parser, "small")


def run(args: argparse.Namespace) -> int:
    """Measure all steps and append the raw results."""
    with tempfile.TemporaryDirectory() as folder:
        for step, limits in _LIMITS_MB.items():
            for limit in limits:
                parameters = {
                    "step": step,
                    "n": args.texts if step == "texts" else args.vectors,
                    "path": f"{folder}/{'texts' if step == 'texts' else 'vectors'}",
                }
                record = {"step": step, "limit_mb": limit, **_measure_limited(parameters, limit, Path(folder))}
                print(record, flush=True)
                append_result(args.out, record)
    return 0


def measure_step(parameters: Mapping[str, object]) -> Record:
    """Do one step in this process.

    Args:
        parameters: ``step``, ``n`` (number of documents) and ``path`` (folder of the index).

    Returns:
        n, wall_s, disk_mb of the index, and after each part of the step, as build and search, the peak of this
        process so far and its private memory, both in 10^6 bytes.
    """
    started, path, n = time.perf_counter(), Path(str(parameters["path"])), int(str(parameters["n"]))
    parts = {part: _memory() for part in _STEPS[str(parameters["step"])](path, n)}
    disk = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return {"n": n, "wall_s": time.perf_counter() - started, "disk_mb": disk / 1e6, **parts}


def _memory() -> dict[str, float]:
    return {"peak_mb": peak_rss_bytes() / 1e6, "private_mb": private_bytes() / 1e6}


def _texts(path: Path, n: int) -> Iterator[str]:
    encoder = quarry.open_encoder(lean=True)
    quarry.build(_passages(n), path, encoder=encoder, threads=1)
    yield "built"
    with quarry.Engine.open(path, encoder=encoder, threads=1, memory="20MB") as index:
        for query in _queries():
            index.search(query)
        yield "searched"


def _vectors(path: Path, n: int) -> Iterator[str]:
    rows = (row for first in range(0, n, _VECTORS_AT_ONCE) for row in _rows(first))
    documents = ({"text": text, "vectors": next(rows)} for text in _passages(n))
    quarry.build(documents, path, dim=_DIM, centroids="none", threads=1, overwrite=True)
    yield "built"


def _opened(path: Path, n: int) -> Iterator[str]:
    with quarry.Engine.open(path, threads=1, memory="20MB") as index:
        assert len(index) == n
        yield "opened"


def _searched(path: Path, n: int) -> Iterator[str]:
    with quarry.Engine.open(path, threads=1, memory="20MB") as index:
        for query in _queries():
            index.search(query, mode="lexical")
        for row in _rows(n)[:_N_QUERIES]:
            index.search_vectors(row[np.newaxis])
        yield "searched"


_STEPS: Mapping[str, Callable[[Path, int], Iterator[str]]] = {
    "texts": _texts,
    "vectors": _vectors,
    "opened": _opened,
    "searched": _searched,
}
"""By name, what yields the name of each part when that is done."""


def _passages(n: int) -> Iterator[str]:
    """Yield texts of words of the standard library, each of which is as frequent as there."""
    words = [
        word for document in stdlib_documents(["argparse", "subprocess"]) for word in document["text"].split()
    ]
    generator = np.random.default_rng(0)
    return (" ".join(words[each] for each in generator.integers(0, len(words), _N_WORDS)) for _ in range(n))


def _queries() -> list[str]:
    return [" ".join(text.split()[:5]) for text in _passages(_N_QUERIES)]


def _rows(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return vectors around random centers, which differ by the seed, (1000, 384) float32."""
    centers = np.random.default_rng(0).standard_normal((_VECTORS_AT_ONCE, _DIM), np.float32)
    return centers + np.random.default_rng(seed).standard_normal(centers.shape, np.float32)


def _measure_limited(parameters: Mapping[str, object], limit_mb: int, folder: Path) -> Record:
    """Do one step in a process in a control group of its own."""
    with _limited_group(limit_mb * 1_000_000) as group:
        python = folder / "python"  # joins the group before it starts the interpreter
        python.write_text(f'#!/bin/sh\necho $$ >"{group}/cgroup.procs"\nexec "{sys.executable}" "$@"\n', "utf-8")
        python.chmod(0o700)
        try:
            return in_fresh_process("bench.system.small:measure_step", parameters, python)
        except ProcessFailed as error:
            peaks = (group / "memory.peak", group / "memory.max_usage_in_bytes")
            peak = next(int(each.read_text("ascii")) for each in peaks if each.exists())
            return {"failed": str(error).partition("\n")[0], "group_peak_mb": peak / 1e6}


@contextmanager
def _limited_group(n_bytes: int) -> Iterator[Path]:
    """Make a control group that may use so much memory, pages of files included."""
    top = _GROUPS / "memory"
    is_first = top.is_dir()  # version 1 has a hierarchy for each resource
    group = (top if is_first else _GROUPS) / f"quarry-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(n_bytes), "ascii")
        yield group
    finally:
        group.rmdir()
