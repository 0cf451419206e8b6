"""Measures the way from texts to hits and to centroids, on the device and through main memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.gpu.harness import guarded, list_kernel_settings, median_ms, open_backend
from bench.gpu.sizes import Size
from bench.gpu.synthetic import SyntheticTable, make_segment, make_texts
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Candidates, ScoredCandidates, SearchParameters
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.torch_runner import TorchRunner
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.indexer.batches.calls import DocumentGroups, PreparedDocument
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import InvalidQuery
from quarry.formats.snapshot import OpenSegment

__all__ = ["measure_flow"]

_QUERY_WORDS, _DOCUMENT_WORDS = 8, 100
_DIM = 384  # of the bundled encoder
_N_SEARCHED, _N_DOCS, _N_TEXTS = 2000, 2_500_000, 4096
_N_CHECKED = 64
_ROUNDING = 1e-5  # of a centroid of length 1
_SAME_CLUSTERS = 0.9  # share of documents: a token may be equally near to two centroids
_REPRESENTATIONS: tuple[Representation, ...] = (Pieces(), KMeans(8))


def measure_flow(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield checks and timings of the bundled encoder in torch."""
    del work
    backends = {
        kernels: open_backend(place, _make_segment(_N_SEARCHED), kernels=kernels)
        for kernels in list_kernel_settings(place)
    }
    large = open_backend(place, _make_segment(size.count(_N_DOCS)), kernels=True)
    encoder, exact = (
        BatchedEncoder(load_bundle(default_bundle_path()), partial(TorchRunner, device=place.type, kind=kind))
        for kind in (None, torch.float32)  # rounding of half precision may depend on the run
    )
    yield from guarded({"what": "check queries stay"}, partial(_check_queries, size, encoder, backends))
    yield from guarded({"what": "texts to documents"}, partial(_time_queries, place, size, encoder, large))
    for each in _REPRESENTATIONS:
        about: Record = {"representation": each.name}
        yield from guarded({**about, "what": "check centroids"}, partial(_compare_centroids, size, exact, each))
        timed = partial(_time_documents, place, size, encoder, each)
        yield from guarded({**about, "what": "documents to centroids"}, timed)


def _check_queries(size: Size, encoder: BatchedEncoder, backends: Mapping[bool, GpuBackend]) -> Iterator[Record]:
    """Yield whether search with query vectors on the device and in main memory agree ("sound")."""
    for kernels, backend in backends.items():
        for batch in size.checked_batches:
            about: Record = {"kernels": kernels, "batch": batch}
            yield from guarded(about, partial(_compare_queries, encoder, backend, batch))
        yield {"what": "check bad query", "kernels": kernels, "sound": _is_refused(encoder, backend)}


def _time_queries(
    place: torch.device, size: Size, encoder: BatchedEncoder, backend: GpuBackend
) -> Iterator[Record]:
    """Yield times of both ways from texts to documents, tokenization included."""
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
    n_documents = size.count(_N_TEXTS, 2)
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
        ms = median_ms(call, place, max(1, size.n_calls // 4))
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


def _compare_centroids(size: Size, encoder: BatchedEncoder, representation: Representation) -> Iterator[Record]:
    """Yield the largest difference of centroids of the device and of numpy, for documents with equal spans."""
    groups = DocumentGroups(encoder, representation)
    texts = [*make_texts(size.count(_N_CHECKED, 2), _DOCUMENT_WORDS), "one", *make_texts(1, 3 * _DOCUMENT_WORDS)]
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


def _represent_in_memory(
    encoder: BatchedEncoder, representation: Representation, texts: list[str], prepared: list[PreparedDocument]
) -> list[DocumentVectors]:
    windows = encoder.run([each.text for each in prepared])
    pairs = zip(texts, windows, strict=True)
    return [representation.represent(text, each, encoder.normalize) for text, each in pairs]


def _search(backend: GpuBackend, queries: Queries) -> list[Candidates]:
    return backend.candidates(queries, SearchParameters(10, 100, None, 1))


def _make_segment(n_docs: int) -> OpenSegment:
    return make_segment(SyntheticTable(np.full(n_docs, 4), _DIM, "int8"))
