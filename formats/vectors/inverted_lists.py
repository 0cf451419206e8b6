"""IVF lists over the centroids: for each coarse centroid the rows assigned to it and their PQ codes.

Sections: ``list_offsets`` (the start of each list), ``list_rows`` (centroid row ordinals, ascending within
a list) and ``codes`` (a row of `code_bytes` bytes for each; 4-bit codes two to a byte, the even sub-quantizer
in the low half).

Lists are written by merging runs, each of some rows in list order: `InvertedListsWriter` sorts what it collects
into runs, and the lists of a segment are a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import BULK_ALIGNMENT
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["InvertedLists", "InvertedListsWriter", "ListRun", "RunRows", "merge_lists"]

_RUN_BYTES = 16 << 20  # codes that are sorted at a time
_WRITTEN_ROWS = 1 << 14  # of a run, copied in order at a time
_PART_BYTES = 16 << 20  # codes that are merged at a time


class ListRun(Protocol):
    """Some rows of one segment in list order, ascending within each list."""

    @property
    def offsets(self) -> Int64Array:
        """(nlist + 1,) int64, the start of each list."""
        ...

    def rows_between(self, low: int, high: int) -> UInt32Array:
        """Return the row ordinals at the positions low to high - 1, (high - low,) uint32."""
        ...

    def codes_between(self, low: int, high: int) -> UInt8Array:
        """Return their codes, (high - low, code_bytes) uint8."""
        ...


class RunRows(NamedTuple):
    """A run to be merged.

    Attributes:
        run: the rows and codes.
        numbers: (n,) uint32, the new ordinals of the segment's rows; None: they stay.
        keep: (n,) bool, the rows to keep, or None for all.
    """

    run: ListRun
    numbers: UInt32Array | None
    keep: BoolArray | None

    def between(self, low: int, high: int) -> tuple[UInt32Array, BoolArray | None]:
        """Return the new ordinals at the positions low to high - 1, and which of them to keep (None: all)."""
        rows = self.run.rows_between(low, high)
        return rows if self.numbers is None else self.numbers[rows], None if self.keep is None else self.keep[rows]


class InvertedListsWriter:
    """Takes list numbers and codes in row order and writes them in list order, in bounded memory.

    Args:
        directory: for temporary files.
        nlist: number of lists.
        code_bytes: bytes of a code.
        run_bytes: bytes of codes that are sorted at a time.
        part_bytes: bytes of codes that are merged at a time.
    """

    def __init__(
        self,
        directory: Directory,
        nlist: int,
        code_bytes: int,
        run_bytes: int = _RUN_BYTES,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        self._run_bytes = run_bytes
        self._part_bytes = part_bytes
        self._nlist = nlist
        self._code_bytes = code_bytes
        self._buffered: list[tuple[Int64Array, UInt8Array]] = []
        self._n_buffered = 0
        self._rows = Spool(directory)
        self._codes = Spool(directory)
        self._runs: list[_SpooledRun] = []
        self.n_rows = 0

    def add(self, list_numbers: Int64Array, codes: UInt8Array) -> None:
        """Append rows: (n,) list numbers and (n, code_bytes) codes."""
        if len(list_numbers) and not 0 <= list_numbers.min() <= list_numbers.max() < self._nlist:
            raise ValueError(f"list number out of bounds: negative or not below {self._nlist}")
        self._buffered.append((list_numbers, codes))
        self._n_buffered += len(list_numbers)
        self.n_rows += len(list_numbers)
        if self._n_buffered * self._code_bytes >= self._run_bytes:
            self._spill()

    def sizes(self) -> Int64Array:
        """Return the number of rows of each list, (nlist,) int64."""
        sizes = np.zeros(self._nlist, np.int64)
        for run in self.runs():
            sizes += np.diff(run.offsets)
        return sizes

    def runs(self) -> Sequence[ListRun]:
        """Return all rows so far as runs that are valid until `close`."""
        if self._n_buffered:
            self._spill()
        return self._runs

    def write(self, container: ContainerWriter) -> None:
        """Write the three sections."""
        runs = [RunRows(run, None, None) for run in self.runs()]
        merge_lists(runs, self.n_rows, self._nlist, self._code_bytes, container, self._part_bytes)

    def close(self) -> None:
        """Delete the temporary files."""
        self._rows.close()
        self._codes.close()

    def _spill(self) -> None:
        """Sort the buffered rows by list and append them to the temporary files as a run."""
        lists, codes = (np.concatenate(column) for column in zip(*self._buffered, strict=True))
        self._buffered.clear()
        order = np.argsort(lists, kind="stable").astype(np.uint32)
        offsets = offsets_from_sizes(np.bincount(lists, minlength=self._nlist))
        first = self.n_rows - self._n_buffered
        self._runs.append(_SpooledRun(offsets, self._rows, self._codes, first, self._code_bytes))
        self._rows.write_array(order + np.uint32(first))
        for low in range(0, len(order), _WRITTEN_ROWS):
            self._codes.write_array(codes[order[low : low + _WRITTEN_ROWS]])
        self._n_buffered = 0


@dataclass(frozen=True, eq=False)
class _SpooledRun:
    """A run in the temporary files of a writer, starting at row `first`."""

    offsets: Int64Array
    rows: Spool
    codes: Spool
    first: int
    code_bytes: int

    def rows_between(self, low: int, high: int) -> UInt32Array:
        return self.rows.read_array(np.uint32, self.first + low, self.first + high)

    def codes_between(self, low: int, high: int) -> UInt8Array:
        width = self.code_bytes
        return self.codes.read_array(np.uint8, (self.first + low) * width, (self.first + high) * width).reshape(
            -1, width
        )


class InvertedLists:
    """Reads the lists of a segment; a `ListRun`.

    Attributes:
        offsets: (nlist + 1,) int64, the start of each list.
        code_bytes: bytes of one code.
    """

    def __init__(self, container: ContainerReader, nlist: int, n_rows: int, code_bytes: int) -> None:
        self._path = container.path
        self._n_rows = n_rows
        self.code_bytes = code_bytes
        raw = container.section("list_offsets", np.uint64, (nlist + 1,)).array()
        if raw[0] != 0 or raw[-1] != n_rows or (raw[1:] < raw[:-1]).any():
            raise CorruptFile("list offsets do not ascend from 0 to the number of rows", path=self._path)
        self.offsets: Int64Array = raw.astype(np.int64)
        self._rows = container.section("list_rows", np.uint32, (n_rows,))
        self._codes = container.section("codes", np.uint8, (n_rows, code_bytes))

    def rows(self) -> UInt32Array:
        """Return the row at each position of the lists, (n_rows,) uint32, checked to contain every row once."""
        rows = self._rows.array()
        listed = np.zeros(self._n_rows, bool)
        if int(rows.max()) < self._n_rows:
            listed[rows] = True
        if not listed.all():
            raise CorruptFile("the inverted lists do not contain every row once", path=self._path)
        return rows.astype(np.uint32, copy=False)

    def places(self) -> UInt32Array:
        """Return the position of each row in the lists, (n_rows,) uint32."""
        rows = self.rows()
        places = np.empty(len(rows), np.uint32)
        places[rows] = np.arange(len(rows), dtype=np.uint32)
        return places

    def codes(self) -> UInt8Array:
        """Return the PQ code at each position of the lists, (n_rows, code_bytes) uint8."""
        return self._codes.array().astype(np.uint8, copy=False)

    def rows_between(self, low: int, high: int) -> UInt32Array:
        """Return the rows at the positions low to high - 1, (high - low,) uint32, unchecked (see `rows`)."""
        return self._rows.slice(low, high).astype(np.uint32, copy=False)

    def codes_between(self, low: int, high: int) -> UInt8Array:
        """Return the codes at the positions low to high - 1, (high - low, code_bytes) uint8."""
        return self._codes.slice(low, high).astype(np.uint8, copy=False)


def merge_lists(
    runs: Sequence[RunRows],
    n_rows: int,
    nlist: int,
    code_bytes: int,
    container: ContainerWriter,
    part_bytes: int = _PART_BYTES,
) -> Int64Array:
    """Merge runs of one quantizer and write them, list by list, in bounded memory.

    Args:
        runs: in the order of their new ordinals.
        n_rows: kept rows of all runs.
        nlist: number of lists.
        code_bytes: bytes of a code.
        container: the new file.
        part_bytes: bytes of codes that are merged at a time.

    Returns:
        The number of rows of each list, (nlist,) int64.

    Raises:
        FormatError: a segment is damaged.
    """
    all_sizes = np.add.reduce([np.diff(each.run.offsets) for each in runs])
    parts = list(_split_lists(all_sizes, max(1, part_bytes // code_bytes)))
    sizes = np.zeros(nlist, np.int64)

    def rows() -> Iterator[UInt32Array]:
        for low, high in parts:
            part = _Part(runs, low, high)
            sizes[low:high] = part.sizes.sum(axis=0)
            yield part.rows()

    container.add_pieces("list_rows", np.uint32, (n_rows,), rows())
    codes = (_Part(runs, low, high).codes(code_bytes) for low, high in parts)
    container.add_pieces("codes", np.uint8, (n_rows, code_bytes), codes, BULK_ALIGNMENT)
    container.add("list_offsets", offsets_from_sizes(sizes).astype(np.uint64))
    return sizes


def _split_lists(sizes: Int64Array, limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of lists with at most `limit` rows together; a longer list is a range by itself."""
    low = n_rows = 0
    for number, size in enumerate(sizes.tolist()):
        if n_rows and n_rows + size > limit:
            yield low, number
            low, n_rows = number, 0
        n_rows += size
    yield low, len(sizes)


