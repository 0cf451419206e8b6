"""The inverted lists of a segment as an index of FAISS: IVF with PQ codes, 4-bit ones in blocks for fast scan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.formats.vectors.inverted_lists import InvertedLists
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["faiss_lists", "lists_bytes"]

_BLOCK_ROWS = 32  # in each of which FAISS keeps so many codes
_FILL_STEPS = 256  # in which its index is filled; what one takes stays with the allocator
_PAGE_BYTES = 4096
_LEAST_TABLE_BYTES = 256  # that FAISS reserves for the codes of a list


def lists_bytes(sizes: npt.NDArray[np.int64], quantizer: Quantizer) -> int:
    """Memory for (nlist,) lists of these sizes: codes, numbers of rows, copies of the quantizer's tables.

    Blocks of codes lie in the beginning of a table whose length is a power of two. Of the rest of it nothing is
    ever touched, so only a page at most of it takes memory.
    """
    codes = sizes * quantizer.code_bytes
    if quantizer.score_codebook.shape[1] == 1 << 4:
        codes = -(-sizes // _BLOCK_ROWS) * _BLOCK_ROWS * quantizer.code_bytes
        tables = np.exp2(np.ceil(np.log2(np.maximum(codes, _LEAST_TABLE_BYTES)))).astype(np.int64)
        codes += np.minimum(tables - codes, _PAGE_BYTES) * (sizes > 0)
    copied = quantizer.coarse.nbytes + 2 * quantizer.score_codebook.nbytes
    return int(codes.sum()) + 8 * int(sizes.sum()) + copied


def faiss_lists(quantizer: Quantizer, lists: InvertedLists, ids: npt.NDArray[np.int64]) -> Any:  # noqa: ANN401
    """The FAISS index of these lists.

    Args:
        quantizer: that they were made with; its rotation is the caller's business.
        lists: rows and codes.
        ids: (n_rows,) int64, what FAISS shall call each row; a row below 0 is left out.
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
    kept = _Kept(lists, ids)
    if nbits == 4:
        _fill_fast_scan(index, kept)
    else:
        kept.copy_to(index.invlists, 0, quantizer.nlist)
    index.ntotal = int(kept.sizes.sum())
    index.parallel_mode = 0
    index.referenced_objects = [coarse]
    return index


class _Kept:
    """Lists without what is deleted, some of them at a time."""

    def __init__(self, lists: InvertedLists, ids: npt.NDArray[np.int64]) -> None:
        self._rows, self._codes, self._offsets = lists.rows(), lists.codes(), lists.offsets
        self._ids = ids
        self._is_whole = bool(ids.min(initial=0) >= 0)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(nlist,) int64: codes in each list."""
        sizes: npt.NDArray[np.int64] = np.diff(self._offsets)
        if not self._is_whole:
            for first, stop in _steps(len(sizes)):
                sizes[first:stop] = np.diff(self._between(first, stop)[2])
        return sizes

    def make_room(self, inverted: Any) -> None:  # noqa: ANN401
        """Give each list of FAISS, so far empty, its size."""
        for number, size in enumerate(self.sizes.tolist()):
            if size:
                inverted.resize(number, size)

    def copy_to(self, inverted: Any, first: int, stop: int) -> None:  # noqa: ANN401
        """Copy lists `first` to `stop` - 1 into lists 0, 1, ... of FAISS."""
        import faiss

        ids, codes, bounds = self._between(first, stop)
        for number, (low, high) in enumerate(pairwise(bounds.tolist())):
            if low < high:
                inverted.add_entries(
                    number, high - low, faiss.swig_ptr(ids[low:high]), faiss.swig_ptr(codes[low:high])
                )

    def _between(
        self, first: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """What the rows of lists `first` to `stop` - 1 are called, their codes, and where each list starts."""
        low, high = self._offsets[[first, stop]].tolist()
        bounds = self._offsets[first : stop + 1] - low
        ids, codes = self._ids[self._rows[low:high]], self._codes[low:high]
        if self._is_whole:
            return ids, codes, bounds
        keep = ids >= 0
        bounds = np.concatenate([[0], np.cumsum(keep)])[bounds]
        return ids[keep], np.ascontiguousarray(codes[keep]), bounds


def _steps(nlist: int) -> Iterator[tuple[int, int]]:
    """Some lists at a time."""
    step = -(-nlist // _FILL_STEPS)
    for first in range(0, nlist, step):
        yield first, min(first + step, nlist)


def _fill_fast_scan(index: Any, kept: _Kept) -> None:  # noqa: ANN401
    """Copy lists into an index of interleaved codes.

    Only a whole index can be interleaved, so a few lists at a time are made into one: a second copy of them all
    would stay with the process, in pieces that its allocator does not give back. FAISS reserves a power of two for
    the codes of a list. What it does not fill takes no memory as long as nobody has used it before: therefore all
    room is made before the first copy.
    """
    import faiss

    kept.make_room(index.invlists)
    for first, stop in _steps(index.nlist):
        coarse = faiss.IndexFlatIP(index.d)
        plain = faiss.IndexIVFPQ(coarse, index.d, stop - first, index.pq.M, 4, faiss.METRIC_INNER_PRODUCT)
        plain.is_trained = True
        kept.copy_to(plain.invlists, first, stop)
        part = faiss.IndexIVFPQFastScan(plain)  # whose lists go with it
        for number in range(stop - first):
            _copy_list(part, number, index, first + number)


def _copy_list(source: Any, number: int, target: Any, place: int) -> None:  # noqa: ANN401
    """Copy a list of interleaved codes from an index to the room for it in another."""
    import faiss

    size, old, new = source.invlists.list_size(number), source.invlists, target.invlists
    if size:
        n_bytes = -(-size // _BLOCK_ROWS) * _BLOCK_ROWS * source.pq.code_size
        faiss.memcpy(new.get_codes(place), old.get_codes(number), n_bytes)
        faiss.memcpy(new.get_ids(place), old.get_ids(number), 8 * size)
