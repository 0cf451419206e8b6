"""One setting of `bench.sweep.tradeoff`: builds an index of vectors that are there already, and searches it.

Both are called by `bench.harness.fresh_process`, so that time to open and memory are theirs alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bench.data.engine_thresholds import replace_global, set_ivf_rows, set_nlist
from bench.data.prepared import Prepared
from bench.data.quality import measure_quality
from bench.data.trec_run import Run, write_run
from bench.harness.latency import concurrent_latency_ms, latency_ms
from bench.harness.process_memory import peak_rss_bytes, rss_bytes
from quarry.engine import Engine, Hits, build
from quarry.engine.documents.document import Document
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.indexer import index_writer
from quarry.engine.indexer.document_encoder import DocumentEncoder, EncodedDocument, OnInvalid
from quarry.engine.options import OpenOptions, SearchKeywords
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.representation.base import DocumentVectors
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["N_TIMED", "EncodedBefore", "Found", "Numbers", "Parameters", "build_index", "judged", "search_index"]

Parameters = dict[str, object]
Numbers = dict[str, object]
Found = list[tuple[str, float]]
N_TIMED = 500
"""Queries whose times are taken; qualities are those of all."""


class EncodedBefore:
    """Stands in for the encoder whose vectors were prepared.

    Attributes:
        dim: length of its vectors.
        beta: inverse temperature of the softmax aggregation; None: the maximum.
    """

    normalize = True
    vector_kinds: frozenset[VectorKind] = frozenset({"token"})
    trained_representation = None

    def __init__(self, prepared: Prepared, beta: float | None = None) -> None:
        self.beta = beta
        about = prepared.about()
        self.name = str(about["encoder"])
        self.identity = str(about["encoder_identity"])
        self.dim = prepared.query_vectors().shape[1]

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Nothing is encoded here."""
        raise NotImplementedError(text)

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """Nothing is encoded here."""
        raise NotImplementedError(text)


def build_index(parameters: Parameters) -> Numbers:
    """Build an index of prepared vectors, with texts and words as ever.

    Args:
        parameters: ``prepared`` and ``out`` (folders), and the fields of `bench.sweep.grid.IndexSetting`;
            ``beta`` of the aggregation may be among them.

    Returns:
        build_s (without encoding), build_peak_rss_bytes, nlist (0: no lists), n_documents, n_centroids,
        bytes (by part), size_bytes.
    """
    prepared, out = Prepared(Path(str(parameters["prepared"]))), str(parameters["out"])
    _decide_lists(parameters)
    vectors = prepared.vectors(str(parameters["representation"]))
    replace_global(index_writer, "EncodedDocuments", partial(_encoded_before, vectors))
    ids, texts = prepared.documents()
    docs = ({"id": name, "text": text or "."} for name, text in zip(ids, texts, strict=True))
    started = time.perf_counter()
    settings = cast(dict[str, Any], parameters["build"])
    encoder = EncodedBefore(prepared, cast("float | None", parameters.get("beta")))
    report = build(docs, out, encoder=encoder, progress=False, **settings)
    numbers: Numbers = {"build_s": time.perf_counter() - started, "build_peak_rss_bytes": peak_rss_bytes()}
    with Engine.open(out) as index:
        statistics = index.stats()
    return numbers | {
        "nlist": _nlist(out),
        "n_documents": report.n_documents,
        "n_centroids": report.n_centroids,
        "bytes": statistics["bytes"],
        "size_bytes": statistics["size_bytes"],
    }


def _nlist(out: str) -> int:
    """How many inverted lists the first segment has."""
    snapshot = Snapshot(Directory(Path(out)))
    quantizer = snapshot.segments[0].quantizer
    snapshot.close()
    return quantizer.nlist if quantizer else 0


def _decide_lists(parameters: Parameters) -> None:
    """Override the engine's decisions about inverted lists if a setting requests it."""
    if parameters["lists"]:
        set_ivf_rows(1)
    nlist = cast("int | None", parameters["nlist"])
    if nlist is not None:
        set_nlist(nlist)


def _encoded_before(
    vectors: tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]],
    documents: Iterable[Document],
    how: DocumentEncoder,
    pool: WorkerPool,
    on_invalid: OnInvalid | None = None,
) -> AbstractContextManager[Iterator[EncodedDocument]]:
    """Replace `EncodedDocuments`: take the vectors from the file, in order."""
    del pool, on_invalid
    return nullcontext(_with_vectors(vectors, documents, how))


def _with_vectors(
    vectors: tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]],
    documents: Iterable[Document],
    how: DocumentEncoder,
) -> Iterator[EncodedDocument]:
    values, offsets = vectors
    for number, document in enumerate(documents):
        rows = np.array(values[offsets[number] : offsets[number + 1]])
        made = DocumentVectors(rows, tuple(() for _ in rows))
        yield EncodedDocument(document, made, how.analyzer.terms(document.full_text), 0)


