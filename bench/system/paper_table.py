"""Measures the times of the pseudo-query paper's Table 4 (Tang et al. 2021) on this machine.

Offline: a document through the encoder, its k-means, both. Online: a query through the encoder; retrieval with the
two-step optimization of section 3.3 (maximum first, softmax of the retrieved documents), without it (softmax of
all), with one vector per document ("independent aggregator"), and with late interaction (every query token against
every centroid, sum of the maxima). Retrieval is in plain numpy over the same float32 vectors, one query at a time
on one thread, and with two steps also in Quarry.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from bench.data.collections import add_collection, load_collection
from bench.data.prepare import prepare, representation_key
from bench.data.prepared import Prepared, cache_folder
from bench.harness.fresh_process import in_fresh_process
from bench.harness.latency import latency_ms
from bench.harness.records import add_out, append_result
from quarry.engine import Engine
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.single import Mean
from quarry.engine.scoring.aggregation import aggregate

__all__ = ["PAPER_MS", "add_arguments", "retrieve_two_steps", "run", "time_retrieval"]

_N_ENCODED = 200
_N_TIMED = 100
_K = 100
_N_CANDIDATES = 1000
_BETA = 1.0

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Times = dict[str, float]

PAPER_MS = {
    "document through the encoder": 0.9,
    "k-means of a document": 2.1,
    "document, both": 2.3,
    "query through the encoder": 0.5,
    "retrieval, two steps": 180.0,
    "retrieval, softmax of all": 880.0,
    "retrieval, one vector": 100.0,
    "retrieval, late interaction": 940.0,
}
"""Table 4: 3.2 million documents of MS MARCO, BERT-base on a V100."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench paper_table``."""
    add_collection(parser, queries=1000)
    add_out(parser, "paper_table")
    parser.add_argument("--centroids", type=int, default=8, help="k of k-means (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the raw results."""
    collection = load_collection(args)
    encoder, kmeans = open_encoder(), KMeans(args.centroids)
    prepared = prepare(collection, encoder, [Mean(), kmeans], cache_folder())
    about = {**prepared.about(), "centroids": args.centroids, "n_timed": _N_TIMED}
    texts = list(collection.documents.values())
    rows = [*_time_offline(texts, encoder, kmeans), *_time_online(prepared, encoder, representation_key(kmeans))]
    print(f"{'milliseconds, p50':<34} {'here':>10} {'paper':>8}")
    for name, times in rows:
        append_result(args.out, {"name": name, **times, "paper_ms": PAPER_MS.get(name), **about})
        print(f"{name:<34} {times['p50_ms']:>10.3f} {PAPER_MS.get(name, float('nan')):>8.1f}", flush=True)
    return 0


def _time_offline(texts: list[str], encoder: Encoder, kmeans: KMeans) -> Iterator[tuple[str, Times]]:
    """Yield times for one document at a time on one thread."""
    chosen = texts[:: max(1, len(texts) // _N_ENCODED)][:_N_ENCODED]
    windows = {text: list(encoder.windows(text)) for text in chosen}
    yield "document through the encoder", latency_ms(lambda text: list(encoder.windows(text)), chosen)
    yield (
        "k-means of a document",
        latency_ms(lambda text: kmeans.represent(text, windows[text], encoder.normalize), chosen),
    )
    yield (
        "document, both",
        latency_ms(lambda text: kmeans.represent(text, encoder.windows(text), encoder.normalize), chosen),
    )


def _time_online(prepared: Prepared, encoder: Encoder, key: str) -> Iterator[tuple[str, Times]]:
    yield "query through the encoder", latency_ms(encoder.encode_query, prepared.queries()[1][:_N_TIMED])
    parameters: dict[str, object] = {"prepared": str(prepared.folder.resolve()), "key": key}
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found = in_fresh_process("bench.system.paper_table:time_retrieval", parameters, environment=one_thread)
    yield from cast(dict[str, Times], found).items()
    yield "retrieval, two steps, Quarry", _time_quarry(prepared, key)


def time_retrieval(parameters: dict[str, object]) -> dict[str, Times]:
    """Time the four methods of retrieval in numpy, with the number of threads that the environment sets.

    Args:
        parameters: ``prepared`` (a folder) and ``key`` of the centroids.

    Returns:
        Times by method, see `bench.harness.latency.latency_ms`.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    values, offsets = prepared.vectors(str(parameters["key"]))
    centroids, means = np.array(values), np.array(prepared.vectors("mean")[0])
    vectors = list(prepared.query_vectors()[:_N_TIMED])
    methods: dict[str, Callable[[Floats], object]] = {
        "retrieval, two steps": lambda query: retrieve_two_steps(query, centroids, offsets),
        "retrieval, softmax of all": lambda query: _find_best(aggregate(centroids @ query, offsets, _BETA)),
        "retrieval, one vector": lambda query: _find_best(means @ query),
    }
    times = {name: latency_ms(method, vectors) for name, method in methods.items()}
    encoder = open_encoder()
    tokens = [next(iter(encoder.windows(text))).values for text in prepared.queries()[1][:_N_TIMED]]
    late = latency_ms(lambda each: _retrieve_late(each, centroids, offsets), tokens)
    return {**times, "retrieval, late interaction": late}


def retrieve_two_steps(query: Floats, centroids: Floats, offsets: Ints) -> Ints:
    """Return the first 100 documents by the method of section 3.3 of Tang et al. 2021.

    First the best 1000 documents by their maximum (Eq. 7), then the softmax aggregation (Eq. 4-6) of these.

    Args:
        query: (dim,) float32.
        centroids: (n_rows, dim) float32.
        offsets: (n_documents + 1,) int64, first row of each document.

    Returns:
        (100 or fewer,) int64 ordinals, best first.
    """
    scores = centroids @ query
    candidates = np.sort(_find_best(aggregate(scores, offsets, None), _N_CANDIDATES))
    counts = np.diff(offsets)[candidates]
    starts = np.concatenate(([0], np.cumsum(counts)))
    rows = np.repeat(offsets[candidates] - starts[:-1], counts) + np.arange(starts[-1])
    return candidates[_find_best(aggregate(scores[rows], starts, _BETA))]


def _retrieve_late(tokens: Floats, centroids: Floats, offsets: Ints) -> Ints:
    """Return the best documents by the sum over query tokens of the maximum over a document's centroids."""
    return _find_best(np.maximum.reduceat(centroids @ tokens.T, offsets[:-1], axis=0).sum(axis=1))


def _find_best(scores: Floats, n: int = _K) -> Ints:
    n = min(n, len(scores))
    found = np.argpartition(-scores, n - 1)[:n]
    return found[np.argsort(-scores[found], kind="stable")]


def _time_quarry(prepared: Prepared, key: str) -> Times:
    """Time the engine for 100 hits with the paper's aggregation."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "index"
        setting: dict[str, object] = {
            "representation": key,
            "build": {},
            "nlist": None,
            "lists": False,
            "beta": _BETA,
        }
        folders = {"prepared": str(prepared.folder.resolve()), "out": str(path)}
        in_fresh_process("bench.sweep.probe:build_index", {**setting, **folders})
        queries = prepared.query_vectors()[:_N_TIMED]
        with Engine.open(path, threads=1) as index:
            index.search_vectors(queries[:1], _K)
            return latency_ms(
                lambda query: index.search_vectors(query[None], _K, candidates=_N_CANDIDATES), list(queries)
            )
