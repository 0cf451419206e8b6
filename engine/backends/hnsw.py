"""Stage 1 on the CPU over an HNSW graph of the centroids: quick for single queries, in much memory.

A graph knows no documents: a search collects the best `ef` centroids, and those of documents that may not be
found are left out. Where too few are left the search is repeated wider, and where that would cost more than to
score every allowed document, all of them are candidates.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.hnsw_index import GRAPH_M, build_graph, index_of
from quarry.engine.backends.protocol import Candidates, Resources, Wanted
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.hnsw_graph import HnswGraph, graph_name, read_graph

__all__ = ["HnswBackend"]

_ROWS_PER_CANDIDATE = 2.5  # centroids collected for each document wanted, where documents have several
_ROWS_PER_STEP = 16  # centroids that are rescored in the time it takes to collect one
_WIDER = 4
_BATCH_RESULTS = 1 << 22  # centroids collected at a time, over all queries
_ROW_BYTES = 4 + 8 + 4  # level, offset, owner

_log = logging.getLogger(__name__)
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class HnswBackend:
    """Searches the graph that lies beside the segment, or one built in memory where there is none.

    Raises:
        FormatError: the graph's file is damaged; it may be deleted.
    """

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        self.resident_bytes = self.needed_bytes(segment)
        self.device_bytes = 0
        self._n_rows = segment.reader.n_rows
        self._n_docs = segment.record.n_docs
        self._deleted = segment.deleted
        self._sizes = np.diff(segment.reader.centroids.offsets)
        self._owners = np.repeat(np.arange(self._n_docs, dtype=np.uint32), self._sizes)
        self._index = index_of(segment, _graph(segment, resources.threads))

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`: vectors in 16 bits, the graph, owners, their sizes."""
        neighbors = 4 * GRAPH_M * (2 + 1 / (GRAPH_M - 1))
        row_bytes = 2 * segment.reader.centroids.dim + neighbors + _ROW_BYTES
        return int(segment.reader.n_rows * row_bytes) + 8 * segment.record.n_docs

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """See `Backend`; the ceiling is known where all allowed documents are in."""
        allowed = wanted.allowed
        if allowed is None and self._deleted is not None:
            allowed = ~self._deleted
        n_docs = self._n_docs if allowed is None else int(np.count_nonzero(allowed))
        n_rows = self._n_rows if allowed is None else int(self._sizes[allowed].sum())
        wanted = replace(wanted, k=min(wanted.k, n_docs), allowed=allowed)
        ef = self._first_ef(wanted, n_docs, n_rows)
        batch = max(1, _BATCH_RESULTS // max(1, ef))
        found: list[Candidates] = []
        for low in range(0, len(queries), batch):
            found += self._candidates(queries[low : low + batch], wanted, ef, n_rows)
        return found

    def _first_ef(self, wanted: Wanted, n_docs: int, n_rows: int) -> int:
        """Centroids to collect so that about `wanted.n` allowed documents own them; all for all documents."""
        if wanted.n >= n_docs:
            return self._n_rows
        rows_per_candidate = min(_ROWS_PER_CANDIDATE, n_rows / n_docs)
        return min(math.ceil(wanted.n * rows_per_candidate * self._n_rows / n_rows), self._n_rows)

    def _candidates(
        self, queries: npt.NDArray[np.float32], wanted: Wanted, ef: int, n_rows: int
    ) -> list[Candidates]:
        if ef * _ROWS_PER_STEP >= n_rows:
            return [Candidates(self._all(wanted.allowed), -np.inf)] * len(queries)
        found = []
        for query, rows in zip(queries, self._search(queries, ef, wanted.threads), strict=True):
            each = self._owned(rows, wanted.allowed)
            if len(each.docs) >= wanted.k:
                found.append(each)
            else:
                found += self._candidates(query[None], wanted, ef * _WIDER, n_rows)
        return found

    def _search(self, queries: npt.NDArray[np.float32], ef: int, threads: int) -> Ints:
        """(n_queries, ef) int64: the best rows found, -1 behind them."""
        import faiss

        set_faiss_threads(threads if len(queries) > 1 else 1)
        parameters = faiss.SearchParametersHNSW(efSearch=ef)
        _, rows = self._index.search(np.ascontiguousarray(queries), ef, params=parameters)
        found: Ints = rows
        return found

    def _owned(self, rows: Ints, allowed: Flags | None) -> Candidates:
        """The allowed documents that own some rows."""
        rows = np.sort(rows[rows >= 0])
        owners = self._owners[rows]
        if allowed is not None:
            may = allowed[owners]
            rows, owners = rows[may], owners[may]
        return Candidates(np.unique(owners).astype(np.int64), np.inf, rows=rows)

    def _all(self, allowed: Flags | None) -> Ints:
        return np.arange(self._n_docs) if allowed is None else np.flatnonzero(allowed)


def _graph(segment: OpenSegment, threads: int) -> HnswGraph:
    path = segment.reader.path
    try:
        return read_graph(Directory(path.parent), segment.record.file, segment.reader.n_rows)
    except FileNotFoundError:
        name = graph_name(segment.record.file.file_id)
        _log.info("building the graph %s of %d centroids in memory", name, segment.reader.n_rows)
        return build_graph(segment, threads)
