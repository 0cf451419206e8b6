"""The times of the pseudo-query paper's Table 4 (Tang et al. 2021), measured on this machine.

Offline: a document through the encoder, its k-means, both. Online: a query through the encoder; retrieval with the
two-step optimization of section 3.3 (maximum first, softmax of the recalled documents), without it (softmax of
all), with an independent aggregator (one vector per document), and with late interaction (every query token
against every centroid, maxima summed). In plain numpy over the same float32 vectors, one query at a time on one
thread; and as Quarry does it.
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
from bench.harness.environment import circumstances
from bench.harness.fresh_process import in_fresh_process
from bench.harness.latency import latency_ms
from bench.harness.records import add_out, append_record
from quarry.engine import Engine
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.single import Mean
from quarry.engine.scoring.aggregation import aggregate

__all__ = ["PAPER_MS", "add_arguments", "retrieve", "run", "two_steps"]

_N_ENCODED = 200
_N_TIMED = 100
_K = 100
_RECALLED = 1000
_BETA = 1.0

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

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
    encoder, clusters = open_encoder(), KMeans(args.centroids)
    prepared = prepare(collection, encoder, [Mean(), clusters], cache_folder())
    about = {**prepared.about(), **circumstances(), "centroids": args.centroids, "n_timed": _N_TIMED}
    texts = list(collection.documents.values())
    rows = [*_offline(texts, encoder, clusters), *_online(prepared, encoder, representation_key(clusters))]
    print(f"{'milliseconds, p50':<34} {'here':>10} {'paper':>8}")
    for name, times in rows:
        append_record(args.out, {"name": name, **times, "paper_ms": PAPER_MS.get(name), **about})
        print(f"{name:<34} {times['p50_ms']:>10.3f} {PAPER_MS.get(name, float('nan')):>8.1f}", flush=True)
    return 0


def _offline(texts: list[str], encoder: Encoder, clusters: KMeans) -> Iterator[tuple[str, dict[str, float]]]:
    """One document at a time, one thread."""
    chosen = texts[:: max(1, len(texts) // _N_ENCODED)][:_N_ENCODED]
    windows = {text: list(encoder.windows(text)) for text in chosen[:1]}
    yield (
        "document through the encoder",
        latency_ms(lambda text: windows.update({text: list(encoder.windows(text))}), chosen),
    )
    times = latency_ms(lambda text: clusters.represent(text, windows[text], encoder.normalize), chosen)
    yield "k-means of a document", times
    both = latency_ms(lambda text: clusters.represent(text, encoder.windows(text), encoder.normalize), chosen)
    yield "document, both", both


def _online(prepared: Prepared, encoder: Encoder, key: str) -> Iterator[tuple[str, dict[str, float]]]:
    yield "query through the encoder", latency_ms(encoder.encode_query, prepared.queries()[1][:_N_TIMED])
    parameters: dict[str, object] = {"prepared": str(prepared.folder.resolve()), "key": key}
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found = in_fresh_process("bench.system.paper_table:retrieve", parameters, environment=one_thread)
    yield from cast(dict[str, dict[str, float]], found).items()
    yield "retrieval, two steps, Quarry", _by_quarry(prepared, key)


def retrieve(parameters: dict[str, object]) -> dict[str, dict[str, float]]:
    """The four ways to retrieve, in numpy, which takes as many threads as the environment says.

    Args:
        parameters: ``prepared`` (a folder) and ``key`` of the centroids.

    Returns:
        For each way its times, see `bench.harness.latency.latency_ms`.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    values, offsets = prepared.vectors(str(parameters["key"]))
    centroids, means = np.array(values), np.array(prepared.vectors("mean")[0])
    vectors = list(prepared.query_vectors()[:_N_TIMED])
    ways: dict[str, Callable[[Floats], object]] = {
        "retrieval, two steps": lambda query: two_steps(query, centroids, offsets),
        "retrieval, softmax of all": lambda query: _best(aggregate(centroids @ query, offsets, _BETA)),
        "retrieval, one vector": lambda query: _best(means @ query),
    }
    times = {name: latency_ms(way, vectors) for name, way in ways.items()}
    encoder = open_encoder()
    tokens = [next(iter(encoder.windows(text))).values for text in prepared.queries()[1][:_N_TIMED]]
    late = latency_ms(lambda each: _late(each, centroids, offsets), tokens)
    return {**times, "retrieval, late interaction": late}


def two_steps(query: Floats, centroids: Floats, offsets: Ints) -> Ints:
    """The first 100 documents as section 3.3 of Tang et al. 2021 finds them.

    The best 1000 documents by their maximum (Eq. 7), then the softmax aggregation (Eq. 4-6) of these alone.

    Args:
        query: (dim,) float32.
        centroids: (n_rows, dim) float32.
        offsets: (n_documents + 1,) int64: a document's first row.

    Returns:
        (100 or fewer,) int64 ordinals, best first.
    """
    scores = centroids @ query
    recalled = np.sort(_best(aggregate(scores, offsets, None), _RECALLED))
    counts = np.diff(offsets)[recalled]
    starts = np.concatenate(([0], np.cumsum(counts)))
    rows = np.repeat(offsets[recalled] - starts[:-1], counts) + np.arange(starts[-1])
    return recalled[_best(aggregate(scores[rows], starts, _BETA))]


def _late(tokens: Floats, centroids: Floats, offsets: Ints) -> Ints:
    """For every token of the query the maximum over a document's centroids; their sum."""
    return _best(np.maximum.reduceat(centroids @ tokens.T, offsets[:-1], axis=0).sum(axis=1))


def _best(scores: Floats, n: int = _K) -> Ints:
    n = min(n, len(scores))
    found = np.argpartition(-scores, n - 1)[:n]
    return found[np.argsort(-scores[found], kind="stable")]


def _by_quarry(prepared: Prepared, key: str) -> dict[str, float]:
    """100 hits by the engine, from an index with the softmax of the paper."""
    with tempfile.TemporaryDirectory() as work:
        setting: dict[str, object] = {
            "representation": key,
            "build": {},
            "nlist": None,
            "lists": False,
            "beta": _BETA,
        }
        places = {"prepared": str(prepared.folder.resolve()), "out": str(Path(work) / "index")}
        in_fresh_process("bench.sweep.probe:build_index", {**setting, **places})
        queries = prepared.query_vectors()[:_N_TIMED]
        with Engine.open(Path(work) / "index", threads=1) as index:
            index.search_vectors(queries[:1], _K)
            return latency_ms(
                lambda query: index.search_vectors(query[None], _K, candidates=_RECALLED), list(queries)
            )
