"""Builds HNSW graphs with FAISS, and makes FAISS indexes of stored graphs (`quarry.formats.vectors.hnsw_graph`).

FAISS is used instead of hnswlib because it is installed anyway, stores float16 vectors (54 % of the memory; with
the same `ef` a tenth slower, with higher recall; bench/results/graph_library.jsonl), takes `ef` as a parameter of
each search, and exposes its graph as plain arrays. hnswlib builds a graph in 60 % of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.arrays import Float32Array
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.hnsw_graph import HnswGraph

__all__ = ["GRAPH_M", "build_graph", "graph_vector_bytes", "index_of"]

GRAPH_M = 16  # neighbors of a node, twice as many in the lowest level (Malkov and Yashunin 2018)
_EF_CONSTRUCTION = 100  # candidates for the neighbors of a new row
_BATCH_ROWS = 16384


def build_graph(segment: OpenSegment, threads: int) -> HnswGraph:
    """Build the graph of all centroids of a segment, including those of deleted documents.

    With more than one thread the graph differs from run to run.

    Raises:
        ImportError: FAISS is missing.
    """
    index = _empty_index(segment, GRAPH_M)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    set_faiss_threads(threads)
    for batch in _scaled_batches(segment):
        index.add(batch)
    return _graph_of(index)


def index_of(segment: OpenSegment, graph: HnswGraph) -> Any:  # noqa: ANN401
    """Return a FAISS index of a segment's centroids, with a validated graph."""
    import faiss

    index = _empty_index(segment, graph.m)
    hnsw = index.hnsw
    places = np.arange(1, int(graph.levels.max()) + 2, dtype=np.int32) * graph.m
    places[0] = 0
    faiss.copy_array_to_vector(places, hnsw.cum_nneighbor_per_level)
    faiss.copy_array_to_vector(graph.levels.astype(np.int32), hnsw.levels)
    faiss.copy_array_to_vector(graph.offsets.view(np.uint64), hnsw.offsets)
    faiss.copy_array_to_vector(graph.neighbors.view(np.int32), hnsw.neighbors)
    hnsw.entry_point = graph.entry_point
    hnsw.max_level = int(graph.levels.max()) - 1
    _fill(faiss.downcast_index(index.storage), segment)
    index.ntotal = len(graph.levels)
    return index


def _empty_index(segment: OpenSegment, m: int) -> Any:  # noqa: ANN401
    import faiss

    if segment.distance_dim is not None:  # float16 could not hold norms of all magnitudes together
        return faiss.IndexHNSWFlat(segment.distance_dim, m, faiss.METRIC_L2)
    kind = faiss.ScalarQuantizer.QT_fp16
    return faiss.IndexHNSWSQ(segment.reader.centroids.dim, kind, m, faiss.METRIC_INNER_PRODUCT)


def _graph_of(index: Any) -> HnswGraph:  # noqa: ANN401
    import faiss

    hnsw = index.hnsw
    return HnswGraph(
        m=hnsw.nb_neighbors(1),
        entry_point=hnsw.entry_point,
        levels=faiss.vector_to_array(hnsw.levels).astype(np.uint8),
        neighbors=faiss.vector_to_array(hnsw.neighbors).view(np.uint32),
    )


def _fill(storage: Any, segment: OpenSegment) -> None:  # noqa: ANN401
    """Write all vectors in place; `add` would take up to twice their memory."""
    import faiss

    n_rows = segment.reader.n_rows
    dim, dtype = segment.distance_dim or segment.reader.centroids.dim, _stored_type(segment)
    n_bytes = n_rows * dim * dtype.itemsize
    storage.codes.resize(n_bytes)
    codes = faiss.rev_swig_ptr(storage.codes.data(), n_bytes).view(dtype).reshape(n_rows, dim)
    low = 0
    for batch in _scaled_batches(segment):
        codes[low : low + len(batch)] = batch
        low += len(batch)
    storage.ntotal = n_rows


def _scaled_batches(segment: OpenSegment) -> Iterator[Float32Array]:
    """Yield all stored vectors; as float16 they are divided by the largest norm, so that it can hold them."""
    table, vectors = segment.reader.centroids, StoredVectors(segment)
    is_scaled = segment.distance_dim is None and vectors.largest_norm > 0
    scale = np.float32(1 / vectors.largest_norm if is_scaled else 1)
    for low in range(0, table.n_rows, _BATCH_ROWS):
        rows = np.arange(low, min(low + _BATCH_ROWS, table.n_rows))
        yield np.ascontiguousarray(vectors.vectors(rows)[:, : segment.distance_dim] * scale)


def _stored_type(segment: OpenSegment) -> np.dtype[np.floating[Any]]:
    return np.dtype(np.float16 if segment.distance_dim is None else np.float32)


def graph_vector_bytes(segment: OpenSegment) -> int:
    """Return the memory of one vector in the index of `index_of`."""
    return (segment.distance_dim or segment.reader.centroids.dim) * _stored_type(segment).itemsize
