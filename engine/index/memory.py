"""Divides the memory limit of an open index among its parts.

The limit covers copies made by backends, decoded postings, cached filters, quantizers and per-document data. It
does not cover mapped files, whose memory the operating system can reclaim, models, the words that the analyzer
remembers (up to 23 MB), and temporary memory of a search.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from quarry.engine.arguments import shown
from quarry.engine.scoring.stored_vectors import lengths_bytes
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["MemoryPlan", "memory_bytes", "plan_memory"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?(i)?B", re.IGNORECASE)
_MAX_BYTES = 1 << 62
_MAX_DIGITS = 18
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_POSTING_BYTES = 128 << 20  # cache of decoded postings,
_POSTING_SHARE = 4 / 16  # and its maximum share of a limit
_FILTER_BYTES = 32 << 20  # cache of filters,
_FILTER_SHARE = 1 / 16  # and its maximum share


class MemoryPlan(NamedTuple):
    """Memory of each part in bytes.

    Attributes:
        limit_bytes: the limit; None without one.
        document_bytes: document lengths, flags of deleted documents and places of codes.
        quantizer_bytes: quantizers.
        posting_bytes: maximum for decoded postings.
        filter_bytes: maximum for cached filters.
        backend_bytes: maximum for backends; None: no limit.
    """

    limit_bytes: int | None
    document_bytes: int
    quantizer_bytes: int
    posting_bytes: int
    filter_bytes: int
    backend_bytes: int | None


def memory_bytes(value: int | str | None, name: str = "memory") -> int | None:
    """Convert a size such as 500_000_000, "500MB", "0.5 GB" or "512MiB" to bytes; None stays None.

    Args:
        value: the size.
        name: of the setting, for errors.

    Raises:
        InvalidSetting: it is not a size.
    """
    if value is None or (type(value) is int and 0 < value <= _MAX_BYTES):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or len(match[1]) > _MAX_DIGITS:
        expected = 'bytes, or a text like "500MB"'
        raise InvalidSetting(f"{name} is not a size", expected=expected, actual=shown(value), setting=name)
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[(match[2] or "").lower()])


def plan_memory(snapshot: Snapshot, limit_bytes: int | None) -> MemoryPlan:
    """Divide a limit among the parts of an index.

    Raises:
        InvalidSetting: the limit is too low for quantizers and per-document data.
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
            "the memory limit is too low for this index",
            path=snapshot.directory.path,
            expected=f"at least {math.ceil(needed / (1 - _POSTING_SHARE - _FILTER_SHARE))} bytes",
            actual=limit_bytes,
        )
    return MemoryPlan(limit_bytes, documents, quantizers, postings, filters, left)


def _quantizer_bytes(snapshot: Snapshot) -> int:
    """Return the memory of the quantizers; those that segments share are held once."""
    held = {segment.record.quantizer: segment.quantizer for segment in snapshot.segments if segment.quantizer}
    return sum(quantizer.n_bytes for quantizer in held.values())


def _document_bytes(segment: OpenSegment) -> int:
    """Return the memory of document lengths, flags of deleted documents, and what codes without centroids need."""
    flags = 0 if segment.deleted is None else segment.reader.passages.n_passages
    codes = 0
    if segment.reader.centroids.kind == "none" and segment.quantizer is not None:
        codes = 4 * segment.reader.n_rows + lengths_bytes(segment.quantizer, segment.reader.n_rows)
    return 4 * segment.reader.passages.n_passages + flags + codes
