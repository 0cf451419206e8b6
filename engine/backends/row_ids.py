"""Numbers for the centroids of a segment by which a bitmap of few bytes says which documents may be found.

FAISS asks a bitmap about each centroid, and a bitmap with a bit for each row would take longer to make for a new
filter than a search takes. So the rows of a document take whole bytes of it, eight rows a byte, and a document
that may be found has all bits of its bytes set: row r of a document whose bytes start at b has the number
8 b + r. Numbers ascend as rows do.
"""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

__all__ = ["RowIds"]

_ROWS = 8  # of a byte of the bitmap
_BATCH = 1 << 12  # bytes of it
_BYTE_BYTES = 4 + 4  # held for a byte of the bitmap: its document, its first row

Ints = npt.NDArray[np.int64]


class RowIds:
    """Numbers of rows and what they stand for.

    Args:
        offsets: (n_docs + 1,) int64, the first row of each document, ascending.
    """

    def __init__(self, offsets: Ints) -> None:
        n_bytes = -(-np.diff(offsets) // _ROWS)
        firsts = np.cumsum(n_bytes) - n_bytes
        self._docs = np.repeat(np.arange(len(n_bytes), dtype=np.uint32), n_bytes)
        inside = np.arange(len(self._docs)) - firsts[self._docs]
        self._rows = (offsets[self._docs] + _ROWS * inside).astype(np.uint32)

    @staticmethod
    def needed_bytes(offsets: Ints) -> int:
        """What one holds."""
        return int((-(-np.diff(offsets) // _ROWS)).sum()) * _BYTE_BYTES

    def all(self, n_rows: int) -> Ints:
        """(n_rows,) int64: the number of each row.

        It has pages of its own, which go back to the system with it: an allocator would keep as many for later.
        """
        numbers: Ints = np.frombuffer(mmap.mmap(-1, 8 * n_rows), np.int64)
        bounds = np.append(self._rows, np.uint32(n_rows)).astype(np.int64)
        for low in range(0, len(self._rows), _BATCH):
            high = min(low + _BATCH, len(self._rows))
            part = bounds[low : high + 1]
            first = np.repeat(_ROWS * np.arange(low, high) - part[:-1], np.diff(part))
            numbers[part[0] : part[-1]] = np.arange(part[0], part[-1]) + first
        return numbers

    def rows(self, ids: Ints) -> Ints:
        """(n,) int64: the rows that have some numbers."""
        rows: Ints = self._rows[ids >> 3] + (ids & 7)
        return rows

    def docs(self, ids: Ints) -> Ints:
        """(n,) int64: the documents that own them."""
        docs: Ints = self._docs[ids >> 3].astype(np.int64)
        return docs

    def bitmap(self, allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
        """Which numbers are of the documents (n_docs,) `allowed`: uint8, the least significant bit first."""
        return np.take(allowed, self._docs).view(np.uint8) * np.uint8(255)
