"""Stage 1 on the CPU with FAISS: IVF lists of 4-bit PQ codes, scanned with SIMD look-ups.

The index is made from the segment's own neutral arrays when the backend is opened; FAISS interleaves the
codes in blocks of 32, so they are copied (code_bytes + 8 bytes a centroid, and up to a page for each list).

A filter is a bitmap that FAISS asks about each centroid (`quarry.engine.backends.row_ids`); deleted documents
are left out of the copy. Which centroids were found is told to stage 2.

The scores that FAISS sums up are 16 bits wide; a row whose sum is the least there can be is never returned,
and of a query of zeros none is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.faiss_lists import faiss_lists, lists_bytes
from quarry.engine.backends.protocol import Candidates, Resources, Wanted
from quarry.engine.backends.row_ids import RowIds
from quarry.engine.quantization.candidates import rows_per_candidate
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.quantization.nprobe import default_nprobe
from quarry.formats.snapshot import OpenSegment

__all__ = ["FaissBackend"]

_BATCH_RESULTS = 1 << 22  # rows that FAISS is asked for at a time, over all queries
_ROWS_PER_SCORED = 10  # centroids of lists that are read in about the time it takes to score one exactly
_MOST_ROWS = 80_000  # up to which more lists are read for a filter than without


class FaissBackend:
    """Finds centroids by their codes."""

    def __init__(self, segment: OpenSegment, resources: Resources) -> None:
        assert segment.reader.lists is not None
        assert segment.quantizer is not None
        self.device_bytes = 0
        self._table = segment.reader.centroids
        self._deleted = segment.deleted
        self._n_docs = segment.record.n_docs
        self._n_live = segment.record.n_docs - segment.record.n_deleted
        self._quantizer = segment.quantizer
        self._nlist = segment.quantizer.nlist
        self._rows_per_candidate = rows_per_candidate(segment)
        self._ids = RowIds(self._table.offsets)
        self._kept = _Parameters(1, None, None)
        self._index = faiss_lists(segment.quantizer, segment.reader.lists, self._live_ids())
        self.resident_bytes = _held_bytes(self._list_sizes, segment)

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`; as if nothing was deleted, which takes no memory here."""
        lists, quantizer = segment.reader.lists, segment.quantizer
        return _held_bytes(np.diff(lists.offsets), segment) if lists is not None and quantizer is not None else 0

    def _live_ids(self) -> npt.NDArray[np.int64]:
        """(n_rows,) int64: the number of each centroid, -1 where its document is deleted."""
        ids = self._ids.all(self._table.n_rows)
        if self._deleted is not None:
            ids[self._table.row_keep(self._deleted)] = -1
        return ids

    def candidates(self, queries: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.Backend`.

        Few documents that a filter allows are all candidates, and so are all documents where as many are wanted.
        Where the probed lists hold fewer than `wanted.k` documents, more lists are read, in the end all of them.
        """
        n_allowed = self._n_live if wanted.allowed is None else int(np.count_nonzero(wanted.allowed))
        few = 0 if wanted.allowed is None else self._few_docs(wanted.k)
        if n_allowed <= max(wanted.n, few):
            return [Candidates(np.flatnonzero(self._allowed(wanted)), -np.inf)] * len(queries)
        wanted = replace(wanted, nprobe=self._nprobe(wanted, n_allowed / self._n_live))
        turned = self._quantizer.rotate(queries)
        batch = max(1, _BATCH_RESULTS // self._n_rows(wanted))
        found: list[Candidates] = []
        for low in range(0, len(turned), batch):
            found += self._candidates(turned[low : low + batch], wanted)
        return found

    def _allowed(self, wanted: Wanted) -> npt.NDArray[np.bool_]:
        """(n_docs,) bool: the documents that may be found."""
        if wanted.allowed is not None:
            return wanted.allowed
        return np.ones(self._n_docs, bool) if self._deleted is None else ~self._deleted

    def _usual_nprobe(self, k: int) -> int:
        """Return the default number of lists that a query for k hits without a filter reads."""
        return default_nprobe(self._quantizer, k)

    def _few_docs(self, k: int) -> int:
        """Return how many documents are scored in the time that an unfiltered query for k hits reads its lists."""
        return self._n_docs * self._usual_nprobe(k) // (self._nlist * _ROWS_PER_SCORED)

    def _nprobe(self, wanted: Wanted, share: float) -> int:
        """Lists to read for a filter that leaves that share of the documents: by default more for fewer.

        What passes lies further from the query, and often together. Of squad a tenth, dealt out or in groups of
        like documents, was found to .967 and .893 (top 10) in the 73 of 256 lists that take .988 of all without a
        filter, to .987 and .950 in 107, to .997 and .975 in 157. Of 1,558,039 centroids .998 and .993 in the usual
        98 of 1024: where many are read anyway, more would only take longer.
        """
        usual = self._usual_nprobe(wanted.k)
        most = max(usual, _MOST_ROWS * self._nlist // self._table.n_rows)
        default = min(math.ceil(usual / share ** (1 / 6)), most)
        return min(wanted.nprobe or default, self._nlist)

    def _candidates(self, turned: npt.NDArray[np.float32], wanted: Wanted) -> list[Candidates]:
        found = self._search(turned, self._n_rows(wanted), wanted)
        return [
            each if len(each.docs) >= wanted.k else self._more(query, wanted)
            for query, each in zip(turned, found, strict=True)
        ]

    def _n_rows(self, wanted: Wanted) -> int:
        """Centroids to ask FAISS for, so that about `wanted.n` documents own them."""
        return min(math.ceil(wanted.n * self._rows_per_candidate), self._table.n_rows)

    def _more(self, query: npt.NDArray[np.float32], wanted: Wanted) -> Candidates:
        """The same for one query with more centroids and more lists, until there are k documents."""
        n_rows, nprobe = self._n_rows(wanted), wanted.nprobe or 1
        while True:
            nprobe = min(nprobe * 2, self._nlist)
            n_rows = min(n_rows * 4, self._table.n_rows)
            found = self._search(query[None], n_rows, replace(wanted, nprobe=nprobe))[0]
            if len(found.docs) >= wanted.k:
                return found
            if nprobe == self._nlist and n_rows == self._table.n_rows:
                return Candidates(self._filled_up(found.docs, wanted), np.inf)

    def _filled_up(self, docs: npt.NDArray[np.int64], wanted: Wanted) -> npt.NDArray[np.int64]:
        """With the first of the allowed documents that FAISS did not return, so that there are k."""
        missing = self._allowed(wanted).copy()
        missing[docs] = False
        return np.concatenate([docs, np.flatnonzero(missing)[: wanted.k - len(docs)]])

    def _parameters(self, wanted: Wanted) -> Any:  # noqa: ANN401
        """What FAISS is told about a search; for searches alike the same object serves again."""
        kept, allowed = self._kept, wanted.allowed
        if kept.nprobe != wanted.nprobe or kept.allowed is not allowed:
            bitmap = None if allowed is None else self._ids.bitmap(allowed)
            self._kept = kept = _Parameters(wanted.nprobe, allowed, bitmap)
        return kept.told

    def _search(self, queries: npt.NDArray[np.float32], n_rows: int, wanted: Wanted) -> list[Candidates]:
        """For each query the best `n_rows` centroids, and the allowed documents that own them."""
        set_faiss_threads(wanted.threads if len(queries) > 1 else 1)
        parameters = self._parameters(wanted)
        _, found = self._index.search(np.ascontiguousarray(queries), n_rows, params=parameters)
        found.sort(axis=1)
        return [self._owners(query, ids, wanted) for query, ids in zip(queries, found, strict=True)]

    def _owners(self, query: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], wanted: Wanted) -> Candidates:
        """What FAISS found: ascending numbers of rows, after as many -1 as there were too few."""
        found = ids[np.searchsorted(ids, 0) :]
        whole = len(found) < len(ids) and self._all_found(query, len(found), wanted)
        return Candidates(_distinct(self._ids.docs(found)), np.inf, whole_lists=whole, rows=self._ids.rows(found))

    def _all_found(self, query: npt.NDArray[np.float32], n_found: int, wanted: Wanted) -> bool:
        """Whether FAISS returned every centroid of the lists; of those a filter allows it is not known."""
        if wanted.allowed is not None:
            return False
        lists = self._index.quantizer.search(query[None], wanted.nprobe)[1][0]
        return n_found == int(self._list_sizes[lists].sum())

    @cached_property
    def _list_sizes(self) -> npt.NDArray[np.int64]:
        """(nlist,) int64: centroids in each list of FAISS."""
        inverted = self._index.invlists
        return np.array([inverted.list_size(number) for number in range(self._nlist)], np.int64)


def _held_bytes(sizes: npt.NDArray[np.int64], segment: OpenSegment) -> int:
    """Memory for (nlist,) lists of these sizes."""
    assert segment.quantizer is not None
    return lists_bytes(sizes, segment.quantizer) + RowIds.needed_bytes(segment.reader.centroids.offsets)


def _distinct(docs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Each of the ascending ordinals once."""
    first = np.ones(len(docs), bool)
    np.not_equal(docs[1:], docs[:-1], out=first[1:])
    return docs[first]


class _Parameters:
    """What FAISS is told: to make it takes as long as to read a few lists.

    Attributes:
        nprobe: lists to read.
        allowed: (n_docs,) bool, which documents may be found; None: all.
        told: the same for FAISS.
    """

    def __init__(
        self,
        nprobe: int | None,
        allowed: npt.NDArray[np.bool_] | None,
        bitmap: npt.NDArray[np.uint8] | None,
    ) -> None:
        import faiss

        self.nprobe, self.allowed = nprobe, allowed
        selector = None if bitmap is None else _selector(bitmap)
        self.told: Any = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)


def _selector(bitmap: npt.NDArray[np.uint8]) -> Any:  # noqa: ANN401
    """What says to FAISS which centroids may be found."""
    import faiss

    selector = faiss.IDSelectorBitmap(len(bitmap), faiss.swig_ptr(bitmap))
    selector.referenced_objects = [bitmap]
    return selector
