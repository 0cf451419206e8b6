"""Measures text to hits and text to centroids, on the device and through main memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, kernel_settings, median_ms, open_on
from bench.gpu.sizes import Size
from bench.gpu.synthetic import MadeRunner, MadeTable, made_segment, made_texts
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Candidates, Wanted
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.batched_encoder import BatchedEncoder
from quarry.engine.encoding.onnx_encoder import OnnxEncoder
from quarry.engine.encoding.onnx_runner import OnnxRunner
from quarry.engine.encoding.runtimes import open_bundle
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.indexer.document_encoder import DocumentGroups, PreparedDocument
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.scoring.query_vectors import Queries
from quarry.engine.search.queries import encode_queries
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import InvalidQuery
from quarry.formats.snapshot import OpenSegment

__all__ = ["flow"]

_BATCHES = (1, 7, 1000)
_QUERY_WORDS, _DOCUMENT_WORDS = 8, 100
_N_CHECKED = 64
_ROUNDING = 1e-5  # of a centroid of length 1
_SAME_CLUSTERS = 0.9  # of documents: in others a token is as near to one centroid as to another
_SAME_VECTORS = 0.99  # cosine with the CPU's, in half precision too
_REPRESENTATIONS: tuple[Representation, ...] = (Pieces(), KMeans(8))


def encoder_of(place: torch.device, bundle: Path | None) -> BatchedEncoder:
    """An encoder on the device: of a bundle, or synthetic if there is none."""
    if bundle is None:
        return BatchedEncoder(load_bundle(default_bundle_path()), partial(MadeRunner, place=place))
    opened = load_bundle(bundle)
    found = open_bundle(opened) if place.type == "cuda" else None
    return (
        found
        if isinstance(found, BatchedEncoder)
        else BatchedEncoder(opened, partial(OnnxRunner, device=place.type))
    )


def flow(place: torch.device, size: Size, bundle: Path | None) -> Iterator[Record]:
    """Yield checks and timings of a synthetic model, and of a bundle's if there is one."""
    for source in (None, *([bundle] if bundle else [])):
        yield from guarded({"what": "encoder opened"}, partial(_flow, place, size, source))


def _flow(place: torch.device, size: Size, bundle: Path | None) -> Iterator[Record]:
    encoder = encoder_of(place, bundle)
    about: Record = {"encoder": encoder.name if bundle else "synthetic", "dim": encoder.dim}
    yield from guarded({**about, "what": "check queries stay"}, partial(_query_checks, place, encoder))
    for each in _REPRESENTATIONS:
        named: Record = {**about, "representation": each.name}
        yield from guarded({**named, "what": "check centroids"}, partial(_centroids, encoder, each))
    if bundle is not None:
        yield from guarded({**about, "what": "check runtime"}, partial(_runtime, encoder, bundle))
    yield from guarded({**about, "what": "texts to documents"}, partial(_query_timings, place, size, encoder))
    for each in _REPRESENTATIONS:
        named = {**about, "representation": each.name, "what": "documents to centroids"}
        yield from guarded(named, partial(_document_timings, place, size, encoder, each))


def _query_checks(place: torch.device, encoder: BatchedEncoder) -> Iterator[Record]:
    """Whether what stays on the device is what comes about in main memory; "sound" says so."""
    for kernels in kernel_settings(place):
        backend = open_on(place, _segment(encoder.dim, 2000), kernels=kernels)
        for batch in _BATCHES:
            about: Record = {"kernels": kernels, "batch": batch}
            yield from guarded(about, partial(_same, encoder, backend, batch))
        yield {"what": "check bad query", "kernels": kernels, "sound": _refused(encoder, backend)}


