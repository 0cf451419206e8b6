"""Front-coded blocks of terms, packed and unpacked many terms at once as a matrix of bytes.

A row of the matrix is the UTF-8 of a term, zeros up to the width, and the length of the term in the last byte. So
equal rows are equal terms, and rows sort like terms, also those that end with zeros.

SPEC.md, section 5, "Terms", defines the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import Int64Array, UInt8Array, offsets_from_sizes
from quarry.formats.container.varint import MAX_VARINT_BYTES, put_varints, read_varints, varint_sizes

__all__ = [
    "BLOCK_TERMS",
    "MAX_TERM_BYTES",
    "UnpackedTerms",
    "argsort_rows",
    "find_first_of_equal",
    "get_term",
    "is_ascending",
    "make_rows",
    "pack",
    "split_into_rows",
    "stack_rows",
    "unpack",
]

MAX_TERM_BYTES = 255
BLOCK_TERMS = 16  # terms that are decoded to find one
_PADDING = 2 * MAX_TERM_BYTES + 2 * MAX_VARINT_BYTES + 4  # a damaged entry may refer so far beyond the end


class UnpackedTerms(NamedTuple):
    """The terms of some blocks.

    Attributes:
        rows: (n, width) uint8, the terms.
        n_docs: (n,) int64, the number of documents with each.
        record_bytes: (n,) int64, the size of its record in bytes.
    """

    rows: UInt8Array
    n_docs: Int64Array
    record_bytes: Int64Array

    def between(self, low: int, high: int | None) -> UnpackedTerms:
        """Return the terms low to high - 1."""
        return UnpackedTerms(self.rows[low:high], self.n_docs[low:high], self.record_bytes[low:high])


def make_rows(terms: Sequence[bytes]) -> UInt8Array:
    """Return the rows of at least one term of 1 to 255 bytes, (n, width) uint8."""
    return split_into_rows(b"".join(terms), np.fromiter(map(len, terms), np.uint8, len(terms)))


def split_into_rows(joined: bytes, sizes: UInt8Array) -> UInt8Array:
    """Return the rows of terms of (n,) these sizes, n >= 1, whose bytes are joined: (n, width) uint8."""
    rows = np.zeros((len(sizes), _row_width(int(sizes.max()))), np.uint8)
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = np.frombuffer(joined, np.uint8)
    rows[:, -1] = sizes
    return rows


def get_term(row: UInt8Array) -> bytes:
    """Return the term of one row (width,)."""
    return row[: row[-1]].tobytes()


def stack_rows(parts: Sequence[UInt8Array]) -> UInt8Array:
    """Return the concatenated rows of several matrices."""
    if len(parts) == 1:
        return parts[0]
    rows = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)), np.uint8)
    first = 0
    for part in parts:
        rows[first : first + len(part), : part.shape[1] - 1] = part[:, :-1]
        rows[first : first + len(part), -1] = part[:, -1]
        first += len(part)
    return rows


def argsort_rows(rows: UInt8Array) -> Int64Array:
    """Return the stable sort order of rows, (n,) int64; fast for sorted runs."""
    order: Int64Array = np.argsort(_as_strings(rows), kind="stable")
    return order


def find_first_of_equal(rows: UInt8Array) -> Int64Array:
    """Return the positions of the rows that differ from the previous one, for sorted rows."""
    return np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))


def is_ascending(rows: UInt8Array) -> bool:
    """Return whether each row is greater than the previous one."""
    words = rows.view(">u8")
    above = np.zeros(len(rows) - 1, bool)
    for column in reversed(range(words.shape[1])):
        word, before = words[1:, column], words[:-1, column]
        above = (word > before) | (word == before) & above
    return bool(above.all())


def pack(rows: UInt8Array, n_docs: Int64Array, record_bytes: Int64Array) -> tuple[UInt8Array, Int64Array]:
    """Pack terms into blocks.

    Args:
        rows: (n, width) uint8, ascending.
        n_docs: (n,) int64, the number of documents with each term.
        record_bytes: (n,) int64, the size of its record in bytes.

    Returns:
        The bytes of all blocks, and their sizes, (n_blocks,) int64.
    """
    shared = _count_shared(rows)
    n_rest = rows[:, -1] - shared
    numbers = (n_docs, record_bytes)
    sizes = [varint_sizes(each) for each in numbers]
    starts = offsets_from_sizes(2 + n_rest + sizes[0] + sizes[1])
    packed = np.zeros(int(starts[-1]), np.uint8)
    at = starts[:-1]
    packed[at], packed[at + 1] = shared, n_rest
    columns = np.arange(rows.shape[1])
    rest = rows[(columns >= shared[:, None]) & (columns < rows[:, -1:])]
    packed[np.repeat(at + 2 - (np.cumsum(n_rest) - n_rest), n_rest) + np.arange(len(rest))] = rest
    put_varints(packed, at + 2 + n_rest, numbers[0], sizes[0])
    put_varints(packed, at + 2 + n_rest + sizes[0], numbers[1], sizes[1])
    return packed, np.diff(np.append(at[::BLOCK_TERMS], starts[-1]))


def unpack(data: UInt8Array, starts: Int64Array, *, is_end: bool) -> UnpackedTerms:
    """Unpack consecutive blocks.

    Args:
        data: their bytes.
        starts: (n_blocks + 1,) int64, ascending: their offsets in `data`, and the end of the last one.
        is_end: whether the last block is that of the whole dictionary, which alone may have fewer than 16 terms.

    Raises:
        ValueError: a block is not valid, or terms do not ascend.
    """
    n_full = len(starts) - 1 - is_end
    parts = [(starts[: n_full + 1], BLOCK_TERMS)] if n_full else []
    parts += [(starts[-2:], 1)] if is_end else []
    unpacked = [_unpack_blocks(data[bounds[0] :], bounds - bounds[0], least) for bounds, least in parts]
    rows, n_docs, record_bytes = zip(*unpacked, strict=True)
    terms = UnpackedTerms(stack_rows(rows), np.concatenate(n_docs), np.concatenate(record_bytes))
    if not is_ascending(terms.rows):
        raise ValueError("terms do not ascend")
    return terms


class _Entries(NamedTuple):
    """The entries of blocks with equal numbers of terms: arrays (n_terms_each, n_blocks) int64."""

    texts: Int64Array  # offsets of the bytes that are not shared
    shared: Int64Array
    sizes: Int64Array
    n_docs: Int64Array
    record_bytes: Int64Array


def _unpack_blocks(data: UInt8Array, starts: Int64Array, least: int) -> UnpackedTerms:
    """Unpack blocks with equal numbers of terms, at least `least`."""
    data = np.concatenate([data[: starts[-1]], np.zeros(_PADDING, np.uint8)])
    entries = _parse_entries(data, starts, least)
    rows = _decode_rows(data, entries)
    in_order = [np.ascontiguousarray(each.T).reshape(-1) for each in (entries.n_docs, entries.record_bytes)]
    return UnpackedTerms(rows, *in_order)


def _parse_entries(data: UInt8Array, starts: Int64Array, least: int) -> _Entries:
    at, ends = starts[:-1], starts[1:]
    before = np.zeros(len(at), np.int64)
    places: list[tuple[Int64Array, ...]] = []
    while len(places) < BLOCK_TERMS and (at < ends).any():
        if not (at < ends).all():
            break
        shared, texts = data[at].astype(np.int64), at + 2
        sizes = shared + data[at + 1]
        if (shared > before).any() or sizes.min() < 1 or sizes.max() > MAX_TERM_BYTES:
            raise ValueError("a term that is cut off, or of a wrong length")
        n_docs, at = read_varints(data, texts + sizes - shared)
        record_bytes, at = read_varints(data, at)
        places.append((texts, shared, sizes, n_docs, record_bytes))
        before = sizes
    if len(places) < least or (at != ends).any():
        raise ValueError("blocks of other lengths than their terms")
    return _Entries(*map(np.array, zip(*places, strict=True)))


def _decode_rows(data: UInt8Array, entries: _Entries) -> UInt8Array:
    n_places, n_blocks = entries.sizes.shape
    width = _row_width(int(entries.sizes.max()))
    rows = np.zeros((n_blocks, n_places, width), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(data, width)
    columns = np.arange(width, dtype=np.uint8)
    before = rows[:, 0]
    for place, (texts, shared, sizes) in enumerate(zip(entries.texts, entries.shared, entries.sizes, strict=True)):
        rest = windows[texts - shared]
        row = np.where(columns < shared.astype(np.uint8)[:, None], before, rest)
        row *= columns < sizes.astype(np.uint8)[:, None]
        rows[:, place] = before = row
    rows[:, :, -1] = entries.sizes.T
    return rows.reshape(-1, width)


def _count_shared(rows: UInt8Array) -> Int64Array:
    """Count the bytes that each term shares with the previous one; none for the first of a block."""
    shared = np.zeros(len(rows), np.int64)
    differs = rows[1:] != rows[:-1]
    differs[:, -1] = True
    shared[1:] = np.minimum(differs.argmax(axis=1), np.minimum(rows[1:, -1], rows[:-1, -1]))
    shared[::BLOCK_TERMS] = 0
    return shared


def _row_width(size: int) -> int:
    """Return the width of rows for terms of up to `size` bytes: whole words of 8 bytes."""
    return size // 8 * 8 + 8


def _as_strings(rows: UInt8Array) -> npt.NDArray[np.bytes_]:
    strings: npt.NDArray[np.bytes_] = np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)
    return strings
