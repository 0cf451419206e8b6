"""Compares kernels with torch, and the GPU backend with numpy in float64 and with the oracle of its tests.

On a device, cases run in processes at once, each of which compiles the kernels that it needs and no others.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from logging.handlers import BufferingHandler
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, list_kernel_settings, open_backend
from bench.gpu.sizes import Size, make_queries
from bench.gpu.synthetic import SyntheticTable, make_quantizer, make_segment
from bench.harness.records import Record
from quarry.engine.backends.protocol import Candidates, ScoredCandidates, SearchParameters
from quarry.engine.gpu import kernel_check
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["check_backends", "check_kernels"]

_DIM = 96
_N_DOCS = 2000
_N_HITS, _N_CANDIDATES = 10, 50
_ERROR = 1e-5  # of a final score, for vectors and queries of length 1
_ROUNDING = 1e-4  # of a sum of table entries
_CODE_ERROR = 1e-5  # of a final score of codes, whose norm is about ten times the query's
_INTERPRETED_DOCS = 12  # for Triton's interpreter, which is slow
_N_PROCESSES = 12
_TESTS = ("contract/test_backends.py", "differential/test_short_codes.py", "contract/test_odd_vectors.py")
_DRY_TESTS = "test_one_document and gpu-float16"
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def check_kernels(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield for each Triton kernel whether it agrees with torch, and what it takes of the device."""
    del size, work
    yield from _run_all(place, [partial(_check_kernel, place, name) for name in kernel_check.KERNELS])


def _check_kernel(place: torch.device, name: str) -> Iterator[Record]:
    kernels = import_module("quarry.engine.gpu.kernels")
    n_docs = {} if place.type == "cuda" else {"n_docs": _INTERPRETED_DOCS}
    handler = BufferingHandler(capacity=100)
    logging.getLogger(kernel_check.__name__).addHandler(handler)
    sound = kernel_check.is_sound(name, kernels, place, **n_docs)
    yield {"what": f"check kernel {name}", "sound": sound, "log": [each.getMessage() for each in handler.buffer]}
    if place.type == "cuda":
        absent = (AttributeError, TypeError, ValueError)  # where Triton keeps them is not documented
        yield from guarded({"what": "registers", "name": name}, partial(_count_registers, kernels), absent)


def _count_registers(kernels: ModuleType) -> Iterator[Record]:
    """Yield the registers and spilled registers of each variant that was compiled in this process."""
    for kernel in (import_module(kernels.document_scores.__module__)._document_kernel, kernels._pair_kernel):
        for variants, *_ in kernel.device_caches.values():
            for each in variants.values():
                yield {"kernel": each.name, "registers": each.n_regs, "spilled": each.n_spills}


def check_backends(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield a record for each check; the field "sound" says whether it passed."""
    cases: list[Callable[[], Iterator[Record]]] = []
    for kernels in list_kernel_settings(place):
        for kind in ("int8", "float16"):
            for beta in (None, 8.0):
                masks = (beta is None,) if size.is_dry else (False, True)
                cases += [partial(_check_scan, place, size, kind, beta, masked, kernels) for masked in masks]
        cases += [partial(_check_lists, place, size, nbits, kernels) for nbits in (4, 8)]
    yield from _run_all(place, cases)
    for name in _TESTS[: 1 if size.is_dry else None]:
        yield from guarded({"what": "check tests", "name": name}, partial(_run_tests, place, name, work))


def _run_all(place: torch.device, cases: list[Callable[[], Iterator[Record]]]) -> Iterator[Record]:
    """Yield the records of all cases, on a CUDA device from processes that run at once."""
    if place.type == "cpu":
        for case in cases:
            yield from guarded({"what": "check"}, case)
        return
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(_N_PROCESSES, context) as pool:
        for future in [pool.submit(_collect, case) for case in cases]:
            yield from guarded({"what": "check"}, future.result)


def _collect(case: Callable[[], Iterator[Record]]) -> list[Record]:
    return list(guarded({"what": "check"}, case))


def _run_tests(place: torch.device, name: str, work: Path) -> Iterator[Record]:
    """Run the tests of a file that are for the backend, with the device in place of torch's CPU device."""
    import pytest

    os.environ["QUARRY_TEST_DEVICE"] = str(place)
    counts = _Counts()
    root = Path(__file__).resolve().parents[2]
    chosen, processes = ("gpu", _N_PROCESSES) if place.type == "cuda" else (_DRY_TESTS, 0)
    options = ["-q", "-n", str(processes), "-k", chosen, "-W", "ignore", "-p", "no:cacheprovider"]
    where = ["--rootdir", str(root), "-c", str(root / "pyproject.toml"), "--basetemp", str(work / "tests")]
    status = pytest.main([*options, *where, str(root / "tests" / name)], plugins=[counts])
    sound = status == 0 and counts.passed > 0 and not counts.skipped
    yield {"passed": counts.passed, "failed_tests": counts.failed, "skipped": counts.skipped, "sound": sound}


class _Counts:
    """A plugin of pytest that counts outcomes."""

    def __init__(self) -> None:
        self.passed, self.skipped = 0, 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:  # noqa: ANN401
        """Count a phase of a test."""
        self.passed += report.passed and report.when == "call"
        self.skipped += report.skipped
        if report.failed:
            self.failed.append(report.nodeid)


def _document_lengths(size: Size) -> npt.NDArray[np.int64]:
    """Return lengths that need three variants of a kernel: 1, 3 or 4, and more than fit into a tile."""
    odd = [1, 1, 500, 128, 129, 256, 257]
    return np.array(
        [*odd, *np.random.default_rng(0).integers(3, 5, size.count(_N_DOCS, 100) - len(odd)).tolist()], np.int64
    )


def _compute_scores(
    vectors: Floats, offsets: npt.NDArray[np.int64], queries: Floats, beta: float | None
) -> Floats:
    """Return the expected aggregated scores, (n_queries, n_docs)."""
    scores = queries @ vectors.T
    best: Floats = np.maximum.reduceat(scores, offsets[:-1], axis=1)
    if beta is None:
        return best
    weights = np.exp(beta * (scores - np.repeat(best, np.diff(offsets), axis=1)))
    total = np.add.reduceat(weights * scores, offsets[:-1], axis=1)
    aggregated: Floats = total / np.add.reduceat(weights, offsets[:-1], axis=1)
    return aggregated


def _check_scan(
    place: torch.device, size: Size, kind: str, beta: float | None, masked: bool, kernels: bool
) -> Iterator[Record]:
    """Yield for each batch whether all documents' best are found, with the right scores and bounds."""
    table = SyntheticTable(_document_lengths(size), _DIM, kind)
    queries = make_queries(max(size.checked_batches), _DIM)
    allowed = np.random.default_rng(1).random(len(table.offsets) - 1) < 0.7 if masked else None
    about: Record = {"stored": kind, "kernels": kernels, "beta": beta, "masked": masked}
    backend = open_backend(place, make_segment(table), kernels=kernels)
    expected = _compute_scores(table.vectors(0, table.n_rows), table.offsets, queries.astype(np.float64), beta)
    possible = expected if allowed is None else np.where(allowed, expected, -np.inf)
    parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, allowed, beta)
    for batch in size.checked_batches:
        sound, error = _compare(backend.candidates(queries[:batch], parameters), possible[:batch])
        yield {"what": "check scan", **about, "batch": batch, "sound": sound, "error": error}


