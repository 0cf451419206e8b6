"""The terms of a segment in the order of their UTF-8, and the positions of their postings.

Sections: ``terms`` (blocks of 16 terms, each term without the bytes it shares with the previous one),
``term_offsets`` (the offset of each block), ``term_keys`` (the first 8 bytes of each block's first term, as a
big-endian number, so that a search reads few pages) and ``posting_offsets`` (the offset of the records of each
block in section ``postings``). SPEC.md, section 5, "Terms", defines a term in a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array, UInt64Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.varint import read_varint
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile
from quarry.formats.postings.term_blocks import (
    BLOCK_TERMS,
    UnpackedTerms,
    get_term,
    pack,
    stack_rows,
    unpack,
)

__all__ = ["TermDictionary", "TermDictionaryWriter", "TermEntry", "TermRange"]

_KEY_BYTES = 8  # first bytes of a block, which are compared as one number
_AFTER_TEXT = b"\xff"  # is in no text of UTF-8, and larger than all its bytes
_RANGE_BLOCKS = 2048  # unpacked at a time: 32,768 terms, usually 1 MiB, at most 8 MiB


class TermEntry(NamedTuple):
    """The entry of a term.

    Attributes:
        n_docs: number of documents with it.
        start: first byte of its record in section ``postings``.
        end: one past its last byte.
    """

    n_docs: int
    start: int
    end: int


class TermRange(NamedTuple):
    """Consecutive terms with their entries.

    Attributes:
        rows: (n, width) uint8, the terms (see `quarry.formats.postings.term_blocks`).
        n_docs: (n,) int64, the number of documents with each.
        starts: (n,) int64, the first byte of its record in section ``postings``.
        ends: (n,) int64, one past its last byte: the start of the next one.
    """

    rows: UInt8Array
    n_docs: Int64Array
    starts: Int64Array
    ends: Int64Array

    def between(self, low: int, high: int) -> TermRange:
        """Return the terms low to high - 1."""
        return TermRange(self.rows[low:high], self.n_docs[low:high], self.starts[low:high], self.ends[low:high])


class TermDictionaryWriter:
    """Collects terms in ascending order of their bytes, in bounded memory."""

    def __init__(self, directory: Directory) -> None:
        self._blocks = Spool(directory)
        self._offsets = Spool(directory)
        self._keys = Spool(directory)
        self._record_offsets = Spool(directory)
        self._buffered: list[UnpackedTerms] = []
        self._n_buffered = 0
        self._n_record_bytes = 0

    def add(self, rows: UInt8Array, n_docs: Int64Array, record_bytes: Int64Array) -> None:
        """Append terms.

        Args:
            rows: (n, width) uint8, the terms (see `quarry.formats.postings.term_blocks`), at least one.
            n_docs: (n,) int64, the number of documents with each.
            record_bytes: (n,) int64, the size of its record.
        """
        self._buffered.append(UnpackedTerms(rows, n_docs, record_bytes))
        self._n_buffered += len(rows)
        if self._n_buffered >= BLOCK_TERMS:
            self._pack(self._n_buffered // BLOCK_TERMS * BLOCK_TERMS)

    def _pack(self, n_terms: int) -> None:
        """Pack the first `n_terms` of the buffered terms."""
        rows, n_docs, record_bytes = zip(*self._buffered, strict=True)
        terms = UnpackedTerms(stack_rows(rows), np.concatenate(n_docs), np.concatenate(record_bytes))
        packed, sizes = pack(*terms.between(0, n_terms))
        self._buffered = [terms.between(n_terms, None)]
        self._n_buffered -= n_terms
        record_starts = self._n_record_bytes + np.cumsum(terms.record_bytes) - terms.record_bytes
        self._offsets.write_array((self._blocks.n_bytes + np.cumsum(sizes) - sizes).astype(np.uint64))
        self._record_offsets.write_array(record_starts[:n_terms:BLOCK_TERMS].astype(np.uint64))
        self._keys.write_array(_keys(terms.rows[:n_terms:BLOCK_TERMS]))
        self._blocks.write_array(packed)
        self._n_record_bytes += int(terms.record_bytes[:n_terms].sum())

    def write(self, container: ContainerWriter) -> None:
        """Write the four sections; nothing can be added afterwards."""
        if self._n_buffered:
            self._pack(self._n_buffered)
        self._offsets.write_array(np.array([self._blocks.n_bytes], np.uint64))
        self._record_offsets.write_array(np.array([self._n_record_bytes], np.uint64))
        container.add_chunks("terms", np.uint8, (self._blocks.n_bytes,), self._blocks.chunks())
        for name, spool in (
            ("term_offsets", self._offsets),
            ("term_keys", self._keys),
            ("posting_offsets", self._record_offsets),
        ):
            container.add_chunks(name, np.uint64, (spool.n_bytes // 8,), spool.chunks())

    def close(self) -> None:
        """Delete the temporary files."""
        for spool in (self._blocks, self._offsets, self._keys, self._record_offsets):
            spool.close()


class TermDictionary:
    """Reads the terms of a segment."""

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self._path = container.path
        self._n_docs = n_docs
        self._keys = container.section("term_keys", np.uint64, (None,))
        self._n_blocks = self._keys.shape[0]
        self._blocks = container.section("terms", np.uint8, (None,))
        self._offsets = container.section("term_offsets", np.uint64, (self._n_blocks + 1,))
        self._record_offsets = container.section("posting_offsets", np.uint64, (self._n_blocks + 1,))

    @property
    def max_terms(self) -> int:
        """The number of terms, rounded up to whole blocks."""
        return self._n_blocks * BLOCK_TERMS

    def parts(self) -> Iterator[TermRange]:
        """Yield all terms, ascending, some thousands at a time.

        Raises:
            CorruptFile: they do not ascend, or a block cannot be read.
        """
        last = b""
        for low in range(0, self._n_blocks, _RANGE_BLOCKS):
            part = self._read_part(low, min(low + _RANGE_BLOCKS, self._n_blocks))
            if get_term(part.rows[0]) <= last:
                raise self._make_error((0, low + 1), "terms do not ascend")
            last = get_term(part.rows[-1])
            yield part

    def with_prefix(self, prefix: bytes) -> Iterator[TermRange]:
        """Yield the terms that begin with some bytes, ascending, some thousands at a time.

        Raises:
            CorruptFile: a block cannot be read.
        """
        first, end = max(0, self._find_block(prefix)), self._find_block(prefix + _AFTER_TEXT) + 1
        wanted = np.frombuffer(prefix, np.uint8)
        for low in range(first, end, _RANGE_BLOCKS):
            part = self._read_part(low, min(low + _RANGE_BLOCKS, end))
            if len(wanted) >= part.rows.shape[1]:
                continue
            begins = (part.rows[:, : len(wanted)] == wanted).all(axis=1) & (part.rows[:, -1] >= len(wanted))
            places = np.flatnonzero(begins)
            if len(places):
                yield part.between(int(places[0]), int(places[-1]) + 1)

    def _read_part(self, low: int, high: int) -> TermRange:
        """Unpack the blocks low to high - 1."""
        offsets = self._offsets.slice(low, high + 1).astype(np.int64)
        if offsets[0] < 0 or (offsets[1:] < offsets[:-1] + 2).any() or offsets[-1] > self._blocks.n_bytes:
            raise self._make_error((low, high), "block offsets that do not ascend")
        data = self._blocks.slice(int(offsets[0]), int(offsets[-1]))
        try:
            rows, n_docs, record_bytes = unpack(data, offsets - offsets[0], is_end=high == self._n_blocks)
        except ValueError as error:
            raise self._make_error((low, high), str(error)) from error
        if n_docs.min() < 1 or n_docs.max() > self._n_docs:
            raise self._make_error((low, high), f"{n_docs.min()} or {n_docs.max()} documents")
        starts = self._record_offsets.slice(low, high + 1).astype(np.int64)
        ends = starts[0] + np.cumsum(record_bytes)
        if not np.array_equal(np.append(ends[BLOCK_TERMS - 1 : -1 : BLOCK_TERMS], ends[-1]), starts[1:]):
            raise self._make_error((low, high), "records with gaps between them")
        return TermRange(rows, n_docs, ends - record_bytes, ends)

    def find(self, wanted: bytes) -> TermEntry | None:
        """Return the entry of a term, or None if there is none.

        Raises:
            CorruptFile: its block cannot be read.
        """
        block = self._find_block(wanted)
        for term, entry in self._iterate_entries(block) if block >= 0 else ():
            if term >= wanted:
                return entry if term == wanted else None
        return None

    def _find_block(self, wanted: bytes) -> int:
        """Return the last block whose first term is not greater than `wanted`, or -1."""
        key = np.uint64(_make_key(wanted))
        keys = self._keys.array()
        low, high = int(keys.searchsorted(key, "left")), int(keys.searchsorted(key, "right"))
        return bisect_right(range(low, high), wanted, key=self._read_first_term) + low - 1

    def _read_first_term(self, block: int) -> bytes:
        data = self._read_block(block)
        return data[2 : 2 + data[1]]

    def _read_block(self, block: int) -> bytes:
        low, high = self._offsets.slice(block, block + 2).tolist()
        if not low + 2 <= high <= self._blocks.n_bytes:
            raise self._make_error((block, block + 1), f"bytes {low} to {high}")
        return self._blocks.slice(low, high).tobytes()

    def _iterate_entries(self, block: int) -> Iterator[tuple[bytes, TermEntry]]:
        """Yield the terms of a block, at least one."""
        data = self._read_block(block)
        start, end = self._record_offsets.slice(block, block + 2).tolist()
        at, term = 0, b""
        while at < len(data):
            try:
                at, term, n_docs, record_bytes = _parse_entry(data, at, term)
            except (IndexError, ValueError) as error:
                raise self._make_error((block, block + 1), str(error)) from error
            if not 1 <= n_docs <= self._n_docs or start + record_bytes > end:
                raise self._make_error((block, block + 1), f"{n_docs} documents, {record_bytes} bytes of postings")
            yield term, TermEntry(n_docs, start, start + record_bytes)
            start += record_bytes
        if start != end:
            raise self._make_error((block, block + 1), "records with gaps between them")

    def _make_error(self, blocks: tuple[int, int], actual: str) -> CorruptFile:
        low, high = blocks
        which = f"block {low}" if high == low + 1 else f"a block from {low} to {high - 1}"
        return CorruptFile(f"{which} of the terms cannot be read", path=self._path, actual=actual)


def _parse_entry(data: bytes, at: int, before: bytes) -> tuple[int, bytes, int, int]:
    """Parse the entry at `at`; return its end, the term, its number of documents and its record's size."""
    shared, n_rest = data[at], data[at + 1]
    term = before[:shared] + data[at + 2 : at + 2 + n_rest]
    if len(term) != shared + n_rest or term <= before:
        raise ValueError("a term that is cut off or does not ascend")
    n_docs, at = read_varint(data, at + 2 + n_rest)
    record_bytes, at = read_varint(data, at)
    return at, term, n_docs, record_bytes


def _make_key(term: bytes) -> int:
    return int.from_bytes(term[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"), "big")


def _keys(rows: UInt8Array) -> UInt64Array:
    """Return the keys of the terms of these rows."""
    first_bytes = rows[:, :_KEY_BYTES] * (np.arange(_KEY_BYTES) < rows[:, -1:])
    keys: UInt64Array = first_bytes.view(">u8").reshape(-1).astype(np.uint64)
    return keys
