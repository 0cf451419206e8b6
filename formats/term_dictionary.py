"""The terms of a segment in the order of their UTF-8, and where the postings of each are.

Sections: ``terms`` (blocks of 16 terms, each term without the bytes it shares with the one before),
``term_offsets`` (where each block starts), ``term_keys`` (the first 8 bytes of each block's first term, as a
big-endian number: a search reads few pages) and ``posting_offsets`` (where the records of each block start in
section ``postings``). A term in a block::

    u8      bytes shared with the term before (0 in the first)
    u8      bytes that follow
    ...     those bytes
    varint  number of documents with the term
    varint  length of its record in section postings
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.spool import Spool

__all__ = ["MAX_TERM_BYTES", "TermDictionary", "TermDictionaryWriter", "TermEntry"]

MAX_TERM_BYTES = 255
_BLOCK_TERMS = 16
_KEY_BYTES = 8
_MAX_VARINT_BITS = 63


class TermEntry(NamedTuple):
    """What the dictionary says of a term.

    Attributes:
        n_docs: number of documents with it.
        start: first byte of its record in section ``postings``.
        end: one past its last byte.
    """

    n_docs: int
    start: int
    end: int


class TermDictionaryWriter:
    """Takes terms in ascending order of their bytes; memory stays bounded."""

    def __init__(self, directory: Directory) -> None:
        self._blocks = Spool(directory)
        self._offsets = Spool(directory)
        self._keys = Spool(directory)
        self._record_offsets = Spool(directory)
        self._n_in_block = 0
        self._last = b""
        self._n_record_bytes = 0

    def add(self, term: bytes, n_docs: int, record_bytes: int) -> None:
        """Append a term of 1 to 255 bytes, how many documents have it, and the length of its record."""
        shared = 0
        if self._n_in_block % _BLOCK_TERMS:
            shared = _n_shared(self._last, term)
        else:
            self._start_block(term)
        rest = term[shared:]
        self._blocks.write(bytes((shared, len(rest))) + rest + _varint(n_docs) + _varint(record_bytes))
        self._n_in_block += 1
        self._last = term
        self._n_record_bytes += record_bytes

    def write(self, envelope: EnvelopeWriter) -> None:
        """Write the four sections."""
        self._write_offsets()
        envelope.add_chunks("terms", np.uint8, (self._blocks.n_bytes,), self._blocks.chunks())
        for name, spool in (
            ("term_offsets", self._offsets),
            ("term_keys", self._keys),
            ("posting_offsets", self._record_offsets),
        ):
            envelope.add_chunks(name, np.uint64, (spool.n_bytes // 8,), spool.chunks())

    def close(self) -> None:
        """Drop the temporary files."""
        for spool in (self._blocks, self._offsets, self._keys, self._record_offsets):
            spool.close()

    def _start_block(self, term: bytes) -> None:
        self._write_offsets()
        self._keys.write(_key(term).to_bytes(8, "little"))
        self._n_in_block = 0

    def _write_offsets(self) -> None:
        self._offsets.write(self._blocks.n_bytes.to_bytes(8, "little"))
        self._record_offsets.write(self._n_record_bytes.to_bytes(8, "little"))


class TermDictionary:
    """The terms of a segment, read from its file."""

    def __init__(self, envelope: Envelope, n_docs: int) -> None:
        self._path = envelope.path
        self._n_docs = n_docs
        self._keys = envelope.section("term_keys", np.uint64, (None,))
        self._n_blocks = self._keys.shape[0]
        self._blocks = envelope.section("terms", np.uint8, (None,))
        self._offsets = envelope.section("term_offsets", np.uint64, (self._n_blocks + 1,))
        self._record_offsets = envelope.section("posting_offsets", np.uint64, (self._n_blocks + 1,))

    def __len__(self) -> int:
        """The number of terms."""
        last = self._n_blocks - 1
        return last * _BLOCK_TERMS + sum(1 for _ in self._entries(last)) if self._n_blocks else 0

    def __iter__(self) -> Iterator[tuple[bytes, TermEntry]]:
        """All terms, ascending.

        Raises:
            CorruptFile: they do not ascend, or a block cannot be read.
        """
        last = b""
        for block in range(self._n_blocks):
            n_terms = 0
            for term, entry in self._entries(block):
                if term <= last:
                    raise self._corrupt(block, "terms do not ascend")
                yield term, entry
                last = term
                n_terms += 1
            if n_terms != _BLOCK_TERMS and block + 1 < self._n_blocks:
                raise self._corrupt(block, f"{n_terms} terms")

    def find(self, wanted: bytes) -> TermEntry | None:
        """What the dictionary says of a term, None where it does not have it.

        Raises:
            CorruptFile: its block cannot be read.
        """
        block = self._block_of(wanted)
        for term, entry in self._entries(block) if block >= 0 else ():
            if term >= wanted:
                return entry if term == wanted else None
        return None

    def _block_of(self, wanted: bytes) -> int:
        """The last block whose first term is not above `wanted`; -1 where there is none."""
        key = np.uint64(_key(wanted))
        keys = self._keys.array()
        low, high = int(keys.searchsorted(key, "left")), int(keys.searchsorted(key, "right"))
        return bisect_right(range(low, high), wanted, key=self._first_term) + low - 1

    def _first_term(self, block: int) -> bytes:
        data = self._block(block)
        return data[2 : 2 + data[1]]

    def _block(self, block: int) -> bytes:
        low, high = self._offsets.slice(block, block + 2).tolist()
        if not low + 2 <= high <= self._blocks.n_bytes:
            raise self._corrupt(block, f"bytes {low} to {high}")
        return self._blocks.slice(low, high).tobytes()

    def _entries(self, block: int) -> Iterator[tuple[bytes, TermEntry]]:
        """The terms of a block; at least one."""
        data = self._block(block)
        start, end = self._record_offsets.slice(block, block + 2).tolist()
        at, term = 0, b""
        while at < len(data):
            try:
                at, term, n_docs, record_bytes = _entry(data, at, term)
            except (IndexError, ValueError) as error:
                raise self._corrupt(block, str(error)) from error
            if not 1 <= n_docs <= self._n_docs or start + record_bytes > end:
                raise self._corrupt(block, f"{n_docs} documents, {record_bytes} bytes of postings")
            yield term, TermEntry(n_docs, start, start + record_bytes)
            start += record_bytes
        if start != end:
            raise self._corrupt(block, "records that leave a gap")

    def _corrupt(self, block: int, actual: str) -> CorruptFile:
        return CorruptFile(f"block {block} of the terms cannot be read", path=self._path, actual=actual)


def _entry(data: bytes, at: int, before: bytes) -> tuple[int, bytes, int, int]:
    """The term at `at`, with the place behind it."""
    shared, n_rest = data[at], data[at + 1]
    term = before[:shared] + data[at + 2 : at + 2 + n_rest]
    if len(term) != shared + n_rest or term <= before:
        raise ValueError("a term that is cut off or does not ascend")
    at, n_docs = _read_varint(data, at + 2 + n_rest)
    at, record_bytes = _read_varint(data, at)
    return at, term, n_docs, record_bytes


def _key(term: bytes) -> int:
    return int.from_bytes(term[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"), "big")


def _n_shared(first: bytes, second: bytes) -> int:
    n_bytes = min(len(first), len(second))
    while first[:n_bytes] != second[:n_bytes]:
        n_bytes -= 1
    return n_bytes


def _varint(number: int) -> bytes:
    """LEB128: 7 bits a byte, low bits first."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] > 0x7F:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if shift >= _MAX_VARINT_BITS:
            raise ValueError("a number of too many bytes")
    return at + 1, number | data[at] << shift
