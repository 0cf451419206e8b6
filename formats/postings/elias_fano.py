"""Encodes the posting list of a term: Elias-Fano for the documents, unary for the term frequencies.

SPEC.md, section 5, "Postings", defines a record of n postings: n low parts of w bits, then 2 n ones, the first n
for the high parts of the ordinals, the others for the frequencies; the last one is in the last byte. (P. Elias,
Efficient storage and retrieval by content and address of static files, 1974; S. Vigna, Quasi-succinct indices,
2013.)
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array, offsets_from_sizes

__all__ = ["MAX_RECORD_BYTES", "Postings", "decode", "decode_several", "encode"]

MAX_RECORD_BYTES = 1 << 29  # so that the position of a bit fits 32 bits


_FEW_POSTINGS = 24  # Python's integers decode so many postings 5 to 18 times as fast as arrays
_CHUNK = 1 << 14  # postings at a time, which fit in a cache; a multiple of 8
_MANY_POSTINGS = 1 << 16  # more of one term are encoded in chunks: all at once, each takes 80 bytes of memory
_WRONG_NUMBER_OF_ONES = "a record with a wrong number of ones, or unused bytes"
_NOT_ASCENDING = "document ordinals that do not ascend or are out of bounds"


class Postings(NamedTuple):
    """The documents that contain a term, and its frequency in each.

    Attributes:
        docs: (n,) uint32 ordinals, ascending.
        frequencies: (n,) uint32, each at least 1.
    """

    docs: UInt32Array
    frequencies: UInt32Array


def encode(
    n_docs: int, counts: Int64Array, postings: Postings, many: int = _MANY_POSTINGS
) -> tuple[UInt8Array, Int64Array]:
    """Encode the postings of several terms.

    Args:
        n_docs: documents in the segment.
        counts: (n_terms,) int64, postings of each term, at least 1.
        postings: the postings of all terms, one term after the other.

        many: postings of a term from which it is encoded in chunks, to the same bytes.

    Returns:
        The concatenated records, and (n_terms,) int64, their sizes in bytes.
    """
    large = np.flatnonzero(counts > many)
    if not len(large):
        return _encode_several(n_docs, counts, postings)
    firsts, parts = offsets_from_sizes(counts), []
    for low, high in pairwise(np.unique([0, *large, *(large + 1), len(counts)]).tolist()):
        some = Postings(*(column[firsts[low] : firsts[high]] for column in postings))
        is_large = counts[low] > many
        parts.append(_encode_many(n_docs, some) if is_large else _encode_several(n_docs, counts[low:high], some))
    records, lengths = zip(*parts, strict=True)
    return np.concatenate(records), np.concatenate(lengths)


def _encode_many(n_docs: int, postings: Postings) -> tuple[UInt8Array, Int64Array]:
    """Encode the postings of one term as `encode` does, in the memory of the record and of a chunk."""
    n, (docs, frequencies) = len(postings.docs), postings
    width = (n_docs // n).bit_length() - 1
    n_before = n * width + (int(docs[-1]) >> width) + n
    n_bits = n_before + int(frequencies.sum(dtype=np.int64))
    packed = np.zeros(_checked_length(-(-n_bits // 8)), np.uint8)
    for low in range(0, n, _CHUNK):
        part = docs[low : low + _CHUNK].astype(np.int64)
        numbers, high = np.arange(len(part)), part >> width
        _set_ones(packed, numbers + (high + (n * width + low)))
        totals = np.cumsum(frequencies[low : low + _CHUNK], dtype=np.int64)
        _set_ones(packed, totals + (n_before - 1))
        n_before += int(totals[-1])
        if width:
            some = packed[low * width // 8 : -(-(low + len(part)) * width // 8)]
            _set_low_bits(some, numbers * width, part ^ (high << width), np.full(len(part), width))
    return packed, np.array([len(packed)])


def _checked_length(n_bytes: int) -> int:
    if n_bytes > MAX_RECORD_BYTES:
        raise OverflowError(f"postings of {n_bytes} bytes, and {MAX_RECORD_BYTES} can be stored")
    return n_bytes


def _set_ones(packed: UInt8Array, places: Int64Array) -> None:
    """Set the bits at these ascending places."""
    first = int(places[0]) >> 3
    bits = np.zeros(8 * ((int(places[-1]) >> 3) - first + 1), np.uint8)
    bits[places - 8 * first] = 1
    packed[first : first + len(bits) // 8] |= np.packbits(bits, bitorder="little")


def _encode_several(n_docs: int, counts: Int64Array, postings: Postings) -> tuple[UInt8Array, Int64Array]:
    ends = np.cumsum(counts)
    docs, totals = postings.docs.astype(np.int64), np.cumsum(postings.frequencies, dtype=np.int64)
    totals_before = np.concatenate([[0], totals[ends[:-1] - 1]])
    widths = _low_bit_widths(n_docs, counts)
    n_low_bits = widths * counts
    n_high_bits = (docs[ends - 1] >> widths) + counts
    lengths = -(-(n_low_bits + n_high_bits + totals[ends - 1] - totals_before) // 8)
    _checked_length(int(lengths.max()))
    starts, firsts = 8 * (np.cumsum(lengths) - lengths), ends - counts
    numbers, wide = np.arange(len(docs)), np.repeat(widths, counts)
    high = docs >> wide
    # One array has the bits of all records: the one of a high part at place i + high, that of a frequency at the
    # running total - 1. Numbers and totals run over all terms, so what came before a term is subtracted.
    bits = np.zeros(8 * int(lengths.sum()), np.uint8)
    bits[np.repeat(starts + n_low_bits - firsts, counts) + numbers + high] = 1
    bits[np.repeat(starts + n_low_bits + n_high_bits - totals_before - 1, counts) + totals] = 1
    packed = np.packbits(bits, bitorder="little")
    _set_low_bits(
        packed, np.repeat(starts - firsts * widths, counts) + numbers * wide, docs ^ (high << wide), wide
    )
    return packed, lengths


def _set_low_bits(packed: UInt8Array, at: Int64Array, values: Int64Array, widths: Int64Array) -> None:
    """Write values of these widths, up to 32 bits, at these ascending bit positions.

    All values that begin in a word of 64 bits are written at once; the last of them may extend to the next word.
    """
    words = np.zeros(len(packed) // 8 + 2, np.uint64)
    word, shift, bits = at >> 6, (at & 63).astype(np.uint64), values.astype(np.uint64)
    firsts = np.flatnonzero(np.append(True, word[1:] != word[:-1]))
    words[word[firsts]] = np.bitwise_or.reduceat(bits << shift, firsts)
    lasts = np.append(firsts[1:], len(at)) - 1
    lasts = lasts[(at[lasts] & 63) + widths[lasts] > 64]
    words[word[lasts] + 1] |= bits[lasts] >> (np.uint64(64) - shift[lasts])
    packed |= words.astype("<u8").view(np.uint8)[: len(packed)]


def _low_bit_widths(n_docs: int, counts: Int64Array) -> Int64Array:
    return np.frexp(n_docs // counts)[1].astype(np.int64) - 1  # the exponent is exact below 2^53


def decode(record: UInt8Array, n: int, n_docs: int) -> Postings:
    """Decode the record of `n` postings, 1 <= n <= n_docs.

    Raises:
        ValueError: the record is not valid.
    """
    width = (n_docs // n).bit_length() - 1
    if not n * (width + 2) <= 8 * len(record) <= 8 * MAX_RECORD_BYTES:
        raise ValueError("a record too short for its postings, or too long")
    if n <= _FEW_POSTINGS:
        return _decode_few(record.tobytes(), n, n_docs, width)
    return _decode_many(record, n, n_docs, width)


def decode_several(records: UInt8Array, lengths: Int64Array, counts: Int64Array, n_docs: int) -> Postings:
    """Decode the records of several terms at once: much faster than one by one if most are short.

    Args:
        records: the concatenated records.
        lengths: (n_terms,) int64, of each record in bytes.
        counts: (n_terms,) int64, its postings, 1 to n_docs.
        n_docs: documents in the segment.

    Returns:
        The postings of all terms, concatenated; takes about 40 times the memory of the records.

    Raises:
        ValueError: a record is not valid.
    """
    widths = _low_bit_widths(n_docs, counts)
    starts, n_low_bits = 8 * (np.cumsum(lengths) - lengths), widths * counts
    if (n_low_bits + 2 * counts > 8 * lengths).any() or lengths.max() > MAX_RECORD_BYTES:
        raise ValueError("a record too short for its postings, or too long")
    ones = _find_ones_of_several(records, starts // 8, lengths, counts, n_low_bits)
    firsts = np.cumsum(counts) - counts
    numbers, wide = np.arange(int(counts.sum())), np.repeat(widths, counts)
    places = np.repeat(firsts, counts) + numbers
    high = ones[places] - numbers - np.repeat(starts + n_low_bits - firsts, counts)
    at = np.repeat(starts - firsts * widths, counts) + numbers * wide
    docs = high << wide | _read_low_bits_at(records, at, wide)
    ascends = docs[1:] > docs[:-1]
    ascends[firsts[1:] - 1] = True  # between the last document of a term and the first one of the next
    if not ascends.all() or docs.max() >= n_docs:
        raise ValueError(_NOT_ASCENDING)
    places += np.repeat(counts, counts)
    return Postings(docs.astype(np.uint32), (ones[places] - ones[places - 1]).astype(np.uint32))


def _find_ones_of_several(
    records: UInt8Array, starts: Int64Array, lengths: Int64Array, counts: Int64Array, n_low_bits: Int64Array
) -> Int64Array:
    """Return the positions of the ones after the low bits of each record, two for each posting."""
    # Low parts hold ones too. They are masked out: whole bytes here, the bits of the byte at the border below.
    n_low_bytes = n_low_bits >> 3
    kept = np.repeat(
        np.tile(np.array([0, 0xFF], np.uint8), len(lengths)),
        np.stack([n_low_bytes, lengths - n_low_bytes], axis=1).ravel(),
    )
    kept[starts + n_low_bytes] <<= (n_low_bits & 7).astype(np.uint8)
    kept &= records
    ones, ends = np.flatnonzero(np.unpackbits(kept, bitorder="little").view(bool)), 8 * np.cumsum(lengths)
    n_before = 2 * np.cumsum(counts)
    if not np.array_equal(ones.searchsorted(ends), n_before) or (ones[n_before - 1] < ends - 8).any():
        raise ValueError(_WRONG_NUMBER_OF_ONES)
    return ones


def _read_low_bits_at(records: UInt8Array, at: Int64Array, widths: Int64Array) -> Int64Array:
    """Read numbers of these widths, less than 64 bits each, at these bit positions."""
    words = np.zeros(len(records) // 8 + 2, "<u8")
    words.view(np.uint8)[: len(records)] = records
    word, shift = at >> 6, (at & 63).astype(np.uint64)
    bits = words[word].astype(np.uint64) >> shift
    bits |= words[word + 1].astype(np.uint64) << (np.uint64(64) - shift)  # 0 for a shift of 64
    numbers: Int64Array = bits.view(np.int64) & ((1 << widths) - 1)
    return numbers


def _decode_few(record: bytes, n: int, n_docs: int, width: int) -> Postings:
    bits = int.from_bytes(record, "little")
    ones = bits >> n * width
    if ones.bit_count() != 2 * n or bits.bit_length() <= 8 * len(record) - 8:
        raise ValueError(_WRONG_NUMBER_OF_ONES)
    high, before = 0, -1
    numbers = []
    for place in range(n):
        gap = (ones & -ones).bit_length()
        ones >>= gap
        high += gap - 1
        doc = high << width | bits >> place * width & (1 << width) - 1
        if not before < doc < n_docs:
            raise ValueError(_NOT_ASCENDING)
        numbers.append(doc)
        before = doc
    for _ in range(n):
        gap = (ones & -ones).bit_length()
        ones >>= gap
        numbers.append(gap)
    both = np.array(numbers, np.uint32)
    return Postings(both[:n], both[n:])


def _decode_many(record: UInt8Array, n: int, n_docs: int, width: int) -> Postings:
    ones = _find_ones(record, n * width, 2 * n)
    docs = np.empty(n, np.uint32)
    # Before the shift below, which would drop the upper bits of a high part that is too large, and let it pass.
    if int(ones[n - 1]) - (n - 1) > n_docs >> width:
        raise ValueError(_NOT_ASCENDING)
    for low in range(0, n, _CHUNK):
        high = min(n, low + _CHUNK)
        part = np.subtract(ones[low:high], np.arange(low, high, dtype=np.uint32), out=docs[low:high])
        if width:
            part <<= width
            part |= _read_low_bits(record[low * width // 8 :], high - low, width)
    if docs[-1] >= n_docs or not (docs[1:] > docs[:-1]).all():
        raise ValueError(_NOT_ASCENDING)
    return Postings(docs, np.diff(ones[n - 1 :]))


def _find_ones(record: UInt8Array, skipped: int, n: int) -> UInt32Array:
    """Return the positions of the n ones after the first `skipped` bits, relative to these."""
    places = np.empty(n, np.uint32)
    n_found = 0
    for low in range(skipped // 8, len(record), _CHUNK // 2):
        bits = np.unpackbits(record[low : low + _CHUNK // 2], bitorder="little").view(bool)
        bits[: max(0, skipped - 8 * low)] = False
        here = np.flatnonzero(bits)
        here += 8 * low - skipped
        if n_found + len(here) > n:
            raise ValueError(_WRONG_NUMBER_OF_ONES)
        places[n_found : n_found + len(here)] = here
        n_found += len(here)
    if n_found != n or int(places[-1]) + skipped < 8 * len(record) - 8:
        raise ValueError(_WRONG_NUMBER_OF_ONES)
    return places


def _read_low_bits(data: UInt8Array, n: int, width: int) -> UInt32Array:
    """Read the first n numbers of `width` < 32 bits; eight of them fill whole bytes and are read in parallel."""
    n_eights = -(-n // 8)
    data = data[: n_eights * width]
    padded = np.zeros(n_eights * width + 8, np.uint8)
    padded[: len(data)] = data
    numbers = np.empty((n_eights, 8), np.uint32)
    for lane in range(8):
        byte, shift = divmod(lane * width, 8)
        words = np.ndarray((n_eights,), "<u8", padded, byte, (width,))
        np.right_shift(words, np.uint64(shift), out=numbers[:, lane], casting="unsafe")
    numbers &= np.uint32((1 << width) - 1)
    return numbers.reshape(-1)[:n]