def _compare(answers: list[Candidates], expected: Floats) -> tuple[bool, float]:
    """Return whether candidates, upper bound and scores are right, and the largest error of a score."""
    sound, error = len(answers) == len(expected), 0.0
    for each, scores in zip(answers, expected, strict=True):
        assert isinstance(each, ScoredCandidates)
        best = np.argsort(-scores)[:_N_HITS]
        left_out = np.delete(scores, each.docs)
        sound = sound and len(set(each.docs.tolist())) == _N_CANDIDATES and bool(np.isin(best, each.docs).all())
        sound = sound and bool(left_out.max() <= each.upper_bound)
        error = max(error, float(np.abs(each.scores - scores[each.docs]).max()))
    return sound and error <= _ERROR, error


def _check_lists(place: torch.device, size: Size, nbits: int, kernels: bool) -> Iterator[Record]:
    """Probe all lists and compare documents and final scores with those of decoded vectors in float64."""
    table = SyntheticTable(_document_lengths(size), _DIM, "none")
    quantizer = make_quantizer(_DIM, 16, 12, nbits)
    segment = make_segment(table, quantizer)
    backend = open_backend(place, segment, kernels=kernels)
    queries = make_queries(7, _DIM)
    decoded, wide = _decode(segment, quantizer), queries.astype(np.float64)
    best = _compute_scores(decoded, table.offsets, wide, None)
    for beta in (None, 8.0):
        expected = _compute_scores(decoded, table.offsets, wide, beta)
        candidates = backend.candidates(queries, SearchParameters(_N_HITS, _N_CANDIDATES, 1 << 20, 1, beta=beta))
        error = final = 0.0
        for each, by_best, scores in zip(candidates, best, expected, strict=True):
            assert isinstance(each, ScoredCandidates)
            error = max(error, float(np.abs(by_best[each.docs] - np.sort(by_best)[::-1][: len(each.docs)]).max()))
            final = max(final, float(np.abs(each.scores - scores[each.docs]).max()))
        sound = error <= _ROUNDING and final <= _CODE_ERROR
        about: Record = {"what": "check lists", "nbits": nbits, "kernels": kernels, "beta": beta}
        yield {**about, "sound": sound, "error": error, "final_error": final}


def _decode(segment: OpenSegment, quantizer: Quantizer) -> Floats:
    """Return the decoded vectors by row, (n_rows, dim) float64."""
    lists = segment.reader.lists
    assert lists is not None
    codes = lists.codes()
    if quantizer.nbits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
    codebook = quantizer.score_codebook.astype(np.float64)
    parts = [sub_vectors[codes[:, number]] for number, sub_vectors in enumerate(codebook)]
    decoded = np.empty((len(codes), _DIM))
    decoded[lists.rows()] = np.concatenate(parts, axis=1)
    return decoded
