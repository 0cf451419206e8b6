"""The characters that each centroid of a document was computed from, packed into a few bytes.

For each centroid: the number of its spans, then for each span the gap since the end of the
previous one and its length; all as LEB128 varints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from quarry.formats.arrays import Int64Array
from quarry.formats.container.varint import MAX_VARINT_BYTES, append_varint, read_varints
from quarry.formats.errors import CorruptFile

__all__ = ["Span", "pack_spans", "unpack_some_spans", "unpack_spans"]

Span = tuple[int, int]
_MAX_POSITION = 1 << 32  # characters
_MAX_PACKED_BYTES = 16 << 20  # enough for the longest document with a span for each token


def pack_spans(centroids: Iterable[Sequence[Span]]) -> bytes:
    """Pack the (start, end) spans of each centroid, which must ascend and not overlap."""
    parts: list[bytes] = []
    last: Sequence[Span] | None = None
    for spans in centroids:  # often those of the one before, the whole text
        parts.append(parts[-1] if spans == last else _pack_one(spans))
        last = spans
    return b"".join(parts)


def unpack_spans(packed: bytes, path: Path) -> list[list[Span]]:
    """Return the spans of each centroid.

    Raises:
        CorruptFile: the bytes end within an integer, or a position is out of bounds.
    """
    return unpack_some_spans(packed, path, 0, None)[0]


def unpack_some_spans(packed: bytes, path: Path, first: int, stop: int | None) -> tuple[list[list[Span]], int]:
    """Return the spans of some centroids, and the number of centroids that have spans.

    Args:
        packed: the spans of all centroids of a document.
        path: file of the document, for messages.
        first: the first centroid wanted.
        stop: the one after the last; None: all that follow.

    Raises:
        CorruptFile: see `unpack_spans`.
    """
    if len(packed) > _MAX_PACKED_BYTES:
        raise CorruptFile("too many spans", path=path, expected=_MAX_PACKED_BYTES, actual=len(packed))
    numbers = _read_numbers(packed, path)
    if len(numbers) % 3 == 0 and (numbers[::3] == 1).all():  # one span for each centroid, which most indexes have
        lows, ends = numbers[1::3], numbers[1::3] + numbers[2::3]
        if ends.max(initial=0) > _MAX_POSITION:
            raise CorruptFile("a span is out of bounds", path=path, actual=int(ends.max()))
        pairs = zip(lows[first:stop].tolist(), ends[first:stop].tolist(), strict=True)
        return [[pair] for pair in pairs], len(lows)
    centroids = _divide(iter(numbers.tolist()), path)
    return centroids[first:stop], len(centroids)


def _divide(numbers: Iterator[int], path: Path) -> list[list[Span]]:
    """Return the spans of each centroid, of which any may have several or none."""
    centroids: list[list[Span]] = []
    try:
        for n_spans in numbers:
            end, spans = 0, []
            for _ in range(n_spans):
                low = end + next(numbers)
                end = low + next(numbers)
                spans.append((low, end))
            if end > _MAX_POSITION:
                raise CorruptFile("a span is out of bounds", path=path, actual=end)
            centroids.append(spans)
    except StopIteration:
        raise CorruptFile("the spans of a document end early", path=path) from None
    return centroids


def _pack_one(spans: Sequence[Span]) -> bytes:
    """Pack the spans of one centroid."""
    packed = bytearray()
    _append_number(packed, len(spans))
    end = 0
    for low, high in spans:
        _append_number(packed, low - end)
        _append_number(packed, high - low)
        end = high
    return bytes(packed)


def _append_number(packed: bytearray, number: int) -> None:
    if number < 0:
        raise ValueError("spans must ascend and not overlap")
    append_varint(packed, number)


def _read_numbers(packed: bytes, path: Path) -> Int64Array:
    """Return all integers in some bytes, (n,) int64."""
    data = np.frombuffer(packed + b"\xff" * MAX_VARINT_BYTES, np.uint8)  # an integer that is cut off is too long
    starts = np.append(0, 1 + np.flatnonzero(data[: len(packed)] < 0x80))
    try:
        numbers, _ = read_varints(data, starts[starts < len(packed)])
    except ValueError as error:
        raise CorruptFile("the spans of a document cannot be read", path=path, actual=str(error)) from error
    if (largest := int(numbers.max(initial=0))) > _MAX_POSITION:
        raise CorruptFile("a span is out of bounds", path=path, actual=largest)
    return numbers
