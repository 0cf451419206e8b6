"""The characters that each centroid of a document was computed from, packed into a few bytes.

For each centroid: the number of its spans, then for each span the gap since the end of the
previous one and its length; all as LEB128 varints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array
from quarry.formats.container.varint import MAX_VARINT_BYTES, append_varint, read_varints
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


def unpack_spans(
    packed: bytes, path: Path, n_centroids: int | None = None, first: int = 0, stop: int | None = None
) -> list[list[Span]]:
    """Return the spans of each centroid, or of those from `first` to before `stop`.

    Args:
        packed: what `pack_spans` returned.
        path: of the file, for errors.
        n_centroids: how many centroids the document has; None: that is not checked.
        first: the first centroid whose spans are returned.
        stop: the one after the last; None: all that follow.

    Raises:
        CorruptFile: the bytes are not spans, a position is out of bounds, or there are spans of another number of
            centroids.
    """
    if len(packed) > _MAX_PACKED_BYTES:
        raise CorruptFile("too many spans", path=path, expected=_MAX_PACKED_BYTES, actual=len(packed))
    data, starts = _find_numbers(packed, path)
    if len(starts) % 3 == 0 and (data[starts[::3]] == 1).all():  # one span each, as most representations make them
        heads: Sequence[int] = range(0, len(starts) + 1, 3)
    else:
        heads = _find_heads(_read_numbers(data, starts, path))
    if heads[-1] != len(starts):
        raise CorruptFile("the spans of a document end early", path=path)
    if n_centroids not in (None, len(heads) - 1):
        raise CorruptFile("spans do not fit the centroids", path=path, expected=n_centroids, actual=len(heads) - 1)
    heads = heads[first : None if stop is None else stop + 1]
    numbers = _read_numbers(data, starts[heads[0] : heads[-1]], path)
    centroids: list[list[Span]] = []
    for low, high in pairwise(heads):
        bounds = accumulate(numbers[low + 1 - heads[0] : high - heads[0]])
        centroids.append(list(zip(bounds, bounds, strict=True)))
    end = max((spans[-1][1] for spans in centroids if spans), default=0)
    if end > _MAX_POSITION:
        raise CorruptFile("a span is out of bounds", path=path, actual=end)
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


def _find_numbers(packed: bytes, path: Path) -> tuple[UInt8Array, Int64Array]:
    """Return the bytes, with zeros after them, and where each number starts."""
    data = np.frombuffer(packed + bytes(MAX_VARINT_BYTES), np.uint8)
    ends = np.flatnonzero(data[: len(packed)] < 0x80) + 1
    if len(packed) != (ends[-1] if len(ends) else 0):
        raise CorruptFile("the spans of a document end early", path=path)
    return data, np.append(0, ends[:-1])[: len(ends)]


def _read_numbers(data: UInt8Array, starts: Int64Array, path: Path) -> list[int]:
    try:
        numbers, _ = read_varints(data, starts)
    except ValueError as error:
        raise CorruptFile("the spans of a document cannot be read", path=path, actual=str(error)) from error
    if numbers.max(initial=0) > _MAX_POSITION:
        raise CorruptFile("a span is out of bounds", path=path, actual=int(numbers.max()))
    found: list[int] = numbers.tolist()
    return found


def _find_heads(numbers: Sequence[int]) -> list[int]:
    """Return the place of each centroid's number of spans, and where the last one's spans end."""
    heads = [0]
    while heads[-1] < len(numbers):
        heads.append(heads[-1] + 1 + 2 * numbers[heads[-1]])
    return heads
