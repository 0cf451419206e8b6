"""Compares the GPU backend with numpy in float64, on documents of 1 to 500 centroids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, list_kernel_settings, open_backend
from bench.gpu.sizes import make_queries
from bench.gpu.synthetic import SyntheticTable, make_quantizer, make_segment
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Candidates, ScoredCandidates, SearchParameters
from quarry.engine.gpu.kernel_check import find_sound_kernels
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["run_checks"]

_DIM = 96
_N_DOCS = 2000
_N_HITS, _N_CANDIDATES = 10, 50
_ERROR = 1e-5  # of a final score, for vectors and queries of length 1
_ROUNDING = 1e-4  # of a sum of table entries
_CODE_ERROR = 1e-5  # of a final score of codes, whose norm is about ten times the query's
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def run_checks(place: torch.device, batches: Sequence[int]) -> Iterator[Record]:
    """Yield a record for each check; the field "sound" says whether it passed."""
    yield from guarded({"what": "check kernels"}, partial(_check_kernels, place))
    lengths = _document_lengths()
    queries = make_queries(max(batches), _DIM)
    allowed = np.random.default_rng(1).random(len(lengths)) < 0.7
    for kernels in list_kernel_settings(place):
        for kind in ("int8", "float16"):
            about: Record = {"what": "check scan", "stored": kind, "kernels": kernels}
            table = SyntheticTable(lengths, _DIM, kind)
            yield from guarded(
                about, partial(_check_scans, place, table, queries, allowed, batches, kernels=kernels)
            )
        for nbits in (4, 8):
            about = {"what": "check lists", "nbits": nbits, "kernels": kernels}
            yield from guarded(about, partial(_check_lists, place, nbits, queries[:7], kernels=kernels))
    if place.type == "cuda":
        yield from guarded({"what": "check budget"}, lambda: [_check_memory_limit(place)])


def _check_kernels(place: torch.device) -> Iterator[Record]:
    """Yield which Triton kernels agree with torch; on a CPU device there are none."""
    if place.type != "cuda":
        return
    kernels = import_module("quarry.engine.gpu.kernels")
    with torch.cuda.device(place):
        sound = vars(find_sound_kernels(kernels, place) or SimpleNamespace())
    for name in ("document_scores", "pair_scores", "score_lists"):
        yield {"kernel": name, "sound": sound.get(name) is not None}


def _document_lengths() -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(0)
    odd = [1, 2, 500, 3, 127, 128, 129, 256, 257, 16, 17]
    return np.array([*odd, *generator.integers(1, 9, _N_DOCS - len(odd)).tolist()], np.int64)


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


def _check_scans(
    place: torch.device,
    table: SyntheticTable,
    queries: npt.NDArray[np.float32],
    allowed: Mask,
    batches: Sequence[int],
    *,
    kernels: bool,
) -> Iterator[Record]:
    backend = open_backend(place, make_segment(table), kernels=kernels)
    for beta in (None, 8.0):
        expected = _compute_scores(table.vectors(0, table.n_rows), table.offsets, queries.astype(np.float64), beta)
        for mask in (None, allowed):
            parameters = SearchParameters(_N_HITS, _N_CANDIDATES, None, 1, mask, beta)
            possible = expected if mask is None else np.where(mask, expected, -np.inf)
            for batch in batches:
                about: Record = {"beta": beta, "masked": mask is not None, "batch": batch}
                yield from guarded(
                    about, partial(_check_scan, backend, queries[:batch], parameters, possible[:batch])
                )


def _check_scan(
    backend: GpuBackend, queries: npt.NDArray[np.float32], parameters: SearchParameters, expected: Floats
) -> Iterator[Record]:
    sound, error = _compare(backend.candidates(queries, parameters), expected)
    yield {"sound": sound, "error": error}


def _compare(found: list[Candidates], expected: Floats) -> tuple[bool, float]:
    """Return whether candidates, upper bound and scores are right, and the largest error of a score."""
    sound, error = len(found) == len(expected), 0.0
    for each, scores in zip(found, expected, strict=True):
        assert isinstance(each, ScoredCandidates)
        best = np.argsort(-scores)[:_N_HITS]
        left_out = np.delete(scores, each.docs)
        sound = sound and len(set(each.docs.tolist())) == _N_CANDIDATES and bool(np.isin(best, each.docs).all())
        sound = sound and bool(left_out.max() <= each.upper_bound)
        error = max(error, float(np.abs(each.scores - scores[each.docs]).max()))
    return sound and error <= _ERROR, error


def _check_lists(
    place: torch.device, nbits: int, queries: npt.NDArray[np.float32], *, kernels: bool
) -> Iterator[Record]:
    """Probe all lists and compare documents and final scores with those of decoded vectors in float64."""
    table = SyntheticTable(_document_lengths(), _DIM, "none")
    quantizer = make_quantizer(_DIM, 16, 12, nbits)
    segment = make_segment(table, quantizer)
    backend = open_backend(place, segment, kernels=kernels)
    decoded, wide = _decode(segment, quantizer), queries.astype(np.float64)
    best = _compute_scores(decoded, table.offsets, wide, None)
    for beta in (None, 8.0):
        expected = _compute_scores(decoded, table.offsets, wide, beta)
        found = backend.candidates(queries, SearchParameters(_N_HITS, _N_CANDIDATES, 1 << 20, 1, beta=beta))
        error = final = 0.0
        for each, by_best, scores in zip(found, best, expected, strict=True):
            assert isinstance(each, ScoredCandidates)
            error = max(error, float(np.abs(by_best[each.docs] - np.sort(by_best)[::-1][: len(each.docs)]).max()))
            final = max(final, float(np.abs(each.scores - scores[each.docs]).max()))
        sound = error <= _ROUNDING and final <= _CODE_ERROR
        yield {"beta": beta, "sound": sound, "error": error, "final_error": final}


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


def _check_memory_limit(place: torch.device) -> Record:
    """Check that device memory stays within the limit, intermediate results included."""
    table = SyntheticTable(np.full(100_000, 4), 384, "float16")
    before = torch.cuda.memory_allocated(place)
    torch.cuda.reset_peak_memory_stats(place)
    limit = 600 << 20
    backend = open_backend(place, make_segment(table), kernels=list_kernel_settings(place)[0], limit_bytes=limit)
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
