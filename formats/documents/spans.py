"""The characters that each centroid of a document was computed from, packed into a few bytes.

For each centroid: the number of its spans, then for each span the gap since the end of the
previous one and its length; all as LEB128 varints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from quarry.formats.container.varint import append_varint, read_varint
from quarry.formats.errors import CorruptFile

__all__ = ["Span", "pack_spans", "unpack_spans"]

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
    if len(packed) > _MAX_PACKED_BYTES:
        raise CorruptFile("too many spans", path=path, expected=_MAX_PACKED_BYTES, actual=len(packed))
    numbers = _iterate_numbers(packed, path)
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


def _iterate_numbers(packed: bytes, path: Path) -> Iterator[int]:
    position = 0
    while position < len(packed):
        try:
            number, position = read_varint(packed, position)
        except ValueError as error:
            raise CorruptFile("the spans of a document cannot be read", path=path, actual=str(error)) from error
        if number > _MAX_POSITION:
            raise CorruptFile("a span is out of bounds", path=path, actual=number)
        yield number
