"""Builds and searches the index of one setting of `bench.sweep.tradeoff`, from prepared vectors.

Both functions are called by `bench.harness.fresh_process`, so that memory and time to open are measured
separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from bench.data.prepared import Prepared
from bench.data.quality import measure_quality
from bench.data.trec_run import Run, write_run
from bench.harness.latency import concurrent_latency_ms, latency_ms
from bench.harness.process_memory import peak_rss_bytes, rss_bytes
from quarry.engine import Engine, Hits
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.building.plan import BuildPlan
from quarry.engine.choices import BackendName
from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.indexer.batches.document_encoder import EncodedDocument
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.options import BuildKeywords, OpenOptions, SearchKeywords
from quarry.engine.representation.base import DocumentVectors
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["build_index", "search_index"]

Parameters = dict[str, object]
Numbers = dict[str, object]
Found = list[tuple[str, float]]
_N_TIMED = 500  # queries that are timed; quality is measured on all


class _PreparedEncoder:
    """An encoder with the identity of the one whose vectors were prepared; it encodes no documents.

    Attributes:
        dim: dimension of a vector.
        beta: inverse temperature of the softmax aggregation; None: maximum.
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
        """Raise NotImplementedError: documents were encoded before."""
        raise NotImplementedError(text)

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """Encode with the bundled encoder if its vectors were prepared; builds calibrate searches with queries."""
        if self._bundled.identity != self.identity:
            raise NotImplementedError(f"there is no encoder of the vectors of {self.name}")
        return self._bundled.encode_query(text)

    @cached_property
    def _bundled(self) -> Encoder:
        return open_encoder()


def build_index(parameters: Parameters) -> Numbers:
    """Build an index of prepared vectors, with texts and words as ever.

    Args:
        parameters: ``prepared`` and ``out`` (folders), and the fields of `bench.sweep.grid.IndexSetting`;
            ``beta`` of the aggregation may be among them.

    Returns:
        build_s (without encoding), build_peak_rss_bytes, nlist (0: no lists), n_documents, n_centroids,
        bytes (by part), size_bytes.
    """
    prepared, out = Prepared(Path(str(parameters["prepared"]))), Path(str(parameters["out"]))
    encoder = _PreparedEncoder(prepared, cast("float | None", parameters.get("beta")))
    settings = BuildPlan.of(encoder, None, cast(BuildKeywords, parameters["build"])).settings()
    thresholds, threads = _thresholds(parameters), OpenOptions().n_threads
    documents = _encoded_documents(prepared, str(parameters["representation"]), Analyzer(settings.language))
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    writer = IndexWriter(Directory(out), encoder, threads, fresh=settings, thresholds=thresholds)
    with closing(writer):
        for document in documents:
            writer.add_batch(EncodedBatch.of([document], writer.metric))
        writer.commit()
    numbers: Numbers = {"build_s": time.perf_counter() - started, "build_peak_rss_bytes": peak_rss_bytes()}
    with Engine.open(out) as index:
        statistics, n_documents = index.stats(), len(index)
    return numbers | {
        "nlist": _count_lists(out),
        "n_documents": n_documents,
        "n_centroids": writer.n_rows,
        "bytes": statistics["bytes"],
        "size_bytes": statistics["size_bytes"],
    }


def _count_lists(out: Path) -> int:
    """Return the number of inverted lists of the first segment."""
    snapshot = Snapshot(Directory(out))
    quantizer = snapshot.segments[0].quantizer
    snapshot.close()
    return quantizer.nlist if quantizer else 0


def _thresholds(parameters: Parameters) -> Thresholds:
    """Return when there are inverted lists, and how many, as a setting requests."""
    nlist = cast("int | None", parameters["nlist"])
    return (
        Thresholds(list_rows=1, training_rows=1, nlist=nlist) if parameters["lists"] else Thresholds(nlist=nlist)
    )


def _encoded_documents(prepared: Prepared, representation: str, analyzer: Analyzer) -> Iterator[EncodedDocument]:
    """Yield the prepared documents with their prepared vectors, in order."""
    values, offsets = prepared.vectors(representation)
    for number, (name, text) in enumerate(zip(*prepared.documents(), strict=True)):
        document = Document(name, text or ".")
        rows = np.array(values[offsets[number] : offsets[number + 1]])
        made = DocumentVectors(rows, tuple(() for _ in rows))
        yield EncodedDocument(document, made, analyzer.terms(document.full_text), 0)


