"""Byte strings of any length: one section holds their bytes, another one their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array, UInt64Array, offsets_from_sizes
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["ByteStrings", "merge_byte_strings"]

_BATCH_BYTES = 4 << 20  # copied at a time
_BATCH_KEYS = 1 << 16  # read at a time


class ByteStrings:
    """Reads the strings of section `name`, whose offsets are in the uint64 section `offsets_name`.

    Args:
        container: the file.
        name: section of the bytes.
        offsets_name: section of the (n + 1,) offsets.
        n: number of strings.
    """

    def __init__(self, container: ContainerReader, name: str, offsets_name: str, n: int) -> None:
        self.n = n
        self._path = container.path
        self._bytes = container.section(name, np.uint8, (None,))
        self._offsets = container.section(offsets_name, np.uint64, (n + 1,))

    def __getitem__(self, ordinal: int) -> bytes:
        """Return the string `ordinal`; see `many`."""
        return self.many(np.array([ordinal]))[0]

    def many(self, ordinals: Int64Array) -> list[bytes]:
        """Return verified copies of the strings (n,) `ordinals`, in this order.

        Raises:
            CorruptFile: a string is outside its section.
            ChecksumMismatch: its bytes are damaged.
        """
        return self._bytes.read_ranges(*self._bounds(ordinals))

    def keys(self, ordinals: Int64Array, first: int) -> UInt64Array:
        """Return eight bytes of each string of (n,) `ordinals`, as a big-endian integer that sorts like the bytes.

        Args:
            ordinals: the ordinals of the strings.
            first: number of the first of these bytes; a string that ends before the last has zeros there.

        Raises:
            CorruptFile: a string is outside its section.
            ChecksumMismatch: its bytes are damaged.
        """
        keys = np.empty(len(ordinals), np.uint64)
        for low in range(0, len(ordinals), _BATCH_KEYS):
            starts, ends = self._bounds(ordinals[low : low + _BATCH_KEYS])
            places = (starts + first)[:, None] + np.arange(8)
            is_inside = places < ends[:, None]
            values = np.zeros(places.shape, np.uint8)
            values[is_inside] = self._bytes.rows(places[is_inside])
            keys[low : low + _BATCH_KEYS] = values.view(">u8")[:, 0]
        return keys

    def _bounds(self, ordinals: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the first byte of each of some strings, and one past its last."""
        starts = self._offsets.rows(ordinals).view(np.int64)
        ends = self._offsets.rows(ordinals + 1).view(np.int64)
        wrong = np.flatnonzero((starts < 0) | (starts > ends) | (ends > self._bytes.n_bytes))
        if len(wrong):
            raise CorruptFile(
                f"item {ordinals[wrong[0]]} of section {self._bytes.name} is out of bounds", path=self._path
            )
        return starts, ends

    def iterate_kept(self, keep: BoolArray | None, low: int, end: int) -> Iterator[UInt8Array]:
        """Yield the bytes of the strings low to end - 1 that are kept, in pieces; the others are verified too.

        Args:
            keep: (n,) bool, or None to keep all.
            low: the first string.
            end: one past the last.
        """
        offsets = self.offsets
        while low < end:
            high = max(low + 1, int(offsets.searchsorted(offsets[low] + _BATCH_BYTES, "right")) - 1)
            high = min(high, end)
            data = self._bytes.slice(int(offsets[low]), int(offsets[high]))
            if keep is not None and not keep[low:high].all():
                data = data[np.repeat(keep[low:high], np.diff(offsets[low : high + 1]))]
            yield data
            low = high

    @cached_property
    def offsets(self) -> Int64Array:
        """(n + 1,) int64: string i has the bytes offsets[i] to offsets[i + 1] - 1; a view of the mapped file.

        Raises:
            CorruptFile: the offsets do not ascend within the section.
        """
        offsets: Int64Array = self._offsets.array().view(np.int64)
        if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] > self._bytes.n_bytes:
            raise CorruptFile(f"the offsets of section {self._bytes.name} do not ascend", path=self._path)
        return offsets


def merge_byte_strings(
    readers: Sequence[ByteStrings],
    keeps: Sequence[BoolArray | None],
    container: ContainerWriter,
    name: str,
    offsets_name: str,
) -> None:
    """Write the strings of several files as one section, without those that the (n,) bool `keeps` leave out.

    Raises:
        FormatError: a file is damaged.
    """
    lengths = [np.diff(reader.offsets) for reader in readers]
    lengths = [each if keep is None else each[keep] for each, keep in zip(lengths, keeps, strict=True)]
    offsets = offsets_from_sizes(np.concatenate(lengths)).astype(np.uint64)
    pieces = (
        piece
        for reader, keep in zip(readers, keeps, strict=True)
        for piece in reader.iterate_kept(keep, 0, reader.n)
    )
    container.add_pieces(name, np.uint8, (int(offsets[-1]),), pieces)
    container.add(offsets_name, offsets)