def search_index(parameters: Parameters) -> Numbers:
    """Search an index with the prepared query vectors.

    Args:
        parameters: ``prepared``, ``out`` (the index), ``representation``, ``backend``, ``nprobe``,
            ``candidates``, and ``run``: a file for the answers in TREC's format, or None.

    Returns:
        open_ms, first_answer_ms, rss_bytes and peak_rss_bytes (one thread), p50_ms, p95_ms, p99_ms and qps of 10
        hits with one thread, the same after ``callers_`` with one caller per core (n_callers), qps_all of one
        batch on all threads; what `judged` says; chosen: the backends that searched; memory as the engine says,
        its device_bytes among it.
    """
    prepared, options = Prepared(Path(str(parameters["prepared"]))), _options(parameters)
    queries = prepared.query_vectors()
    numbers = _timed(str(parameters["out"]), str(parameters["backend"]), queries, options)
    with Engine.open(str(parameters["out"]), backend=str(parameters["backend"])) as index:
        numbers |= _on_all_threads(index, queries, options)
        ten = _pairs(index.search_vectors(queries, 10, **options))
        hundred = _pairs(_hundred(index, queries, options))
        statistics = index.stats()
    numbers["memory"] = statistics["memory"]
    numbers["chosen"] = list(cast(dict[str, dict[str, object]], statistics["backend"])["chosen"])
    if parameters.get("run"):
        write_run(Path(str(parameters["run"])), _run(prepared, hundred), tag="quarry")
    return numbers | judged(prepared, str(parameters["representation"]), ten, hundred)


def judged(prepared: Prepared, representation: str, ten: list[Found], hundred: list[Found]) -> Numbers:
    """Recall against the exact oracle over the vectors before they were stored, and quality.

    Args:
        prepared: the collection.
        representation: key of the vectors whose oracle to ask.
        ten: for each query the answer to a search for 10 hits, ids and scores, best first.
        hundred: likewise for 100 hits.

    Returns:
        recall_10 and recall_100, each of its search; if there are judgments ndcg_10 (linear gain), ndcg_exp_10
        and rr_10 of the first search, recall_100_judged of the second.
    """
    names = np.array(prepared.documents()[0], object)[prepared.oracle(representation)]
    numbers: Numbers = {}
    for k, found in ((10, ten), (100, hundred)):
        shares = [_share(wanted[:k], hits) for wanted, hits in zip(names, found, strict=True)]
        numbers[f"recall_{k}"] = float(np.mean(shares))
    return numbers | _quality(prepared.qrels(), _run(prepared, ten), _run(prepared, hundred))


def _pairs(answers: list[Hits]) -> list[Found]:
    return [[(hit.id, hit.score) for hit in hits] for hits in answers]


def _run(prepared: Prepared, found: list[Found]) -> Run:
    return dict(zip(prepared.queries()[0], map(dict, found), strict=True))


def _options(parameters: Parameters) -> SearchKeywords:
    chosen = {name: parameters[name] for name in ("nprobe", "candidates") if parameters[name] is not None}
    return cast(SearchKeywords, chosen)


def _timed(out: str, backend: str, queries: npt.NDArray[np.float32], options: SearchKeywords) -> Numbers:
    started = time.perf_counter()
    with Engine.open(out, backend=backend, threads=1) as index:
        opened = time.perf_counter()
        index.search_vectors(queries[:1], 10, **options)
        answered = time.perf_counter()
        times = latency_ms(_ten(index, queries, options), range(min(N_TIMED, len(queries))))
        return {
            "open_ms": (opened - started) * 1e3,
            "first_answer_ms": (answered - opened) * 1e3,
            "rss_bytes": rss_bytes(),
            "peak_rss_bytes": peak_rss_bytes(),
            **times,
        }


def _on_all_threads(index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords) -> Numbers:
    """One batch of all queries; then as many callers with single queries as there are cores."""
    timed, n_callers = queries[:N_TIMED], OpenOptions().n_threads
    index.search_vectors(timed[:n_callers], 10, **options)
    started = time.perf_counter()
    index.search_vectors(timed, 10, **options)
    numbers: Numbers = {"qps_all": len(timed) / (time.perf_counter() - started), "n_callers": n_callers}
    ten = _ten(index, timed, options)
    return numbers | concurrent_latency_ms(ten, range(len(timed)), n_callers, "callers_")


def _ten(index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords) -> Callable[[int], list[Hits]]:
    """10 hits for the query of a number."""
    return lambda number: index.search_vectors(queries[number : number + 1], 10, **options)


def _hundred(index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords) -> list[Hits]:
    """100 hits for each query; of as many candidates at least."""
    candidates = options.get("candidates")
    wider = options if candidates is None else {**options, "candidates": max(candidates, 100)}
    return index.search_vectors(queries, 100, **wider)


def _share(wanted: npt.NDArray[np.object_], hits: list[tuple[str, float]]) -> float:
    return len(set(wanted.tolist()) & {name for name, _ in hits}) / len(wanted)


def _quality(qrels: dict[str, dict[str, int]], ten: Run, hundred: Run) -> Numbers:
    if not qrels:
        return {}
    quality = measure_quality(qrels, ten)
    return {
        "ndcg_10": quality.ndcg_10,
        "ndcg_exp_10": quality.ndcg_exp_10,
        "recall_100_judged": measure_quality(qrels, hundred).recall_100,
        "rr_10": quality.rr_10,
    }
