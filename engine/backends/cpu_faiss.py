"""Stage 1 with FAISS on the CPU: IVF lists of PQ codes; those of 4 bits are scanned with SIMD table lookups.

The FAISS index is built from the segment's arrays when the backend is opened. FAISS interleaves codes in blocks of
32, so they are copied (code_bytes + 8 bytes for each centroid, and up to a page for each list). Deleted documents
are left out of the copy. A filter is a bitmap of centroids (`quarry.engine.backends.row_ids`).

FAISS sums scores in 16 bits: a row whose sum is the smallest possible value is never returned, so a query of zeros
finds none.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from quarry.engine.backends.faiss_lists import build_faiss_lists, lists_bytes
from quarry.engine.backends.probing import Probe, ProbingPolicy
from quarry.engine.backends.protocol import (
    Candidates,
    Resources,
    RowCandidates,
    SearchParameters,
    UnscoredCandidates,
)
from quarry.engine.backends.row_ids import RowIds
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.scoring.ranking import Exactness, distinct
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array, UInt8Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.snapshot import OpenSegment

__all__ = ["FaissBackend"]

_BATCH_RESULTS = 1 << 22  # rows requested from FAISS at a time, over all queries


class FaissBackend:
    """Finds centroids by their codes.

    Args:
        segment: a segment with inverted lists.
        resources: unused.
        policy: the extent of searches; None: `ProbingPolicy.of` the segment.
    """

    def __init__(self, segment: OpenSegment, resources: Resources, policy: ProbingPolicy | None = None) -> None:
        assert segment.reader.lists is not None
        assert segment.quantizer is not None
        self.device_bytes = 0
        self._table = segment.reader.centroids
        self._deleted = segment.deleted_passages
        self._n_live = segment.n_live_passages
        self._quantizer = segment.quantizer
        self._policy = policy or ProbingPolicy.of(segment)
        self._ids = RowIds(self._table.offsets)
        self._last_parameters = _FaissParameters(1, None, None)
        self._index = build_faiss_lists(segment.quantizer, segment.reader.lists, self._live_ids())
        self.resident_bytes = _held_bytes(self._list_sizes, segment)

    @staticmethod
    def needed_bytes(segment: OpenSegment) -> int:
        """See `BackendType`; deleted documents are counted, although they take no memory."""
        lists, quantizer = segment.reader.lists, segment.quantizer
        return _held_bytes(np.diff(lists.offsets), segment) if lists is not None and quantizer is not None else 0

    def _live_ids(self) -> Int64Array:
        """Return the id of each centroid, -1 if its document is deleted: (n_rows,) int64."""
        ids = self._ids.all(self._table.n_rows)
        if self._deleted is not None:
            ids[self._table.row_keep(self._deleted)] = -1
        return ids

    def candidates(self, queries: Float32Array, parameters: SearchParameters) -> list[Candidates]:
        """See `quarry.engine.backends.protocol.Backend`.

        If a filter allows only few documents, or no more than `parameters.n` exist, all of them are candidates. If
        the lists that were read hold fewer than `parameters.k` documents, more lists are read, in the end all.
        """
        allowed = parameters.allowed
        n_allowed = self._n_live if allowed is None else int(np.count_nonzero(allowed))
        n_direct = 0 if allowed is None else self._policy.n_docs_scored_directly(parameters.k)
        if n_allowed <= max(parameters.n, n_direct):
            every = UnscoredCandidates(np.flatnonzero(self._allowed(parameters)), Exactness.EXACT)
            return [every] * len(queries)
        probe = self._policy.first_probe(parameters.k, parameters.n, parameters.nprobe, n_allowed / self._n_live)
        rotated = self._quantizer.rotate(self._quantizer.extend_queries(queries))
        batch = max(1, _BATCH_RESULTS // probe.n_rows)
        candidates: list[Candidates] = []
        for low in range(0, len(rotated), batch):
            stop_if_cancelled()
            part = rotated[low : low + batch]
            pairs = zip(part, self._search(part, probe, parameters), strict=True)
            candidates += [self._complete(query, each, probe, parameters) for query, each in pairs]
        return candidates

    def _allowed(self, parameters: SearchParameters) -> BoolArray:
        """Return the documents that may be found: (n_docs,) bool."""
        if parameters.allowed is not None:
            return parameters.allowed
        return np.ones(self._policy.n_docs, bool) if self._deleted is None else ~self._deleted

    def _complete(
        self, query: Float32Array, candidates: Candidates, probe: Probe, parameters: SearchParameters
    ) -> Candidates:
        """Return what was found for a query if it has k documents; otherwise search with larger extents."""
        while len(candidates.docs) < parameters.k:
            stop_if_cancelled()
            if self._policy.is_exhaustive(probe):
                return UnscoredCandidates(self._fill(candidates.docs, parameters), Exactness.APPROXIMATE)
            probe = self._policy.widen(probe)
            candidates = self._search(query[None], probe, parameters)[0]
        return candidates

    def _fill(self, docs: Int64Array, parameters: SearchParameters) -> Int64Array:
        """Append the first allowed documents that FAISS did not return, up to k."""
        missing = self._allowed(parameters).copy()
        missing[docs] = False
        return np.concatenate([docs, np.flatnonzero(missing)[: parameters.k - len(docs)]])

    def _search(self, queries: Float32Array, probe: Probe, parameters: SearchParameters) -> list[Candidates]:
        """Find for each query the best `probe.n_rows` centroids, and the allowed documents that they belong to."""
        set_faiss_threads(parameters.threads if len(queries) > 1 else 1)
        faiss_parameters = self._faiss_parameters(probe.nprobe, parameters.allowed)
        _, best = self._index.search(np.ascontiguousarray(queries), probe.n_rows, params=faiss_parameters)
        best.sort(axis=1)
        is_filtered = parameters.allowed is not None
        return [self._owners(query, ids, probe, is_filtered) for query, ids in zip(queries, best, strict=True)]

    def _faiss_parameters(self, nprobe: int, allowed: BoolArray | None) -> Any:  # noqa: ANN401
        """Return FAISS's parameters of a search; those of the last search are reused if they are the same."""
        last = self._last_parameters
        if last.nprobe != nprobe or last.allowed is not allowed:
            bitmap = None if allowed is None else self._ids.bitmap(allowed)
            self._last_parameters = last = _FaissParameters(nprobe, allowed, bitmap)
        return last.faiss

    def _owners(self, query: Float32Array, ids: Int64Array, probe: Probe, is_filtered: bool) -> Candidates:
        """Return the documents of ascending ids of centroids; ids are -1 if FAISS found too few."""
        valid = ids[np.searchsorted(ids, 0) :]
        docs = distinct(self._ids.docs(valid))
        # which centroids of the lists a filter allows is not known
        if not is_filtered and len(valid) < len(ids) and len(valid) == self._n_probed_rows(query, probe.nprobe):
            return UnscoredCandidates(docs, Exactness.PROBED_LISTS)
        return RowCandidates(docs, self._ids.rows(valid))

    def _n_probed_rows(self, query: Float32Array, nprobe: int) -> int:
        """Return the number of centroids in the lists that are read for a query."""
        lists = self._index.quantizer.search(query[None], nprobe)[1][0]
        return int(self._list_sizes[lists].sum())

    @cached_property
    def _list_sizes(self) -> Int64Array:
        """Number of centroids in each list of the FAISS index: (nlist,) int64."""
        lists = self._index.invlists
        return np.array([lists.list_size(number) for number in range(self._policy.nlist)], np.int64)


def _held_bytes(sizes: Int64Array, segment: OpenSegment) -> int:
    """Return the memory for (nlist,) lists of these sizes."""
    assert segment.quantizer is not None
    return lists_bytes(sizes, segment.quantizer) + RowIds.needed_bytes(segment.reader.centroids.offsets)


class _FaissParameters:
    """Search parameters of FAISS, which take as long to make as to read a few lists.

    Attributes:
        nprobe: number of lists to read.
        allowed: (n_docs,) bool, the documents that may be found; None: all.
        faiss: the object that FAISS takes.
    """

    def __init__(
        self,
        nprobe: int,
        allowed: BoolArray | None,
        bitmap: UInt8Array | None,
    ) -> None:
        import faiss

        self.nprobe, self.allowed = nprobe, allowed
        selector = None if bitmap is None else _selector(bitmap)
        self.faiss: Any = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)


def _selector(bitmap: UInt8Array) -> Any:  # noqa: ANN401
    """Return FAISS's selector of the centroids in a bitmap."""
    import faiss

    selector = faiss.IDSelectorBitmap(len(bitmap), faiss.swig_ptr(bitmap))
    selector.referenced_objects = [bitmap]
    return selector
