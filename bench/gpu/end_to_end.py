"""Measures the way from texts to hits and to centroids, on the device and through main memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.gpu.harness import guarded, list_kernel_settings, median_ms, open_backend
from bench.gpu.sizes import Size
from bench.gpu.synthetic import SyntheticRunner, SyntheticTable, make_segment, make_texts
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Candidates, ScoredCandidates, SearchParameters
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.engine.encoding.runtimes.selection import open_bundle
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.indexer.batches.document_batches import DocumentGroups, PreparedDocument
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import InvalidQuery
from quarry.formats.snapshot import OpenSegment

__all__ = ["measure_flow"]

_QUERY_WORDS, _DOCUMENT_WORDS = 8, 100
_N_CHECKED = 64
_ROUNDING = 1e-5  # of a centroid of length 1
_SAME_CLUSTERS = 0.9  # share of documents: a token may be equally near to two centroids
_LEAST_COSINE = 0.99  # with vectors of the CPU, also in half precision
_REPRESENTATIONS: tuple[Representation, ...] = (Pieces(), KMeans(8))


def _open_encoder(place: torch.device, bundle: Path | None) -> BatchedEncoder:
    """Open the encoder of a bundle on the device, or a synthetic one without a bundle."""
    if bundle is None:
        return BatchedEncoder(load_bundle(default_bundle_path()), partial(SyntheticRunner, place=place))
    opened = load_bundle(bundle)
    found = open_bundle(opened) if place.type == "cuda" else None
    return (
        found
        if isinstance(found, BatchedEncoder)
        else BatchedEncoder(opened, partial(OnnxRunner, device=place.type))
    )


def measure_flow(place: torch.device, size: Size, bundle: Path | None) -> Iterator[Record]:
    """Yield checks and timings of a synthetic model and, if given, of a bundle."""
    for source in (None, *([bundle] if bundle else [])):
        yield from guarded({"what": "encoder opened"}, partial(_measure_encoder, place, size, source))


def _measure_encoder(place: torch.device, size: Size, bundle: Path | None) -> Iterator[Record]:
    encoder = _open_encoder(place, bundle)
    about: Record = {"encoder": encoder.name if bundle else "synthetic", "dim": encoder.dim}
    yield from guarded({**about, "what": "check queries stay"}, partial(_check_queries, place, size, encoder))
    for each in _REPRESENTATIONS:
        named: Record = {**about, "representation": each.name}
        yield from guarded({**named, "what": "check centroids"}, partial(_compare_centroids, encoder, each))
    if bundle is not None:
        yield from guarded({**about, "what": "check runtime"}, partial(_compare_runtime, encoder, bundle))
    yield from guarded({**about, "what": "texts to documents"}, partial(_time_queries, place, size, encoder))
    for each in _REPRESENTATIONS:
        named = {**about, "representation": each.name, "what": "documents to centroids"}
        yield from guarded(named, partial(_time_documents, place, size, encoder, each))


def _check_queries(place: torch.device, size: Size, encoder: BatchedEncoder) -> Iterator[Record]:
    """Yield whether search with query vectors on the device and in main memory agree ("sound")."""
    for kernels in list_kernel_settings(place):
        backend = open_backend(place, _make_small_segment(encoder.dim, 2000), kernels=kernels)
        for batch in size.checked_batches:
            about: Record = {"kernels": kernels, "batch": batch}
            yield from guarded(about, partial(_compare_queries, encoder, backend, batch))
        yield {"what": "check bad query", "kernels": kernels, "sound": _is_refused(encoder, backend)}


def _time_queries(place: torch.device, size: Size, encoder: BatchedEncoder) -> Iterator[Record]:
    """Yield times of both ways from texts to documents, tokenization included."""
    backend = open_backend(
        place,
        _make_small_segment(encoder.dim, size.n_rows // size.per_document),
        kernels=list_kernel_settings(place)[0],
    )
    for batch in size.batches:
        texts = make_texts(batch, _QUERY_WORDS)
        for way, call in _query_ways(encoder, backend, texts).items():
            ms = median_ms(call, place, size.n_calls)
            yield {"way": way, "batch": batch, "ms": ms, "queries_s": batch / ms * 1e3}


def _query_ways(encoder: BatchedEncoder, backend: GpuBackend, texts: list[str]) -> dict[str, Callable[[], object]]:
    def through_memory() -> object:
        return _search(backend, to_host_vectors(encode_queries(encoder, texts, 1)))

    return {"device": lambda: _search(backend, encode_queries(encoder, texts, 1)), "main memory": through_memory}


def _time_documents(
    place: torch.device, size: Size, encoder: BatchedEncoder, representation: Representation
) -> Iterator[Record]:
    """Yield times of both ways from tokenized documents to centroids."""
    n_documents = size.n_documents
    groups = DocumentGroups(encoder, representation)
    texts = make_texts(n_documents, _DOCUMENT_WORDS)
    prepared = [groups.prepare(text) for text in texts]
    n_tokens = sum(each.text.n_tokens for each in prepared)
    about: Record = {"n_documents": n_documents, "n_tokens": n_tokens}
    ways: dict[str, Callable[[], object]] = {
        "device": partial(groups.run, prepared),
        "main memory": partial(_represent_in_memory, encoder, representation, texts, prepared),
    }
    for way, call in ways.items():
        ms = median_ms(call, place, max(2, size.n_calls // 4))
        rates = {"documents_s": n_documents / ms * 1e3, "tokens_s": n_tokens / ms * 1e3}
        yield {**about, "way": way, "ms": ms, **rates}


def _compare_queries(encoder: BatchedEncoder, backend: GpuBackend, batch: int) -> Iterator[Record]:
    """Yield whether both ways return the same documents with the same scores."""
    vectors = encode_queries(encoder, make_texts(batch, _QUERY_WORDS), 1)
    pairs = zip(_search(backend, vectors), _search(backend, to_host_vectors(vectors)), strict=True)
    sound, error = isinstance(vectors, DeviceVectors), 0.0
    for one, other in pairs:
        assert isinstance(one, ScoredCandidates)
        assert isinstance(other, ScoredCandidates)
        sound = sound and bool((one.docs == other.docs).all())
        error = max(error, float(np.abs(one.scores - other.scores).max()))
    yield {"sound": sound and error == 0, "error": error}


def _is_refused(encoder: BatchedEncoder, backend: GpuBackend) -> bool:
    """Return whether a query vector with NaN is refused with its number in the message."""
    vectors = encode_queries(encoder, make_texts(3, _QUERY_WORDS), 1)
    assert isinstance(vectors, DeviceVectors)
    vectors.values[1, 0] = torch.nan
    try:
        _search(backend, vectors)
    except InvalidQuery as error:
        return "query vector 1 " in str(error)
    return False


def _compare_centroids(encoder: BatchedEncoder, representation: Representation) -> Iterator[Record]:
    """Yield the largest difference of centroids of the device and of numpy, for documents with equal spans."""
    groups = DocumentGroups(encoder, representation)
    texts = [*make_texts(_N_CHECKED, _DOCUMENT_WORDS), "one", *make_texts(1, 40 * _DOCUMENT_WORDS)]
    prepared = [groups.prepare(text) for text in texts]
    there, here = groups.run(prepared), _represent_in_memory(encoder, representation, texts, prepared)
    n_same, error = 0, 0.0
    for one, other in zip(there, here, strict=True):
        if isinstance(one, DocumentVectors) and one.spans == other.spans:
            n_same += 1
            error = max(error, float(np.abs(one.values - other.values).max()))
    share = n_same / len(texts)
    enough = 1.0 if isinstance(representation, Pieces) else _SAME_CLUSTERS
    yield {"sound": error <= _ROUNDING and share >= enough, "error": error, "same_spans": share}


def _compare_runtime(encoder: BatchedEncoder, bundle: Path) -> Iterator[Record]:
    """Yield the smallest cosine of a query vector with that of the CPU."""
    reference = OnnxEncoder(load_bundle(bundle))
    texts = make_texts(20, _QUERY_WORDS)
    found = to_host_vectors(encode_queries(encoder, texts, 1)).astype(np.float64)
    expected = np.stack([reference.encode_query(text) for text in texts]).astype(np.float64)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = float(((found * expected).sum(1) / norms).min())
    yield {"sound": cosine >= _LEAST_COSINE, "cosine": cosine}


def _represent_in_memory(
    encoder: BatchedEncoder, representation: Representation, texts: list[str], prepared: list[PreparedDocument]
) -> list[DocumentVectors]:
    windows = encoder.run([each.text for each in prepared])
    pairs = zip(texts, windows, strict=True)
    return [representation.represent(text, each, encoder.normalize) for text, each in pairs]


def _search(backend: GpuBackend, queries: Queries) -> list[Candidates]:
    return backend.candidates(queries, SearchParameters(10, 100, None, 1))


def _make_small_segment(dim: int, n_docs: int) -> OpenSegment:
    return make_segment(SyntheticTable(np.full(n_docs, 4), dim, "int8"))
