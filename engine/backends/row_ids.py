"""Ids of the centroids of a segment for FAISS, chosen so that the bitmap of a filter is computed fast.

FAISS looks each centroid up in a bitmap. Setting one bit for each row would take longer than a search, so the rows
of a document take whole bytes of the bitmap, eight rows a byte, and all bits of an allowed document are set: row r
of a document whose bytes start at b has the id 8 b + r. Ids ascend with rows.
"""

from __future__ import annotations

import mmap

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array

__all__ = ["RowIds"]

_ROWS = 8  # rows in a byte of the bitmap
_BATCH = 1 << 12  # bytes of the bitmap
_BYTE_BYTES = 4 + 4  # memory for a byte of the bitmap: its document, its first row


class RowIds:
    """Maps rows to ids, and ids to rows and documents.

    Args:
        offsets: (n_docs + 1,) int64, the first row of each document, ascending.
    """

    def __init__(self, offsets: Int64Array) -> None:
        n_bytes = -(-np.diff(offsets) // _ROWS)
        firsts = np.cumsum(n_bytes) - n_bytes
        self._docs = np.repeat(np.arange(len(n_bytes), dtype=np.uint32), n_bytes)
        inside = np.arange(len(self._docs)) - firsts[self._docs]
        self._rows = (offsets[self._docs] + _ROWS * inside).astype(np.uint32)

    @staticmethod
    def needed_bytes(offsets: Int64Array) -> int:
        """Return the memory of an instance in bytes."""
        return int((-(-np.diff(offsets) // _ROWS)).sum()) * _BYTE_BYTES

    def all(self, n_rows: int) -> Int64Array:
        """Return the id of each row: (n_rows,) int64.

        The array is a mapping of its own, so that its memory is returned to the system at once.
        """
        ids: Int64Array = np.frombuffer(mmap.mmap(-1, 8 * n_rows), np.int64)
        bounds = np.append(self._rows, np.uint32(n_rows)).astype(np.int64)
        for low in range(0, len(self._rows), _BATCH):
            high = min(low + _BATCH, len(self._rows))
            part = bounds[low : high + 1]
            first = np.repeat(_ROWS * np.arange(low, high) - part[:-1], np.diff(part))
            ids[part[0] : part[-1]] = np.arange(part[0], part[-1]) + first
        return ids

    def rows(self, ids: Int64Array) -> Int64Array:
        """Return the rows of ids: (n,) int64."""
        rows: Int64Array = self._rows[ids >> 3] + (ids & 7)
        return rows

    def docs(self, ids: Int64Array) -> Int64Array:
        """Return the documents of ids: (n,) int64."""
        docs: Int64Array = self._docs[ids >> 3].astype(np.int64)
        return docs

    def bitmap(self, allowed: BoolArray) -> UInt8Array:
        """Return the bitmap of the ids of (n_docs,) `allowed` documents: uint8, least significant bit first."""
        return np.take(allowed, self._docs).view(np.uint8) * np.uint8(255)
