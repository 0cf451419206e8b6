"""IVF lists over the centroids: for each coarse centroid the rows assigned to it and their PQ codes.

Sections: ``list_offsets`` (where each list starts), ``list_rows`` (centroid row ordinals, ascending within
a list) and ``codes`` (a row of `code_bytes` bytes for each; 4-bit codes two to a byte, the even sub-quantizer
in the low half).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.sections import BULK_ALIGNMENT
from formats.spool import Spool

__all__ = ["InvertedLists", "InvertedListsWriter"]

_SCAN_ROWS = 1 << 20  # rows read at a time while lists are put in order
_PART_BYTES = 64 << 20  # codes put in order at a time


class InvertedListsWriter:
    """Takes list numbers and codes in row order and writes them in list order, in bounded memory."""

    def __init__(self, directory: Directory, nlist: int, code_bytes: int) -> None:
        self._directory = directory
        self._nlist = nlist
        self._code_bytes = code_bytes
        self._list_numbers = Spool(directory)
        self._codes = Spool(directory)
        self._sizes = np.zeros(nlist, np.int64)

    @property
    def n_rows(self) -> int:
        """Rows added so far."""
        return int(self._sizes.sum())

    def add(self, list_numbers: npt.NDArray[np.int64], codes: npt.NDArray[np.uint8]) -> None:
        """Append rows: (n,) list numbers and (n, code_bytes) codes."""
        self._list_numbers.write_array(list_numbers.astype(np.uint32))
        self._codes.write_array(codes)
        self._sizes += np.bincount(list_numbers, minlength=self._nlist)

    def write(self, envelope: EnvelopeWriter) -> None:
        """Write the three sections."""
        offsets = np.zeros(self._nlist + 1, np.uint64)
        np.cumsum(self._sizes, out=offsets[1:])
        envelope.add("list_offsets", offsets)
        rows, codes = Spool(self._directory), Spool(self._directory)
        try:
            for low, high in self._parts():
                part_rows, part_codes = self._part(low, high)
                rows.write_array(part_rows)
                codes.write_array(part_codes)
            envelope.add_chunks("list_rows", np.uint32, (self.n_rows,), rows.chunks())
            shape = (self.n_rows, self._code_bytes)
            envelope.add_chunks("codes", np.uint8, shape, codes.chunks(), BULK_ALIGNMENT)
        finally:
            rows.close()
            codes.close()

    def close(self) -> None:
        """Drop the temporary files."""
        self._list_numbers.close()
        self._codes.close()

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Ranges of lists whose codes fit in memory together (a longer list makes a part of its own)."""
        limit = max(1, _PART_BYTES // self._code_bytes)
        low = n_rows = 0
        for number, size in enumerate(self._sizes.tolist()):
            if n_rows and n_rows + size > limit:
                yield low, number
                low, n_rows = number, 0
            n_rows += size
        yield low, self._nlist

    def _part(self, low: int, high: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        """Rows and codes of the lists low to high - 1, in list order."""
        numbers, rows, codes = [], [], []
        for start in range(0, self.n_rows, _SCAN_ROWS):
            stop = min(start + _SCAN_ROWS, self.n_rows)
            scanned = self._list_numbers.read_array(np.uint32, start, stop)
            inside = np.flatnonzero((scanned >= low) & (scanned < high))
            scanned_codes = self._codes.read_array(np.uint8, start * self._code_bytes, stop * self._code_bytes)
            numbers.append(scanned[inside])
            rows.append((inside + start).astype(np.uint32))
            codes.append(scanned_codes.reshape(-1, self._code_bytes)[inside])
        order = np.argsort(np.concatenate(numbers), kind="stable")
        return np.concatenate(rows)[order], np.concatenate(codes)[order]


class InvertedLists:
    """The lists of a segment, read from its file.

    Attributes:
        offsets: (nlist + 1,) int64, where each list starts.
        code_bytes: bytes of one code.
    """

    def __init__(self, envelope: Envelope, nlist: int, n_rows: int, code_bytes: int) -> None:
        self._path = envelope.path
        self._n_rows = n_rows
        self.code_bytes = code_bytes
        raw = envelope.section("list_offsets", np.uint64, (nlist + 1,)).array()
        if raw[0] != 0 or raw[-1] != n_rows or (raw[1:] < raw[:-1]).any():
            raise CorruptFile("list offsets do not ascend from 0 to the number of rows", path=self._path)
        self.offsets: npt.NDArray[np.int64] = raw.astype(np.int64)
        self._rows = envelope.section("list_rows", np.uint32, (n_rows,))
        self._codes = envelope.section("codes", np.uint8, (n_rows, code_bytes))

    def rows(self) -> npt.NDArray[np.uint32]:
        """(n_rows,) uint32: the centroid row at each place of the lists, checked to be every row exactly once."""
        rows = self._rows.array()
        listed = np.zeros(self._n_rows, bool)
        if int(rows.max()) < self._n_rows:
            listed[rows] = True
        if not listed.all():
            raise CorruptFile("the inverted lists do not name every row once", path=self._path)
        return rows.astype(np.uint32, copy=False)

    def codes(self) -> npt.NDArray[np.uint8]:
        """(n_rows, code_bytes) uint8: the PQ code at each place of the lists."""
        return self._codes.array().astype(np.uint8, copy=False)
