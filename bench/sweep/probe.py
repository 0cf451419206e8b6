"""Builds and searches the index of one setting of `bench.sweep.tradeoff`, from prepared vectors.

Both functions are called by `bench.harness.fresh_process`, so that memory and time to open are measured
separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bench.data.prepared import Prepared
from bench.data.quality import Run, measure_quality, write_run
from bench.harness.fresh_process import peak_rss_bytes, rss_bytes
from bench.harness.latency import concurrent_latency_ms, latency_ms
from quarry.engine import Encoder, Engine, Hits, TokenVectors, build, open_encoder
from quarry.engine.process.cpus import n_cpus
from quarry.engine.thresholds import Thresholds

__all__ = ["build_index", "search_index"]

Parameters = dict[str, object]
Numbers = dict[str, object]
Options = dict[str, Any]
Ranking = list[tuple[str, float]]
_N_TIMED = 500  # queries that are timed; quality is measured on all


class _PreparedEncoder:
    """An encoder with the identity of the one whose vectors were prepared; it encodes no documents.

    Attributes:
        dim: dimension of a vector.
    """

    normalize = True
    beta = None
    vector_kinds = frozenset({"token"})
    trained_representation = None

    def __init__(self, prepared: Prepared) -> None:
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
        parameters: ``prepared`` and ``out`` (folders), and the fields of `bench.sweep.tradeoff.IndexSetting`.

    Returns:
        build_s (without encoding), build_peak_rss_bytes, n_documents, n_centroids, bytes (by part), size_bytes.
    """
    prepared, out = Prepared(Path(str(parameters["prepared"]))), str(parameters["out"])
    encoder = cast(Encoder, _PreparedEncoder(prepared))
    documents = _documents(prepared, str(parameters["representation"]))
    lists: dict[str, Any] = {"list_rows": 1, "training_rows": 1} if parameters["lists"] else {}
    thresholds = Thresholds(nlist=cast("int | None", parameters["nlist"]), **lists)
    settings = cast(dict[str, Any], parameters["build"])
    report = build(documents, out, encoder=encoder, thresholds=thresholds, progress=False, **settings)
    numbers: Numbers = {"build_s": report.duration_s, "build_peak_rss_bytes": peak_rss_bytes()}
    with Engine.open(out) as index:
        statistics = index.stats()
    return numbers | {name: statistics[name] for name in ("n_documents", "n_centroids", "bytes", "size_bytes")}


def _documents(prepared: Prepared, representation: str) -> Iterator[dict[str, object]]:
    """Yield the prepared documents with their prepared vectors, in order."""
    values, offsets = prepared.vectors(representation)
    for number, (name, text) in enumerate(zip(*prepared.documents(), strict=True)):
        yield {"id": name, "text": text or ".", "vectors": values[offsets[number] : offsets[number + 1]]}


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
    out, backend = str(parameters["out"]), cast(Any, parameters["backend"])
    numbers = _time_single_queries(out, backend, queries, options)
    with Engine.open(out, backend=backend) as index:
        numbers |= _time_on_all_threads(index, queries, options)
        ten = _ids_and_scores(index.search_vectors(queries, 10, **options))
        hundred = _ids_and_scores(_search_hundred(index, queries, options))
        statistics = index.stats()
    numbers["memory"] = statistics["memory"]
    numbers["chosen"] = list(cast(dict[str, dict[str, object]], statistics["backend"])["chosen"])
    if parameters.get("run"):
        write_run(Path(str(parameters["run"])), _make_run(prepared, hundred), tag="quarry")
    return numbers | _evaluate(prepared, str(parameters["representation"]), ten, hundred)


def _evaluate(prepared: Prepared, representation: str, ten: list[Ranking], hundred: list[Ranking]) -> Numbers:
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
    for k, answers in ((10, ten), (100, hundred)):
        shares = [_overlap(expected[:k], hits) for expected, hits in zip(names, answers, strict=True)]
        numbers[f"recall_{k}"] = float(np.mean(shares))
    return numbers | _measure_quality(prepared.qrels(), _make_run(prepared, ten), _make_run(prepared, hundred))


def _ids_and_scores(answers: list[Hits]) -> list[Ranking]:
    return [[(hit.id, hit.score) for hit in hits] for hits in answers]


def _make_run(prepared: Prepared, rankings: list[Ranking]) -> Run:
    return dict(zip(prepared.queries()[0], map(dict, rankings), strict=True))


def _search_options(parameters: Parameters) -> Options:
    return {name: parameters[name] for name in ("nprobe", "candidates") if parameters[name] is not None}


def _time_single_queries(
    out: str,
    backend: Any,  # noqa: ANN401  # a name
    queries: npt.NDArray[np.float32],
    options: Options,
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


def _time_on_all_threads(index: Engine, queries: npt.NDArray[np.float32], options: Options) -> Numbers:
    """Time one batch of all queries, then single queries of as many callers as there are cores."""
    timed, n_callers = queries[:_N_TIMED], n_cpus()
    index.search_vectors(timed[:n_callers], 10, **options)
    started = time.perf_counter()
    index.search_vectors(timed, 10, **options)
    numbers: Numbers = {"qps_all": len(timed) / (time.perf_counter() - started), "n_callers": n_callers}
    search = _make_searcher(index, timed, options)
    return numbers | concurrent_latency_ms(search, range(len(timed)), n_callers, "callers_")


def _make_searcher(
    index: Engine, queries: npt.NDArray[np.float32], options: Options
) -> Callable[[int], list[Hits]]:
    """Return a function that searches 10 hits for the query with a number."""
    return lambda number: index.search_vectors(queries[number : number + 1], 10, **options)


def _search_hundred(index: Engine, queries: npt.NDArray[np.float32], options: Options) -> list[Hits]:
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
