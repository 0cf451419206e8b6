"""Looks documents up in the record of a frequent term without decoding it.

SPEC.md, section 5, "Postings", defines a record. The number of ones before each block of 512 bits finds the place
of the zero that ends the documents of a high part, and that of the one that ends a frequency. (Select queries by
counts of blocks: S. Vigna, Broadword implementation of rank/select queries, 2008.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array

__all__ = ["RecordLookup"]

_BLOCK_BITS = 512  # a cache line; the number of ones before each is kept
_BLOCK_WORDS = _BLOCK_BITS // 64
_LEAST = 64  # postings, so that 8 bytes can be read from the place of any low part

UInt64Array = npt.NDArray[np.uint64]


def _make_select_table() -> UInt8Array:
    """Return the position of the one with number j in byte i: (256, 8) uint8, 0 if it has fewer."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table = np.zeros((256, 8), np.uint8)
    numbers = np.cumsum(bits, axis=1) - 1
    byte, place = np.nonzero(bits)
    table[byte, numbers[byte, place]] = place
    return table


_SELECT = _make_select_table()


class RecordLookup:
    """Finds the frequencies of a term in some documents; thread-safe.

    Args:
        record: the record of the term, verified.
        n: number of its postings, 64 to n_docs.
        n_docs: documents in the segment.

    Raises:
        ValueError: the record is not valid.
    """

    def __init__(self, record: UInt8Array, n: int, n_docs: int) -> None:
        self._width = (n_docs // n).bit_length() - 1
        if n < _LEAST or not n * (self._width + 2) <= 8 * len(record):
            raise ValueError("a record too short for its postings")
        self._n = n
        self._record = record
        self._skipped = n * self._width % 8  # bits before the first one that is counted, in the first byte
        data = record[n * self._width // 8 :]
        self._words = np.zeros(-(-len(data) // (_BLOCK_BITS // 8)) * _BLOCK_WORDS, "<u8")
        self._words.view(np.uint8)[: len(data)] = data
        self._words[0] &= ~np.uint64((1 << self._skipped) - 1)
        counts = np.bitwise_count(self._words).reshape(-1, _BLOCK_WORDS).sum(axis=1, dtype=np.uint32)
        self._ones = np.zeros(len(counts) + 1, np.uint32)
        np.cumsum(counts, out=self._ones[1:])
        if self._ones[-1] != 2 * n:
            raise ValueError("a record with a wrong number of ones")
        self._zeros = np.arange(len(self._ones), dtype=np.int64) * _BLOCK_BITS - self._skipped - self._ones
        self._zeros[0] = 0
        self._last_one = int(self._select_ones(np.array([n - 1]))[0])

    @property
    def n_bytes(self) -> int:
        """Memory of the tables, in bytes."""
        return self._words.nbytes + self._ones.nbytes + self._zeros.nbytes

    def largest_frequency(self, most: int) -> int:
        """Return the largest frequency, or `most` + 1 if it is larger than `most`."""
        first = self._last_one // 64
        words = self._words[first:].copy()
        words[0] |= np.uint64((2 << self._last_one % 64) - 1 & 0xFFFFFFFFFFFFFFFF)
        end = int(self._select_ones(np.array([2 * self._n - 1]))[0]) + 1
        zeros = ~words[: -(-end // 64) - first]
        if end % 64:
            zeros[-1] &= np.uint64((1 << end % 64) - 1)
        runs = zeros.copy()  # a one at each place from which on there are `length` zeros
        length = 0
        while runs.any():
            length += 1
            if length == most:
                return most + 1
            runs = zeros & (runs >> np.uint64(1) | np.append(runs[1:], np.uint64(0)) << np.uint64(63))
        return length + 1

    def frequencies(self, docs: Int64Array) -> UInt32Array:
        """Return the frequency of the term in (m,) documents, (m,) uint32; 0 without it."""
        counts = np.zeros(len(docs), np.uint32)
        places = self._find(docs)
        with_term = np.flatnonzero(places >= 0)
        ends = self._n + places[with_term]
        both = self._select_ones(np.concatenate([ends - 1, ends]))
        counts[with_term] = both[len(ends) :] - both[: len(ends)]
        return counts

    def contains(self, docs: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which of (m,) documents have the term."""
        is_there: npt.NDArray[np.bool_] = self._find(docs) >= 0
        return is_there

    def _find(self, docs: Int64Array) -> Int64Array:
        """Return the numbers of the postings of (m,) documents, -1 without the term."""
        places = np.full(len(docs), -1, np.int64)
        high = docs >> self._width
        left = np.flatnonzero(high <= self._last_one - self._skipped - (self._n - 1))
        high, low = high[left], docs[left] & (1 << self._width) - 1
        at = np.full(len(left), self._skipped, np.int64)
        is_later = high > 0
        at[is_later] = self._select_zeros(high[is_later] - 1) + 1
        numbers = at - self._skipped - high
        for _ in range(1 << self._width):  # the documents of a high part
            is_one = (self._words[at >> 6] >> (at & 63).astype(np.uint64) & np.uint64(1)).astype(bool)
            is_one &= numbers < self._n
            left, low, at, numbers = left[is_one], low[is_one], at[is_one], numbers[is_one]
            if not len(left):
                break
            own = self._low_bits(numbers)
            is_equal = own == low
            places[left[is_equal]] = numbers[is_equal]
            is_less = own < low
            left, low, at, numbers = left[is_less], low[is_less], at[is_less] + 1, numbers[is_less] + 1
        return places

    def _low_bits(self, numbers: Int64Array) -> Int64Array:
        """Return the low parts of the postings of these numbers."""
        if not self._width:
            return np.zeros(len(numbers), np.int64)
        bits = numbers * self._width
        words = np.ndarray((len(self._record) - 7,), "<u8", self._record, 0, (1,))
        parts = words[bits >> 3] >> (bits & 7).astype(np.uint64) & np.uint64((1 << self._width) - 1)
        low: Int64Array = parts.astype(np.int64)
        return low

    def _select_ones(self, numbers: Int64Array) -> Int64Array:
        """Return the positions of the ones with these numbers."""
        blocks = self._ones.searchsorted(numbers.astype(np.uint32), "right") - 1
        return _select(self._words.reshape(-1, _BLOCK_WORDS)[blocks], numbers - self._ones[blocks], blocks)

    def _select_zeros(self, numbers: Int64Array) -> Int64Array:
        """Return the positions of the zeros with these numbers, which lie before the last document."""
        blocks = self._zeros.searchsorted(numbers, "right") - 1
        words = ~self._words.reshape(-1, _BLOCK_WORDS)[blocks]
        words[blocks == 0, 0] &= ~np.uint64((1 << self._skipped) - 1)
        return _select(words, numbers - self._zeros[blocks], blocks)


def _select(words: UInt64Array, numbers: Int64Array, blocks: Int64Array) -> Int64Array:
    """Return the positions of ones in blocks.

    Args:
        words: (m, 8) of each block.
        numbers: (m,) of the one in the block.
        blocks: (m,) numbers of the blocks.
    """
    lines = np.arange(len(words))
    word, numbers = _find_part(np.bitwise_count(words), numbers)
    chosen = np.ascontiguousarray(words[lines, word].astype("<u8")).view(np.uint8).reshape(-1, 8)
    byte, numbers = _find_part(np.bitwise_count(chosen), numbers)
    places: Int64Array = blocks * _BLOCK_BITS + word * 64 + byte * 8 + _SELECT[chosen[lines, byte], numbers]
    return places


def _find_part(counts: UInt8Array, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return for each line of (m, 8) counts the part that a one is in, and its number there."""
    sums = np.cumsum(counts, axis=1, dtype=np.int16)
    part = (sums <= numbers[:, None]).sum(axis=1)
    lines = np.arange(len(counts))
    return part, numbers - sums[lines, part] + counts[lines, part]
