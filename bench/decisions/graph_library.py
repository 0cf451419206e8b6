"""Which library searches a graph of centroids: hnswlib, or FAISS with vectors of 32 or 16 bits.

All three build a graph of M 16 with 100 candidates for the neighbors of a row, over the vectors of the first
segment of an index, and answer the same queries in turn: the rows with the largest inner products. Why
`quarry.engine.backends.hnsw_index` is what it is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.data.query_vectors import add_queries, read_queries
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry.engine.backends.hnsw_index import GRAPH_M, build_graph, index_of
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["add_arguments", "run"]

_EF = (64, 128, 256)
_EF_CONSTRUCTION = 100
Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


class _Graph(NamedTuple):
    """A graph that was built: name, bytes a row, seconds of the processor for building, query and ef -> rows."""

    name: str
    row_bytes: float
    build_cpu_s: float
    find: Callable[[Vectors, int], Rows]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The index, the queries, where results go."""
    parser.add_argument("index", type=Path)
    add_queries(parser, 200)
    add_out(parser, "graph_library")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    snapshot = Snapshot(Directory(options.index))
    segment = max(snapshot.segments, key=lambda each: each.reader.n_rows)
    vectors = StoredVectors(segment).vectors(np.arange(segment.reader.n_rows))
    queries = read_queries(options, segment)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    makes = [_hnswlib, _faiss, _quarry] if find_spec("hnswlib") else [_faiss, _quarry]
    graphs = [_built(make, segment, vectors) for make in makes]
    for ef in _EF:
        times, recalls = _in_turn(graphs, queries, exact, ef)
        for graph in graphs:
            record = {
                "library": graph.name,
                "ef": ef,
                "n_rows": len(vectors),
                "dim": vectors.shape[1],
                "cpu_p50_ms": float(np.median(times[graph.name]) * 1e3),
                "recall_at_10": float(np.mean(recalls[graph.name])),
                "row_bytes": graph.row_bytes,
                "build_cpu_s": graph.build_cpu_s,
            }
            print(record, flush=True)
            append_record(options.out, {**record, **circumstances()})
    snapshot.close()
    return 0


def _in_turn(
    graphs: list[_Graph], queries: Vectors, exact: Rows, ef: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of the processor, and shares of the exact rows found, by graph."""
    times: dict[str, list[float]] = {graph.name: [] for graph in graphs}
    recalls: dict[str, list[float]] = {graph.name: [] for graph in graphs}
    for query, best in zip(queries, exact, strict=True):
        for graph in graphs:
            worked = time.process_time()
            rows = graph.find(query[None], ef)
            times[graph.name].append(time.process_time() - worked)
            recalls[graph.name].append(len(np.intersect1d(rows[:10], best)) / len(best))
    return times, recalls


_Made = tuple[str, float, Callable[[Vectors, int], Rows]]


def _built(make: Callable[[OpenSegment, Vectors], _Made], segment: OpenSegment, vectors: Vectors) -> _Graph:
    worked = time.process_time()
    name, row_bytes, find = make(segment, vectors)
    return _Graph(name, row_bytes, time.process_time() - worked, find)


def _hnswlib(segment: OpenSegment, vectors: Vectors) -> _Made:
    import hnswlib

    index = hnswlib.Index("ip", vectors.shape[1])
    index.init_index(len(vectors), M=GRAPH_M, ef_construction=_EF_CONSTRUCTION, random_seed=1)
    index.add_items(vectors, num_threads=1)
    index.set_ef(1)  # so that ef is the number of requested rows
    return (
        "hnswlib",
        index.index_file_size() / len(vectors),
        lambda query, ef: index.knn_query(query, k=ef, num_threads=1)[0][0].astype(np.int64),
    )


def _faiss(segment: OpenSegment, vectors: Vectors) -> _Made:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(vectors.shape[1], GRAPH_M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.add(vectors)
    return "faiss, 32 bits", len(faiss.serialize_index(index)) / len(vectors), _found_by(index)


def _quarry(segment: OpenSegment, vectors: Vectors) -> _Made:
    import faiss

    index = index_of(segment, build_graph(segment, 1))
    return "faiss, 16 bits", len(faiss.serialize_index(index)) / len(vectors), _found_by(index)


def _found_by(index: object) -> Callable[[Vectors, int], Rows]:
    import faiss

    def find(query: Vectors, ef: int) -> Rows:
        rows: Rows = index.search(query, ef, params=faiss.SearchParametersHNSW(efSearch=ef))[1][0]  # type: ignore[attr-defined]
        return rows

    return find