class _Part:
    """The lists low to high - 1 of all runs, merged.

    Attributes:
        sizes: (n_runs, high - low) int64, kept rows of each run, by list.
    """

    def __init__(self, runs: Sequence[RunRows], low: int, high: int) -> None:
        self._runs = runs
        self._bounds = [each.run.offsets[[low, high]].tolist() for each in runs]
        parts = [each.between(*bounds) for each, bounds in zip(runs, self._bounds, strict=True)]
        self._numbers = [numbers if stays is None else numbers[stays] for numbers, stays in parts]
        self._stays = [stays for _, stays in parts]
        self.sizes = np.array(
            [
                _count_kept(each.run.offsets[low : high + 1], stays)
                for each, (_, stays) in zip(runs, parts, strict=True)
            ]
        )

    def rows(self) -> UInt32Array:
        """Return the new row ordinals in list order, (n,) uint32."""
        merged = np.empty(int(self.sizes.sum()), np.uint32)
        for numbers, places in zip(self._numbers, self._places(), strict=True):
            merged[places] = numbers
        return merged

    def codes(self, code_bytes: int) -> UInt8Array:
        """Return the codes in list order, (n, code_bytes) uint8."""
        merged = np.empty((int(self.sizes.sum()), code_bytes), np.uint8)
        for each, bounds, stays, places in zip(self._runs, self._bounds, self._stays, self._places(), strict=True):
            codes = each.run.codes_between(*bounds)
            merged[places] = codes if stays is None else codes[stays]
        return merged

    def _places(self) -> Iterator[Int64Array]:
        """Yield for each run the positions of its rows in the merged lists, after those of earlier runs."""
        firsts = offsets_from_sizes(self.sizes.sum(axis=0))[:-1]
        for sizes in self.sizes:
            yield np.repeat(firsts - offsets_from_sizes(sizes)[:-1], sizes) + np.arange(int(sizes.sum()))
            firsts = firsts + sizes


def _count_kept(offsets: Int64Array, stays: BoolArray | None) -> Int64Array:
    """Count the kept rows between each two offsets; the flags begin at the first offset."""
    if stays is None:
        return np.diff(offsets)
    starts = offsets_from_sizes(stays)
    kept: Int64Array = np.diff(starts[offsets - offsets[0]])
    return kept
