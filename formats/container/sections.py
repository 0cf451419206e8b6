"""The sections of a file: arrays in chunks of 1 MiB, each verified when it is first read."""

from __future__ import annotations

import math
import reprlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from quarry.formats.arrays import AnyArray, BoolArray, Int64Array
from quarry.formats.container.directory import is_safe_name
from quarry.formats.container.fields import Fields
from quarry.formats.errors import ChecksumMismatch, CorruptFile

__all__ = [
    "ALIGNMENT",
    "BULK_ALIGNMENT",
    "CHUNK_BYTES",
    "DIGEST_BYTES",
    "MAX_EXTENT",
    "Section",
    "digest",
    "read_sections",
]

ALIGNMENT = 64  # bytes: a cache line
BULK_ALIGNMENT = 4096  # bytes: a page
CHUNK_BYTES = 1 << 20
DIGEST_BYTES = 16
MAX_SECTIONS = 4096
MAX_EXTENT = 1 << 48  # of one axis
DTYPES = ("int8", "uint8", "uint16", "uint32", "uint64", "float16", "float32")

_DTYPES = {name: np.dtype(name) for name in DTYPES}
_FIELDS = {"dtype", "shape", "offset", "chunks"}
_MAX_AXES = 4


def digest(data: bytes | memoryview) -> bytes:
    """XXH3-128 of `data`, 16 bytes."""
    return xxhash.xxh3_128_digest(data)


