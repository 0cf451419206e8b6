"""Builds a FAISS index of the inverted lists of a segment; 4-bit PQ codes are interleaved for fast scan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array
from quarry.formats.vectors.inverted_lists import InvertedLists
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["build_faiss_lists", "lists_bytes"]

_BLOCK_ROWS = 32  # codes that FAISS interleaves
_FILL_STEPS = 256  # the allocator keeps the temporary memory of one step
_PAGE_BYTES = 4096  # of the system's memory
_MIN_TABLE_BYTES = 256  # that FAISS reserves for the codes of a list


def lists_bytes(sizes: Int64Array, quantizer: Quantizer) -> int:
    """Return the memory of (nlist,) lists of these sizes: codes, ids of rows, copies of the quantizer's tables.

    FAISS allocates a power of two of bytes for the codes of a list. What lies behind the codes is never touched,
    so that at most a page of it takes memory.
    """
    codes = sizes * quantizer.code_bytes
    if quantizer.score_codebook.shape[1] == 1 << 4:
        codes = -(-sizes // _BLOCK_ROWS) * _BLOCK_ROWS * quantizer.code_bytes
        tables = np.exp2(np.ceil(np.log2(np.maximum(codes, _MIN_TABLE_BYTES)))).astype(np.int64)
        codes += np.minimum(tables - codes, _PAGE_BYTES) * (sizes > 0)
    copied = quantizer.coarse.nbytes + 2 * quantizer.score_codebook.nbytes
    return int(codes.sum()) + 8 * int(sizes.sum()) + copied


def build_faiss_lists(
    quantizer: Quantizer, lists: InvertedLists, ids: Int64Array, n_steps: int = _FILL_STEPS
) -> Any:  # noqa: ANN401
    """Build the FAISS index of inverted lists.

    Args:
        quantizer: quantizer of the lists; the caller rotates the queries.
        lists: rows and codes.
        ids: (n_rows,) int64, the id of each row in FAISS; rows with a negative id are left out.
        n_steps: in which lists are copied, about so many.
    """
    import faiss

    n_sub, ksub, dsub = quantizer.score_codebook.shape
    dim, nbits = n_sub * dsub, int(ksub).bit_length() - 1
    coarse = faiss.IndexFlatIP(dim)
    coarse.add(quantizer.coarse)
    kind = faiss.IndexIVFPQFastScan if nbits == 4 else faiss.IndexIVFPQ
    index = kind(coarse, dim, quantizer.nlist, n_sub, nbits, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = quantizer.by_residual
    faiss.copy_array_to_vector(np.ascontiguousarray(quantizer.score_codebook).ravel(), index.pq.centroids)
    index.is_trained = True
    kept = _KeptRows(lists, ids, n_steps)
    if nbits == 4:
        _fill_fast_scan(index, kept)
    else:
        kept.copy_to(index.invlists, 0, quantizer.nlist)
    index.ntotal = int(kept.sizes.sum())
    index.parallel_mode = 0
    index.referenced_objects = [coarse]
    return index


class _KeptRows:
    """Lists without the rows that are left out, a few lists at a time."""

    def __init__(self, lists: InvertedLists, ids: Int64Array, n_steps: int) -> None:
        self._n_steps = n_steps
        self._rows, self._codes, self._offsets = lists.rows(), lists.codes(), lists.offsets
        self._ids = ids
        self._is_whole = bool(ids.min(initial=0) >= 0)

    @cached_property
    def sizes(self) -> Int64Array:
        """Number of codes in each list: (nlist,) int64."""
        sizes: Int64Array = np.diff(self._offsets)
        if not self._is_whole:
            for first, stop in self.steps(len(sizes)):
                sizes[first:stop] = np.diff(self._between(first, stop)[2])
        return sizes

    def steps(self, nlist: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of lists."""
        step = -(-nlist // self._n_steps)
        for first in range(0, nlist, step):
            yield first, min(first + step, nlist)

    def reserve(self, inverted: Any) -> None:  # noqa: ANN401
        """Allocate the lists of FAISS, which are empty so far."""
        for number, size in enumerate(self.sizes.tolist()):
            if size:
                inverted.resize(number, size)

    def copy_to(self, inverted: Any, first: int, stop: int) -> None:  # noqa: ANN401
        """Copy the lists first to stop - 1 into the lists 0, 1, ... of FAISS."""
        import faiss

        ids, codes, bounds = self._between(first, stop)
        for number, (low, high) in enumerate(pairwise(bounds.tolist())):
            if low < high:
                inverted.add_entries(
                    number, high - low, faiss.swig_ptr(ids[low:high]), faiss.swig_ptr(codes[low:high])
                )

    def _between(self, first: int, stop: int) -> tuple[Int64Array, UInt8Array, Int64Array]:
        """Return ids and codes of the rows of the lists first to stop - 1, and the offset of each list."""
        low, high = self._offsets[[first, stop]].tolist()
        bounds = self._offsets[first : stop + 1] - low
        ids, codes = self._ids[self._rows[low:high]], self._codes[low:high]
        if self._is_whole:
            return ids, codes, bounds
        keep = ids >= 0
        bounds = np.concatenate([[0], np.cumsum(keep)])[bounds]
        return ids[keep], np.ascontiguousarray(codes[keep]), bounds


def _fill_fast_scan(index: Any, kept: _KeptRows) -> None:  # noqa: ANN401
    """Copy lists into an index of interleaved codes.

    FAISS can interleave only a whole index, so small indexes of a few lists are made one after the other: the
    memory of a second copy of all lists would not be returned to the system. All lists are allocated before the
    first is copied, because untouched parts of an allocation take no memory only if it was never used before.
    """
    import faiss

    kept.reserve(index.invlists)
    for first, stop in kept.steps(index.nlist):
        coarse = faiss.IndexFlatIP(index.d)
        plain = faiss.IndexIVFPQ(coarse, index.d, stop - first, index.pq.M, 4, faiss.METRIC_INNER_PRODUCT)
        plain.is_trained = True
        kept.copy_to(plain.invlists, first, stop)
        part = faiss.IndexIVFPQFastScan(plain)
        for number in range(stop - first):
            _copy_list(part, number, index, first + number)


def _copy_list(source: Any, number: int, target: Any, place: int) -> None:  # noqa: ANN401
    """Copy a list of interleaved codes to an allocated list of another index."""
    import faiss

    size, old, new = source.invlists.list_size(number), source.invlists, target.invlists
    if size:
        n_bytes = -(-size // _BLOCK_ROWS) * _BLOCK_ROWS * source.pq.code_size
        faiss.memcpy(new.get_codes(place), old.get_codes(number), n_bytes)
        faiss.memcpy(new.get_ids(place), old.get_ids(number), 8 * size)
