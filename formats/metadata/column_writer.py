"""Writes one metadata column value by value, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quarry.formats.arrays import AnyArray, BoolArray, UInt32Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.spool import Spool
from quarry.formats.metadata.column import PART_ALIGNMENT, code_type
from quarry.formats.metadata.values import Kind

__all__ = ["ColumnWriter"]

_BATCH = 1 << 17  # values at a time
_PAIR_BYTES = 4  # of a document's ordinal in a pair


class ColumnWriter:
    """Collects the values at one path, ascending; takes 5 bytes of memory for each document of the segment.

    Args:
        directory: for temporary files.
        n_docs: documents in the segment.
    """

    def __init__(self, directory: Directory, n_docs: int) -> None:
        self._directory = directory
        self._counts = [0] * len(Kind)
        self._owners = np.zeros(n_docs, bool)
        self._numbers = Spool(directory)
        self._text_offsets = Spool(directory)
        self._texts = Spool(directory)
        self._docs = Spool(directory)
        self._codes = Spool(directory)
        self._text_offsets.write_array(np.zeros(1, np.uint64))

    def __len__(self) -> int:
        return sum(self._counts)

    def add(self, kind: Kind, value: float | bytes, docs: UInt32Array) -> None:
        """Append the next value with the documents that have it, one or more, ascending."""
        self._counts[kind] += 1
        if isinstance(value, bytes):
            self._texts.write(value)
            self._text_offsets.write(self._texts.n_bytes.to_bytes(8, "little"))
        elif kind in (Kind.INTEGER, Kind.FLOAT):
            self._numbers.write_array(np.array([value], np.int64 if kind is Kind.INTEGER else np.float64))
        self._owners[docs] = True
        self._docs.write_array(docs)
        self._codes.write_array(np.full(len(docs), len(self), np.uint32))

    def write(self, section: Spool) -> dict[str, object]:
        """Append the column to the section and return its entry in the directory."""
        width = code_type(len(self)).itemsize
        n_owners = int(np.count_nonzero(self._owners))
        dense = len(self._owners) * width < n_owners * (width + _PAIR_BYTES)
        offset = section.n_bytes
        for part in (self._numbers, self._text_offsets, self._texts):
            _append(section, part.chunks())
        n_pairs = self._write_pairs(section, dense)
        return {
            "counts": self._counts,
            "dense": dense,
            "n_pairs": n_pairs,
            "offset": offset,
            "text_bytes": self._texts.n_bytes,
        }

    def close(self) -> None:
        """Delete the temporary files."""
        for spool in (self._numbers, self._text_offsets, self._texts, self._docs, self._codes):
            spool.close()

    def _write_pairs(self, section: Spool, dense: bool) -> int:
        """Write the dense codes and the pairs of all other values; return the number of pairs."""
        dtype = code_type(len(self))
        first = np.zeros(len(self._owners) if dense else 0, dtype)
        docs, codes = Spool(self._directory), Spool(self._directory)
        try:
            for some_docs, some_codes in self._iterate_pairs():
                others = _store_first_codes(some_docs, some_codes, first) if dense else slice(None)
                docs.write_array(some_docs[others])
                codes.write_array(some_codes[others].astype(dtype))
            _append(section, iter([first.tobytes()]))
            _append(section, docs.chunks())
            _append(section, codes.chunks())
            return docs.n_bytes // _PAIR_BYTES
        finally:
            docs.close()
            codes.close()

    def _iterate_pairs(self) -> Iterator[tuple[UInt32Array, UInt32Array]]:
        n_pairs = self._docs.n_bytes // _PAIR_BYTES
        for low in range(0, n_pairs, _BATCH):
            high = min(n_pairs, low + _BATCH)
            yield self._docs.read_array(np.uint32, low, high), self._codes.read_array(np.uint32, low, high)


def _store_first_codes(docs: UInt32Array, codes: UInt32Array, first: AnyArray) -> BoolArray:
    """Store the first code of each document that has none yet; return which pairs remain."""
    _, places = np.unique(docs, return_index=True)
    places = places[first[docs[places]] == 0]
    first[docs[places]] = codes[places]
    left = np.ones(len(docs), bool)
    left[places] = False
    return left


def _append(section: Spool, chunks: Iterator[bytes]) -> None:
    """Append a part and zeros up to the next multiple of PART_ALIGNMENT."""
    for chunk in chunks:
        section.write(chunk)
    section.write(bytes(-section.n_bytes % PART_ALIGNMENT))