class Section:
    """One array of a file; its chunks are verified when they are first read.

    Attributes:
        name: the section's name.
        dtype: type of the elements, little-endian.
        shape: extent of each axis; rows are the first axis.
    """

    def __init__(
        self,
        path: Path,
        data: memoryview,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        offset: int,
        n_bytes: int,
        digests: bytes,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.offset = offset
        self._path = path
        self._digests = digests
        self.n_bytes = n_bytes
        self._bytes = data[offset : offset + n_bytes]  # keeps the map open after the file is closed
        self._row_bytes = self.n_bytes // shape[0] if shape[0] else 1

    @cached_property
    def _verified(self) -> BoolArray:
        """(n_chunks,) bool: which chunks were verified."""
        return np.zeros(len(self._digests) // DIGEST_BYTES, bool)

    @cached_property
    def _array(self) -> AnyArray:
        if not self.n_bytes:
            return np.empty(self.shape, self.dtype)
        return np.frombuffer(self._bytes, self.dtype).reshape(self.shape)

    def array(self) -> AnyArray:
        """Return the whole section, verified; a read-only view of the mapped file."""
        self._verify_chunks(0, len(self._verified))
        return self._array

    def rows(self, ordinals: AnyArray) -> AnyArray:
        """Return a verified copy of the rows `ordinals`, fastest if ascending; rows are at most a chunk long."""
        if not self._verified.all() and len(ordinals):
            starts = ordinals.astype(np.int64) * self._row_bytes
            read_chunks = np.concatenate([starts, starts + (self._row_bytes - 1)]) // CHUNK_BYTES
            for chunk in np.unique(read_chunks[~self._verified[read_chunks]]).tolist():
                self._verify_chunks(chunk, chunk + 1)
        return np.take(self._array, ordinals, axis=0)

    def slice(self, low: int, high: int) -> AnyArray:
        """Return the rows low to high - 1, verified; a read-only view of the mapped file."""
        if low < high:
            self._verify_chunks(low * self._row_bytes // CHUNK_BYTES, -(-high * self._row_bytes // CHUNK_BYTES))
        return self._array[low:high]

    def read_ranges(self, starts: Int64Array, ends: Int64Array) -> list[bytes]:
        """Return verified copies of the elements starts[i] to ends[i] - 1 of a section of bytes."""
        if not self._verified.all():
            for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
                self._verify_chunks(low // CHUNK_BYTES, -(-high // CHUNK_BYTES))
        data = self._bytes
        return [bytes(data[low:high]) for low, high in zip(starts.tolist(), ends.tolist(), strict=True)]

    def find_damaged_chunks(self) -> list[int]:
        """Read all chunks and return the numbers of those that do not match their checksum."""
        return [chunk for chunk in range(len(self._verified)) if not self._is_intact(chunk)]

    def _verify_chunks(self, low: int, high: int) -> None:
        if self._verified[low:high].all():
            return
        for chunk in range(low, high):
            if not self._verified[chunk]:
                if not self._is_intact(chunk):
                    raise self.damage_error(chunk)
                self._verified[chunk] = True

    def _is_intact(self, chunk: int) -> bool:
        data = self._bytes[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        return digest(data) == self._digests[chunk * DIGEST_BYTES : (chunk + 1) * DIGEST_BYTES]

    def damage_error(self, chunk: int) -> ChecksumMismatch:
        """Return the error that reports a damaged chunk."""
        at = self.offset + chunk * CHUNK_BYTES
        return ChecksumMismatch(
            f"section {self.name}: the chunk at offset {at} is damaged",
            path=self._path,
        )


def read_sections(entries: Fields, data: memoryview, start: int, limit: int, path: Path) -> dict[str, Section]:
    """Return the sections that a table of contents lists, in the bytes start to limit - 1 of a file.

    Raises:
        CorruptFile: they overlap, leave gaps, or violate the specification.
    """
    raw = entries.remaining()
    if len(raw) > MAX_SECTIONS:
        raise CorruptFile("too many sections", path=path, expected=MAX_SECTIONS, actual=len(raw))
    sections = {name: _parse_section(name, entry, data, limit, path) for name, entry in raw.items()}
    end = start
    for section in sorted(sections.values(), key=lambda s: (s.offset, s.n_bytes)):
        if not end <= section.offset < end + BULK_ALIGNMENT:
            raise CorruptFile(
                f"section {section.name} overlaps another one or leaves a gap",
                path=path,
                expected=end,
                actual=section.offset,
            )
        end = section.offset + section.n_bytes
    if limit != end + -end % ALIGNMENT:
        raise CorruptFile("a gap before the table of contents", path=path, expected=end, actual=limit)
    return sections


def _parse_section(name: str, entry: object, data: memoryview, limit: int, path: Path) -> Section:
    """Parse one entry of a table of contents; without `Fields`, because an index has thousands of entries."""
    if type(entry) is not dict or entry.keys() != _FIELDS:
        raise CorruptFile(
            f"section {name!r} has wrong fields", path=path, expected=sorted(_FIELDS), actual=reprlib.repr(entry)
        )
    kind, extents, offset, digests = entry["dtype"], entry["shape"], entry["offset"], entry["chunks"]
    dtype = _DTYPES.get(kind) if type(kind) is str else None
    if dtype is None:
        raise _invalid_entry(name, "dtype", f"one of {', '.join(_DTYPES)}", kind, path)
    shape = _parse_shape(extents, name, path)
    n_bytes = math.prod(shape) * dtype.itemsize
    if type(offset) is not int or offset < 0 or offset % ALIGNMENT or offset + n_bytes > limit:
        raise _invalid_entry(name, "offset", f"within the file, a multiple of {ALIGNMENT}", offset, path)
    n_digests = -(-n_bytes // CHUNK_BYTES)
    if type(digests) is not bytes or len(digests) != n_digests * DIGEST_BYTES:
        raise _invalid_entry(name, "chunks", f"{n_digests * DIGEST_BYTES} bytes", digests, path)
    if not is_safe_name(name):
        raise CorruptFile("a section has an unsafe name", path=path, actual=reprlib.repr(name))
    return Section(path, data, name, dtype, shape, offset, n_bytes, digests)


def _invalid_entry(name: str, field: str, expected: str, value: object, path: Path) -> CorruptFile:
    return CorruptFile(
        f"section {name!r}: invalid {field}", path=path, expected=expected, actual=reprlib.repr(value)
    )


def _parse_shape(extents: object, name: str, path: Path) -> tuple[int, ...]:
    if type(extents) is list and len(extents) == 1 and type(extents[0]) is int and 0 <= extents[0] <= MAX_EXTENT:
        return (extents[0],)  # the usual case
    shape: list[int] = []
    size = 1
    for extent in extents if type(extents) is list and len(extents) <= _MAX_AXES else ():
        if type(extent) is not int or not 0 <= extent <= MAX_EXTENT:
            raise CorruptFile(f"section {name!r} has an invalid shape", path=path, actual=reprlib.repr(extents))
        shape.append(extent)
        size *= extent or 1
    if not shape or size > MAX_EXTENT:
        raise CorruptFile(f"section {name!r} has an invalid shape", path=path, actual=reprlib.repr(extents))
    return tuple(shape)
