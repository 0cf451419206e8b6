"""Stage 1 with an HNSW graph of the centroids on the CPU: fast for single queries, at the price of memory.

A search collects the best `ef` centroids and drops those of documents that are not allowed. If too few are left it
is repeated with a larger `ef`; if that would take longer than scoring all allowed documents, these are all
candidates.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np

from quarry.engine.backends.hnsw_index import GRAPH_M, build_graph, graph_vector_bytes, index_of
from quarry.engine.backends.protocol import (
    Candidates,
    Resources,
    RowCandidates,
    SearchParameters,
    UnscoredCandidates,
)
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.scoring.ranking import Exactness
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.hnsw_graph import HnswGraph, graph_name, read_graph

__all__ = ["HnswBackend"]

_ROWS_PER_CANDIDATE = 2.5  # centroids collected for each candidate document, if documents have several
_WIDENING = 4  # factor of the search for a query that has found fewer than k documents
_BATCH_RESULTS = 1 << 22  # centroids collected at a time, over all queries
_ROW_BYTES = 4 + 8 + 4  # level, offset, document

_log = logging.getLogger(__name__)


class HnswBackend:
    """Searches the graph stored beside the segment; builds one in memory if there is none.

    Raises:
        FormatError: the graph's file is damaged; it can be deleted.
    """

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.resident_bytes = self.needed_bytes(segment)
        self.device_bytes = 0
        self._n_rows = segment.reader.n_rows
        self._n_docs = segment.reader.passages.n_passages
        self._deleted = segment.deleted_passages
        self._step_rows = resources.graph_step_rows
        self._sizes = np.diff(segment.reader.centroids.offsets)
        self._owners = np.repeat(np.arange(self._n_docs, dtype=np.uint32), self._sizes)
        self._distance_dim = segment.distance_dim
        self._index = index_of(segment, _read_or_build_graph(segment, resources.threads))

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`: vectors, the graph, the document of each centroid, sizes of documents."""
        neighbors = 4 * GRAPH_M * (2 + 1 / (GRAPH_M - 1))
        row_bytes = graph_vector_bytes(segment) + neighbors + _ROW_BYTES
        return int(segment.reader.n_rows * row_bytes) + 8 * segment.reader.passages.n_passages

    def candidates(self, queries: Float32Array, parameters: SearchParameters) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.Backend`."""
        allowed = parameters.allowed
        if allowed is None and self._deleted is not None:
            allowed = ~self._deleted
        n_docs = self._n_docs if allowed is None else int(np.count_nonzero(allowed))
        n_rows = self._n_rows if allowed is None else int(self._sizes[allowed].sum())
        parameters = replace(parameters, k=min(parameters.k, n_docs), allowed=allowed)
        ef = self._first_ef(parameters, n_docs, n_rows)
        batch = max(1, _BATCH_RESULTS // max(1, ef))
        candidates: list[Candidates] = []
        for low in range(0, len(queries), batch):
            stop_if_cancelled()
            candidates += self._search_batch(queries[low : low + batch], parameters, ef, n_rows)
        return candidates

    def _first_ef(self, parameters: SearchParameters, n_docs: int, n_rows: int) -> int:
        """Return the number of centroids that belong to about `parameters.n` allowed documents; all for all."""
        if parameters.n >= n_docs:
            return self._n_rows
        rows_per_candidate = min(_ROWS_PER_CANDIDATE, n_rows / n_docs)
        return min(math.ceil(parameters.n * rows_per_candidate * self._n_rows / n_rows), self._n_rows)

    def _search_batch(
        self, queries: Float32Array, parameters: SearchParameters, ef: int, n_rows: int
    ) -> list[Candidates]:
        if ef * self._step_rows >= n_rows:
            return [UnscoredCandidates(self._all(parameters.allowed), Exactness.EXACT)] * len(queries)
        candidates: list[Candidates] = []
        for query, rows in zip(queries, self._search(queries, ef, parameters.threads), strict=True):
            each = self._candidates_of(rows, parameters.allowed)
            if len(each.docs) >= parameters.k:
                candidates.append(each)
            else:
                candidates += self._search_batch(query[None], parameters, ef * _WIDENING, n_rows)
        return candidates

    def _search(self, queries: Float32Array, ef: int, threads: int) -> Int64Array:
        """Return the best rows: (n_queries, ef) int64, -1 if fewer were found."""
        import faiss

        set_faiss_threads(threads if len(queries) > 1 else 1)
        parameters = faiss.SearchParametersHNSW(efSearch=ef)
        compared = np.ascontiguousarray(queries[:, : self._distance_dim])
        _, rows = self._index.search(compared, ef, params=parameters)
        best: Int64Array = rows
        return best

    def _candidates_of(self, rows: Int64Array, allowed: BoolArray | None) -> RowCandidates:
        """Return the allowed documents of some rows."""
        rows = np.sort(rows[rows >= 0])
        owners = self._owners[rows]
        if allowed is not None:
            keep = allowed[owners]
            rows, owners = rows[keep], owners[keep]
        return RowCandidates(np.unique(owners).astype(np.int64), rows)

    def _all(self, allowed: BoolArray | None) -> Int64Array:
        return np.arange(self._n_docs) if allowed is None else np.flatnonzero(allowed)


def _read_or_build_graph(segment: OpenSegment, threads: int) -> HnswGraph:
    path = segment.reader.path
    try:
        return read_graph(Directory(path.parent), segment.record.file, segment.reader.n_rows)
    except FileNotFoundError:
        name = graph_name(segment.record.file.file_id)
        _log.info("building the graph %s of %d centroids in memory", name, segment.reader.n_rows)
        return build_graph(segment, threads)
