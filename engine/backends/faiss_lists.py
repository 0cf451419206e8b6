"""The inverted lists of a segment as an index of FAISS: IVF with PQ codes, 4-bit ones in blocks for fast scan."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.inverted_lists import InvertedLists
from formats.quantizer import Quantizer

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
    index.ntotal = len(kept.ids)
    index.parallel_mode = 0
    index.referenced_objects = [coarse]
    return index


class _Kept:
    """Lists without what is deleted.

    Attributes:
        ids: (n,) int64, what the rows of the codes are called, list after list.
    """

    def __init__(self, lists: InvertedLists, ids: npt.NDArray[np.int64]) -> None:
        self.ids, self._codes, self._offsets = ids[lists.rows()], lists.codes(), lists.offsets
        keep = self.ids >= 0
        if not keep.all():
            self._offsets = np.concatenate([[0], np.cumsum(keep)])[self._offsets]
            self.ids, self._codes = self.ids[keep], np.ascontiguousarray(self._codes[keep])

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(nlist,) int64: codes in each list."""
        return np.diff(self._offsets)

    def make_room(self, inverted: Any) -> None:  # noqa: ANN401
        """Give each list of FAISS, so far empty, its size."""
        for number, size in enumerate(self.sizes.tolist()):
            if size:
                inverted.resize(number, size)

    def copy_to(self, inverted: Any, first: int, stop: int) -> None:  # noqa: ANN401
        """Copy lists `first` to `stop` - 1 into lists 0, 1, ... of FAISS."""
        import faiss

        bounds = self._offsets[first : stop + 1].tolist()
        for number, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                ids, codes = faiss.swig_ptr(self.ids[low:high]), faiss.swig_ptr(self._codes[low:high])
                inverted.add_entries(number, high - low, ids, codes)


def _fill_fast_scan(index: Any, kept: _Kept) -> None:  # noqa: ANN401
    """Copy lists into an index of interleaved codes.

    Only a whole index can be interleaved, so a few lists at a time are made into one: a second copy of them all
    would stay with the process, in pieces that its allocator does not give back. FAISS reserves a power of two for
    the codes of a list. What it does not fill takes no memory as long as nobody has used it before: therefore all
    room is made before the first copy.
    """
    import faiss

    kept.make_room(index.invlists)
    step = -(-index.nlist // _FILL_STEPS)
    for first in range(0, index.nlist, step):
        stop = min(first + step, index.nlist)
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
