"""Stage 1 on the CPU with FAISS: IVF lists of 4-bit PQ codes, scanned with SIMD look-ups.

The index is made from the segment's own neutral arrays when the backend is opened; FAISS interleaves the
codes in blocks of 32, so they are copied (code_bytes + 8 bytes a centroid).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.protocol import Candidates
from formats.inverted_lists import InvertedLists
from formats.quantizer import Quantizer
from formats.snapshot import OpenSegment

__all__ = ["FaissBackend", "default_nprobe"]

_ROWS_PER_CANDIDATE = 2  # rows asked of FAISS for each document wanted; documents have several centroids


def default_nprobe(nlist: int) -> int:
    """Lists read where a query does not say."""
    return max(1, nlist // 16)


class FaissBackend:
    """Finds rows by their codes and returns the documents that own them."""

    def __init__(self, segment: OpenSegment) -> None:
        assert segment.reader.lists is not None
        assert segment.quantizer is not None
        self._table = segment.reader.centroids
        self._n_live = segment.record.n_docs - segment.record.n_deleted
        self._rotation = segment.quantizer.rotation
        self._nlist = segment.quantizer.nlist
        live = None if segment.deleted is None else ~segment.deleted
        self._index = _faiss_index(segment.quantizer, segment.reader.lists, self._live_rows(live))

    def _live_rows(self, live: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
        return None if live is None else np.repeat(live, np.diff(self._table.offsets))

    def candidates(
        self, queries: npt.NDArray[np.float32], n: int, nprobe: int | None, threads: int
    ) -> list[Candidates]:
        """See `engine.backends.protocol.Backend`.

        Where the probed lists hold too few documents more lists are read, in the end all of them.
        """
        n = min(n, self._n_live)
        nprobe = min(nprobe or default_nprobe(self._nlist), self._nlist)
        turned = queries if self._rotation is None else queries @ self._rotation.T
        found = [
            self._distinct(rows, n) for rows in self._search(turned, n * _ROWS_PER_CANDIDATE, nprobe, threads)
        ]
        return [
            Candidates(docs if len(docs) >= n else self._more(query, n, nprobe), np.inf)
            for query, docs in zip(turned, found, strict=True)
        ]

    def _more(self, query: npt.NDArray[np.float32], n: int, nprobe: int) -> npt.NDArray[np.int64]:
        """The same for one query with more rows and more lists, until there are n documents."""
        n_rows = n * _ROWS_PER_CANDIDATE
        while True:
            nprobe = min(nprobe * 2, self._nlist)
            n_rows = min(n_rows * 4, self._table.n_rows)
            docs = self._distinct(self._search(query[None], n_rows, nprobe, 1)[0], n)
            if len(docs) >= n or (nprobe == self._nlist and n_rows == self._table.n_rows):
                return docs

    def _search(
        self, queries: npt.NDArray[np.float32], n_rows: int, nprobe: int, threads: int
    ) -> npt.NDArray[np.int64]:
        """(n_queries, n_rows) int64 row ordinals, best first, -1 where there are no more."""
        import faiss

        faiss.omp_set_num_threads(threads if len(queries) > 1 else 1)
        parameters = faiss.SearchParametersIVF(nprobe=nprobe)
        rows: npt.NDArray[np.int64] = self._index.search(np.ascontiguousarray(queries), n_rows, params=parameters)[
            1
        ]
        return rows

    def _distinct(self, rows: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
        """The first n documents that own `rows`, which come best first."""
        docs, first = np.unique(self._table.docs_of(rows[rows >= 0]), return_index=True)
        if len(docs) <= n:
            return docs
        return np.sort(docs[np.argpartition(first, n - 1)[:n]])


def _faiss_index(quantizer: Quantizer, lists: InvertedLists, live: npt.NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
    import faiss

    n_sub, ksub, dsub = quantizer.score_codebook.shape
    dim, nbits = n_sub * dsub, int(ksub).bit_length() - 1
    coarse = faiss.IndexFlatIP(dim)
    coarse.add(quantizer.coarse)
    index = faiss.IndexIVFPQ(coarse, dim, quantizer.nlist, n_sub, nbits, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = quantizer.by_residual
    faiss.copy_array_to_vector(np.ascontiguousarray(quantizer.score_codebook).ravel(), index.pq.centroids)
    index.is_trained = True
    _fill(index, lists, live)
    if nbits == 4:
        index = faiss.IndexIVFPQFastScan(index)
    index.parallel_mode = 0
    index.coarse_quantizer_kept_alive = coarse
    return index


def _fill(index: Any, lists: InvertedLists, live: npt.NDArray[np.bool_] | None) -> None:  # noqa: ANN401
    """Copy the lists into FAISS, deleted rows left out."""
    import faiss

    rows, codes, offsets = lists.rows().astype(np.int64), lists.codes(), lists.offsets
    if live is not None:
        keep = live[rows]
        offsets = np.concatenate([[0], np.cumsum(keep)])[offsets]
        rows, codes = rows[keep], np.ascontiguousarray(codes[keep])
    inverted = index.invlists
    for number, (low, high) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if low < high:
            inverted.add_entries(
                number, high - low, faiss.swig_ptr(rows[low:high]), faiss.swig_ptr(codes[low:high])
            )
    index.ntotal = len(rows)
