"""Checks the GPU backend against numpy in float64, on documents of 1 to 500 centroids."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, kernel_settings, open_on
from bench.gpu.synthetic import MadeTable, made_quantizer, made_segment
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Candidates, ScoredCandidates, SearchParameters
from quarry.engine.gpu.kernel_check import sound_kernels
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["checks"]

_DIM = 96
_N_DOCS = 2000
_BATCHES = (1, 7, 256, 1000)
_N_HITS, _N_CANDIDATES = 10, 50
_ERROR = 1e-5  # of a final score, for vectors and queries of length 1
_ROUNDING = 1e-4  # of a sum of look-ups
_CODE_ERROR = 1e-5  # of a final score of codes, which are about ten times as long as the query
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def checks(place: torch.device) -> Iterator[Record]:
    """Yield a record for each check; "sound" says whether it held."""
    yield from guarded({"what": "check kernels"}, partial(_kernels, place))
    lengths = _lengths()
    queries = _queries(max(_BATCHES))
    allowed = np.random.default_rng(1).random(len(lengths)) < 0.7
    for kernels in kernel_settings(place):
        for kind in ("int8", "float16"):
            about: Record = {"what": "check scan", "stored": kind, "kernels": kernels}
            table = MadeTable(lengths, _DIM, kind)
            yield from guarded(about, partial(_scan_checks, place, table, queries, allowed, kernels=kernels))
        for nbits in (4, 8):
            about = {"what": "check lists", "nbits": nbits, "kernels": kernels}
            yield from guarded(about, partial(_list_checks, place, nbits, queries[:7], kernels=kernels))
    if place.type == "cuda":
        yield from guarded({"what": "check budget"}, lambda: [_budget_check(place)])


def _kernels(place: torch.device) -> Iterator[Record]:
    """Which kernels compute what torch does; on the CPU device there are none to be used."""
    if place.type != "cuda":
        return
    kernels = import_module("quarry.engine.gpu.kernels")
    with torch.cuda.device(place):
        sound = vars(sound_kernels(kernels, place) or SimpleNamespace())
    for name in ("document_scores", "pair_scores", "score_lists"):
        yield {"kernel": name, "sound": sound.get(name) is not None}


def _lengths() -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(0)
    odd = [1, 2, 500, 3, 127, 128, 129, 256, 257, 16, 17]
    return np.array([*odd, *generator.integers(1, 9, _N_DOCS - len(odd)).tolist()], np.int64)


def _queries(n: int) -> npt.NDArray[np.float32]:
    queries = np.random.default_rng(2).standard_normal((n, _DIM))
    scaled: npt.NDArray[np.float32] = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def document_scores(
    vectors: Floats, offsets: npt.NDArray[np.int64], queries: Floats, beta: float | None
) -> Floats:
    """The oracle: (n_queries, n_docs) aggregated scores."""
    scores = queries @ vectors.T
    best: Floats = np.maximum.reduceat(scores, offsets[:-1], axis=1)
    if beta is None:
        return best
    weights = np.exp(beta * (scores - np.repeat(best, np.diff(offsets), axis=1)))
    total = np.add.reduceat(weights * scores, offsets[:-1], axis=1)
    aggregated: Floats = total / np.add.reduceat(weights, offsets[:-1], axis=1)
    return aggregated


def _scan_checks(
    place: torch.device, table: MadeTable, queries: npt.NDArray[np.float32], allowed: Mask, *, kernels: bool
) -> Iterator[Record]:
    backend = open_on(place, made_segment(table), kernels=kernels)
    for beta in (None, 8.0):
        expected = document_scores(table.vectors(0, table.n_rows), table.offsets, queries.astype(np.float64), beta)
        for mask in (None, allowed):
            parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, mask, beta)
            possible = expected if mask is None else np.where(mask, expected, -np.inf)
            for batch in _BATCHES:
                about: Record = {"beta": beta, "masked": mask is not None, "batch": batch}
                yield from guarded(
                    about, partial(_scan_check, backend, queries[:batch], parameters, possible[:batch])
                )


def _scan_check(
    backend: GpuBackend, queries: npt.NDArray[np.float32], parameters: SearchParameters, expected: Floats
) -> Iterator[Record]:
    sound, error = _judged(backend.candidates(queries, parameters), expected)
    yield {"sound": sound, "error": error}


def _judged(found: list[Candidates], expected: Floats) -> tuple[bool, float]:
    """Whether the best are there, and all above the upper bound, and the scores are right; with their error."""
    sound, error = len(found) == len(expected), 0.0
    for each, scores in zip(found, expected, strict=True):
        assert isinstance(each, ScoredCandidates)
        best = np.argsort(-scores)[:_N_HITS]
        left_out = np.delete(scores, each.docs)
        sound = sound and len(set(each.docs.tolist())) == _N_CANDIDATES and bool(np.isin(best, each.docs).all())
        sound = sound and bool(left_out.max() <= each.upper_bound)
        error = max(error, float(np.abs(each.scores - scores[each.docs]).max()))
    return sound and error <= _ERROR, error


def _list_checks(
    place: torch.device, nbits: int, queries: npt.NDArray[np.float32], *, kernels: bool
) -> Iterator[Record]:
    """All lists read: the documents whose codes score best, and their final scores, in float64."""
    table = MadeTable(_lengths(), _DIM, "none")
    quantizer = made_quantizer(_DIM, 16, 12, nbits)
    segment = made_segment(table, quantizer)
    backend = open_on(place, segment, kernels=kernels)
    decoded, wide = _decoded(segment, quantizer), queries.astype(np.float64)
    best = document_scores(decoded, table.offsets, wide, None)
    for beta in (None, 8.0):
        expected = document_scores(decoded, table.offsets, wide, beta)
        found = backend.candidates(queries, SearchParameters(_N_HITS, _N_CANDIDATES, 1 << 20, 1, beta=beta))
        error = final = 0.0
        for each, by_best, scores in zip(found, best, expected, strict=True):
            assert isinstance(each, ScoredCandidates)
            error = max(error, float(np.abs(by_best[each.docs] - np.sort(by_best)[::-1][: len(each.docs)]).max()))
            final = max(final, float(np.abs(each.scores - scores[each.docs]).max()))
        sound = error <= _ROUNDING and final <= _CODE_ERROR
        yield {"beta": beta, "sound": sound, "error": error, "final_error": final}


def _decoded(segment: OpenSegment, quantizer: Quantizer) -> Floats:
    """(n_rows, dim) vectors that the codes stand for, by row."""
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


def _budget_check(place: torch.device) -> Record:
    """Whether the device's memory in use stays within the budget, intermediate results included."""
    table = MadeTable(np.full(100_000, 4), 384, "float16")
    before = torch.cuda.memory_allocated(place)
    torch.cuda.reset_peak_memory_stats(place)
    limit = 600 << 20
    backend = open_on(place, made_segment(table), kernels=kernel_settings(place)[0], limit_bytes=limit)
    queries = np.random.default_rng(3).standard_normal((300, 384)).astype(np.float32)
    backend.candidates(queries, SearchParameters(100, 300, None, 1, None, 8.0))
    peak = torch.cuda.max_memory_allocated(place) - before
    del backend
    kept = torch.cuda.memory_allocated(place) - before
    return {
        "limit_bytes": limit,
        "peak_bytes": peak,
        "kept_bytes": kept,
        "sound": peak <= limit and kept == 0,
    }