def search_index(parameters: Parameters) -> Numbers:
    """Search an index with the prepared query vectors.

    Args:
        parameters: ``prepared``, ``out`` (the index), ``representation``, ``backend``, ``nprobe``,
            ``candidates``, and ``run``: path of a TREC run file for the answers, or None.

    Returns:
        open_ms, first_answer_ms, rss_bytes and peak_rss_bytes (one thread); p50_ms, p95_ms, p99_ms and qps of 10
        hits with one thread, the same with the prefix ``callers_`` with one caller per core (n_callers); qps_all
        of one batch on all threads; the numbers of `_evaluate`; chosen: the backends that searched; memory, as the
        engine reports it.
    """
    prepared, options = Prepared(Path(str(parameters["prepared"]))), _search_options(parameters)
    queries = prepared.query_vectors()
    numbers = _time_single_queries(
        str(parameters["out"]), cast(BackendName, parameters["backend"]), queries, options
    )
    with Engine.open(str(parameters["out"]), backend=cast(BackendName, parameters["backend"])) as index:
        numbers |= _time_on_all_threads(index, queries, options)
        ten = _ids_and_scores(index.search_vectors(queries, 10, **options))
        hundred = _ids_and_scores(_search_hundred(index, queries, options))
        statistics = index.stats()
    numbers["memory"] = statistics["memory"]
    numbers["chosen"] = list(cast(dict[str, dict[str, object]], statistics["backend"])["chosen"])
    if parameters.get("run"):
        write_run(Path(str(parameters["run"])), _make_run(prepared, hundred), tag="quarry")
    return numbers | _evaluate(prepared, str(parameters["representation"]), ten, hundred)


def _evaluate(prepared: Prepared, representation: str, ten: list[Found], hundred: list[Found]) -> Numbers:
    """Return recall of an exact search over the vectors before quantization, and quality.

    Args:
        prepared: the collection.
        representation: key of the vectors.
        ten: ids and scores of the 10 hits of each query, best first.
        hundred: likewise of 100 hits.

    Returns:
        recall_10 and recall_100, each of its search; if there are judgments, ndcg_10 (linear gain), ndcg_exp_10
        and rr_10 of the first search and recall_100_judged of the second.
    """
    names = np.array(prepared.documents()[0], object)[prepared.oracle(representation)]
    numbers: Numbers = {}
    for k, found in ((10, ten), (100, hundred)):
        shares = [_overlap(expected[:k], hits) for expected, hits in zip(names, found, strict=True)]
        numbers[f"recall_{k}"] = float(np.mean(shares))
    return numbers | _measure_quality(prepared.qrels(), _make_run(prepared, ten), _make_run(prepared, hundred))


def _ids_and_scores(answers: list[Hits]) -> list[Found]:
    return [[(hit.id, hit.score) for hit in hits] for hits in answers]


def _make_run(prepared: Prepared, found: list[Found]) -> Run:
    return dict(zip(prepared.queries()[0], map(dict, found), strict=True))


def _search_options(parameters: Parameters) -> SearchKeywords:
    chosen = {name: parameters[name] for name in ("nprobe", "candidates") if parameters[name] is not None}
    return cast(SearchKeywords, chosen)


def _time_single_queries(
    out: str, backend: BackendName, queries: npt.NDArray[np.float32], options: SearchKeywords
) -> Numbers:
    started = time.perf_counter()
    with Engine.open(out, backend=backend, threads=1) as index:
        opened = time.perf_counter()
        index.search_vectors(queries[:1], 10, **options)
        answered = time.perf_counter()
        times = latency_ms(_make_searcher(index, queries, options), range(min(_N_TIMED, len(queries))))
        return {
            "open_ms": (opened - started) * 1e3,
            "first_answer_ms": (answered - opened) * 1e3,
            "rss_bytes": rss_bytes(),
            "peak_rss_bytes": peak_rss_bytes(),
            **times,
        }


def _time_on_all_threads(index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords) -> Numbers:
    """Time one batch of all queries, then single queries of as many callers as there are cores."""
    timed, n_callers = queries[:_N_TIMED], OpenOptions().n_threads
    index.search_vectors(timed[:n_callers], 10, **options)
    started = time.perf_counter()
    index.search_vectors(timed, 10, **options)
    numbers: Numbers = {"qps_all": len(timed) / (time.perf_counter() - started), "n_callers": n_callers}
    search = _make_searcher(index, timed, options)
    return numbers | concurrent_latency_ms(search, range(len(timed)), n_callers, "callers_")


def _make_searcher(
    index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords
) -> Callable[[int], list[Hits]]:
    """Return a function that searches 10 hits for the query with a number."""
    return lambda number: index.search_vectors(queries[number : number + 1], 10, **options)


def _search_hundred(index: Engine, queries: npt.NDArray[np.float32], options: SearchKeywords) -> list[Hits]:
    """Return 100 hits for each query, from at least as many candidates."""
    candidates = options.get("candidates")
    wider = options if candidates is None else {**options, "candidates": max(candidates, 100)}
    return index.search_vectors(queries, 100, **wider)


def _overlap(expected: npt.NDArray[np.object_], hits: list[tuple[str, float]]) -> float:
    return len(set(expected.tolist()) & {name for name, _ in hits}) / len(expected)


def _measure_quality(qrels: dict[str, dict[str, int]], ten: Run, hundred: Run) -> Numbers:
    if not qrels:
        return {}
    quality = measure_quality(qrels, ten)
    return {
        "ndcg_10": quality.ndcg_10,
        "ndcg_exp_10": quality.ndcg_exp_10,
        "recall_100_judged": measure_quality(qrels, hundred).recall_100,
        "rr_10": quality.rr_10,
    }
