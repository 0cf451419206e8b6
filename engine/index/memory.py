"""How much main memory an open index may hold, and how it is shared out.

What counts is what stays: copies that backends make, decoded postings, the answers to filters, quantizers, a
number for each document. Mapped files do not count: the system takes their memory back when it needs it. Nor do
the models, and what a search needs while it lasts.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from quarry.engine.arguments import shown
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["MemoryPlan", "memory_bytes", "plan_memory"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?(i)?B", re.IGNORECASE)
_MOST_BYTES = 1 << 62
_MOST_DIGITS = 18
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_POSTING_BYTES = 128 << 20  # for decoded postings,
_POSTING_SHARE = 4 / 16  # of a limit at most this share
_FILTER_BYTES = 32 << 20  # the same for the answers to filters
_FILTER_SHARE = 1 / 16


class MemoryPlan(NamedTuple):
    """Bytes by use.

    Attributes:
        limit_bytes: the limit; None where there is none.
        document_bytes: for norms, marks of deletion and places of codes.
        quantizer_bytes: for quantizers.
        posting_bytes: at most, for decoded postings.
        filter_bytes: at most, for the documents that pass filters.
        backend_bytes: at most, for what backends hold; None: as much as they need.
    """

    limit_bytes: int | None
    document_bytes: int
    quantizer_bytes: int
    posting_bytes: int
    filter_bytes: int
    backend_bytes: int | None


def memory_bytes(value: int | str | None) -> int | None:
    """The bytes of a size like 500_000_000, "500MB", "0.5 GB" or "512MiB"; None stays None.

    Raises:
        InvalidSetting: it is no size.
    """
    if value is None or (type(value) is int and 0 < value <= _MOST_BYTES):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or len(match[1]) > _MOST_DIGITS:
        raise InvalidSetting("memory is no size", expected='bytes, or a text like "500MB"', actual=shown(value))
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[(match[2] or "").lower()])


def plan_memory(snapshot: Snapshot, limit_bytes: int | None) -> MemoryPlan:
    """Share a limit out among the parts of an index.

    Raises:
        InvalidSetting: not even what every search needs fits.
    """
    documents, quantizers = sum(map(_document_bytes, snapshot.segments)), _quantizer_bytes(snapshot)
    needed = documents + quantizers
    if limit_bytes is None:
        return MemoryPlan(None, documents, quantizers, _POSTING_BYTES, _FILTER_BYTES, None)
    postings = min(_POSTING_BYTES, int(limit_bytes * _POSTING_SHARE))
    filters = min(_FILTER_BYTES, int(limit_bytes * _FILTER_SHARE))
    left = limit_bytes - needed - postings - filters
    if left < 0:
        raise InvalidSetting(
            "the memory allowed is too little for this index",
            path=snapshot.directory.path,
            expected=f"at least {math.ceil(needed / (1 - _POSTING_SHARE - _FILTER_SHARE))} bytes",
            actual=limit_bytes,
        )
    return MemoryPlan(limit_bytes, documents, quantizers, postings, filters, left)


def _quantizer_bytes(snapshot: Snapshot) -> int:
    """Those that segments share are held once."""
    held = {segment.record.quantizer: segment.quantizer for segment in snapshot.segments if segment.quantizer}
    return sum(quantizer.n_bytes for quantizer in held.values())


def _document_bytes(segment: OpenSegment) -> int:
    """Bytes of a norm for each document, the marks of deleted ones, and the places of codes that stand alone."""
    marks = 0 if segment.deleted is None else segment.deleted.nbytes
    places = 4 * segment.reader.n_rows if segment.reader.centroids.kind == "none" else 0
    return 4 * segment.reader.n_docs + marks + places