def _query_timings(place: torch.device, size: Size, encoder: BatchedEncoder) -> Iterator[Record]:
    """Milliseconds of both ways, queries tokenized in them."""
    backend = open_on(
        place, _segment(encoder.dim, size.n_rows // size.per_document), kernels=kernel_settings(place)[0]
    )
    for batch in size.batches:
        texts = made_texts(batch, _QUERY_WORDS)
        for way, call in _query_ways(encoder, backend, texts).items():
            ms = median_ms(call, place, size.n_calls)
            yield {"way": way, "batch": batch, "ms": ms, "queries_s": batch / ms * 1e3}


def _query_ways(encoder: BatchedEncoder, backend: GpuBackend, texts: list[str]) -> dict[str, Callable[[], object]]:
    def through_memory() -> object:
        return _found(backend, _host(encode_queries(encoder, texts, 1)))

    return {"device": lambda: _found(backend, encode_queries(encoder, texts, 1)), "main memory": through_memory}


def _document_timings(
    place: torch.device, size: Size, encoder: BatchedEncoder, representation: Representation
) -> Iterator[Record]:
    """Milliseconds of both ways, documents tokenized before."""
    n_documents = size.n_documents
    groups = DocumentGroups(encoder, representation)
    texts = made_texts(n_documents, _DOCUMENT_WORDS)
    prepared = [groups.prepare(text) for text in texts]
    n_tokens = sum(each.text.n_tokens for each in prepared)
    about: Record = {"n_documents": n_documents, "n_tokens": n_tokens}
    roads: dict[str, Callable[[], object]] = {
        "device": partial(groups.run, prepared),
        "main memory": partial(_in_memory, encoder, representation, texts, prepared),
    }
    for way, call in roads.items():
        ms = median_ms(call, place, max(2, size.n_calls // 4))
        rates = {"documents_s": n_documents / ms * 1e3, "tokens_s": n_tokens / ms * 1e3}
        yield {**about, "way": way, "ms": ms, **rates}


def _same(encoder: BatchedEncoder, backend: GpuBackend, batch: int) -> Iterator[Record]:
    """Whether both ways find the same documents with the same scores."""
    vectors = encode_queries(encoder, made_texts(batch, _QUERY_WORDS), 1)
    pairs = zip(_found(backend, vectors), _found(backend, _host(vectors)), strict=True)
    sound, error = isinstance(vectors, DeviceVectors), 0.0
    for one, other in pairs:
        assert one.scores is not None
        assert other.scores is not None
        sound = sound and bool((one.docs == other.docs).all())
        error = max(error, float(np.abs(one.scores - other.scores).max()))
    yield {"sound": sound and error == 0, "error": error}


def _refused(encoder: BatchedEncoder, backend: GpuBackend) -> bool:
    """Whether a query that holds no number is refused, by its own number."""
    vectors = encode_queries(encoder, made_texts(3, _QUERY_WORDS), 1)
    assert isinstance(vectors, DeviceVectors)
    vectors.values[1, 0] = torch.nan
    try:
        _found(backend, vectors)
    except InvalidQuery as error:
        return "query vector 1 " in str(error)
    return False


def _centroids(encoder: BatchedEncoder, representation: Representation) -> Iterator[Record]:
    """How far centroids of the device are from those of numpy, of documents with the same spans behind them."""
    groups = DocumentGroups(encoder, representation)
    texts = [*made_texts(_N_CHECKED, _DOCUMENT_WORDS), "one", *made_texts(1, 40 * _DOCUMENT_WORDS)]
    prepared = [groups.prepare(text) for text in texts]
    there, here = groups.run(prepared), _in_memory(encoder, representation, texts, prepared)
    n_same, error = 0, 0.0
    for one, other in zip(there, here, strict=True):
        if isinstance(one, DocumentVectors) and one.spans == other.spans:
            n_same += 1
            error = max(error, float(np.abs(one.values - other.values).max()))
    share = n_same / len(texts)
    enough = 1.0 if isinstance(representation, Pieces) else _SAME_CLUSTERS
    yield {"sound": error <= _ROUNDING and share >= enough, "error": error, "same_spans": share}


def _runtime(encoder: BatchedEncoder, bundle: Path) -> Iterator[Record]:
    """The least cosine of a query's vector with the one that the CPU gives."""
    reference = OnnxEncoder(load_bundle(bundle))
    texts = made_texts(20, _QUERY_WORDS)
    found = _host(encode_queries(encoder, texts, 1)).astype(np.float64)
    expected = np.stack([reference.encode_query(text) for text in texts]).astype(np.float64)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = float(((found * expected).sum(1) / norms).min())
    yield {"sound": cosine >= _SAME_VECTORS, "cosine": cosine}


def _in_memory(
    encoder: BatchedEncoder, representation: Representation, texts: list[str], prepared: list[PreparedDocument]
) -> list[DocumentVectors]:
    windows = encoder.run([each.text for each in prepared])
    pairs = zip(texts, windows, strict=True)
    return [representation.represent(text, each, encoder.normalise) for text, each in pairs]


def _host(queries: Queries) -> npt.NDArray[np.float32]:
    return DeviceVectors(queries.values).host if isinstance(queries, DeviceVectors) else queries


def _found(backend: GpuBackend, queries: Queries) -> list[Candidates]:
    return backend.candidates(queries, Wanted(10, 100, None, 1))


def _segment(dim: int, n_docs: int) -> OpenSegment:
    return made_segment(MadeTable(np.full(n_docs, 4), dim, "int8"))
