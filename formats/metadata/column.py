"""One column: the values at one path of the metadata of all documents of a segment.

A column is a range of section ``metadata`` with these parts, each aligned to 8 bytes: integers (int64) and floats
(float64); the offsets of the texts (uint64); the texts; in a dense column, the code of one value of each document
(0: none); the documents (uint32) of all other values; their codes, ascending. A code has 1, 2 or 4 bytes,
depending on the number of values. It is written value by value, in bounded memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import gt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import AnyArray, BoolArray, Int64Array, UInt8Array, UInt32Array, UInt64Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.fields import Fields
from quarry.formats.container.sections import Section
from quarry.formats.container.spool import Spool
from quarry.formats.errors import CorruptFile
from quarry.formats.metadata.dictionary import ColumnDictionary, Run
from quarry.formats.metadata.values import MAX_TEXT_BYTES, Kind

__all__ = ["PART_ALIGNMENT", "Column", "ColumnWriter", "KeptValue", "code_type"]

PART_ALIGNMENT = 8  # bytes, of int64 and float64
_MAX_VALUES = (1 << 32) - 2  # codes are uint32, of which 0 is not a value
_CONSTANTS = 4  # kinds with a single value
_SEARCHED_TEXTS = 1 << 15  # at a time
_FEW_RUNS = 8  # comparing codes with so many runs is faster than a lookup table

KeptValue = tuple[Kind, int | float | bytes, UInt32Array]


def code_type(n_values: int) -> np.dtype[Any]:
    """Return the dtype of the codes of `n_values` values and of 0."""
    return np.min_scalar_type(n_values)


class Column:
    """Reads a column; thread-safe.

    Args:
        section: ``metadata``.
        entry: the entry of the column in the directory.
        n_docs: documents in the segment.

    Raises:
        CorruptFile: it is not within the section.
    """

    def __init__(self, section: Section, entry: Fields, n_docs: int) -> None:
        self._section = section
        self._n_docs = n_docs
        self._path: Path = entry.path
        self.counts = _read_counts(entry)
        self._dense = entry.boolean("dense")
        n_pairs = entry.integer("n_pairs", 0, section.n_bytes)
        n_text_bytes = entry.integer("text_bytes", 0, section.n_bytes)
        at = entry.integer("offset", 0, section.n_bytes)
        entry.refuse_unknown()
        n_numbers = self.counts[Kind.INTEGER] + self.counts[Kind.FLOAT]
        n_texts = self.counts[Kind.TEXT] + self.counts[Kind.LONG_TEXT]
        self._code_type = code_type(sum(self.counts))
        width = self._code_type.itemsize
        sizes = (8 * n_numbers, 8 * (n_texts + 1), n_text_bytes, width * n_docs * self._dense, 4 * n_pairs)
        self._parts: list[tuple[int, int]] = []
        for size in (*sizes, width * n_pairs):
            self._parts.append((at, at + size))
            at += size + -size % PART_ALIGNMENT
        if self._parts[0][0] % PART_ALIGNMENT or self._parts[-1][1] > section.n_bytes:
            raise CorruptFile("a metadata column is out of bounds", path=self._path, actual=at)

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of its values."""
        return frozenset(kind for kind in Kind if self.counts[kind])

    @cached_property
    def dictionary(self) -> ColumnDictionary:
        """Its distinct values."""
        n_integers = self.counts[Kind.INTEGER]
        numbers = self._read_part(0, np.uint64)
        integers, floats = numbers[:n_integers].view(np.int64), numbers[n_integers:].view(np.float64)
        texts = _Texts(self._read_part(1, np.uint64), self._read_part(2, np.uint8), self._path)
        return ColumnDictionary(self.counts, _as_python_numbers(integers), _as_python_numbers(floats), texts)

    def find_docs(self, runs: Sequence[Run]) -> BoolArray:
        """Return the documents that have a value whose code is in one of the runs, (n_docs,) bool.

        Raises:
            FormatError: the column is damaged.
        """
        is_match = self._find_docs_by_first(runs)
        bounds = np.array(runs, np.int64).reshape(-1, 2) - (0, 1)
        lowest, highest = bounds.astype(self._code_type).T
        starts, ends = self._codes.searchsorted(lowest, "left"), self._codes.searchsorted(highest, "right")
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            is_match[self._check_docs(self._docs[start:end])] = True
        return is_match

    def kinds_of(self, docs: BoolArray, kinds: Iterable[Kind]) -> frozenset[Kind]:
        """Return those of `kinds` that values of the documents, (n_docs,) bool, have.

        Raises:
            FormatError: the column is damaged.
        """
        runs = self.dictionary.runs
        return frozenset(kind for kind in kinds if (self.find_docs([runs[kind]]) & docs).any())

    def count(self, docs: BoolArray) -> Int64Array:
        """Return for each code the number of documents among `docs`, (n_docs,) bool, that have its value.

        Returns:
            (n_values + 1,) int64; that of code 0, which is not a value, is 0.

        Raises:
            FormatError: the column is damaged.
        """
        n_codes = self.dictionary.everything[1]
        first = self._first[docs] if self._dense else self._first
        others = self._codes[docs[self._check_docs(self._docs)]]
        counts = np.bincount(first, minlength=n_codes) + np.bincount(others, minlength=n_codes)
        if len(counts) > n_codes:
            raise CorruptFile("a metadata column has invalid codes", path=self._path)
        counts[0] = 0
        return counts

    def largest(self, weights: Int64Array) -> Int64Array:
        """Return for each document the largest weight of its values, (n_docs,) int64; 0 without a value.

        Args:
            weights: (n_values + 1,) int64, of each code, 0 or more; that of code 0, which is not a value, is 0.

        Raises:
            FormatError: the column is damaged.
        """
        first, codes = self._first, self._codes
        if max(first.max(initial=0), codes.max(initial=0)) >= len(weights):
            raise CorruptFile("a metadata column has invalid codes", path=self._path)
        found = weights[first] if self._dense else np.zeros(self._n_docs, np.int64)
        np.maximum.at(found, self._check_docs(self._docs), weights[codes])
        return found

    def values(self, keep: BoolArray, ordinals: UInt32Array) -> Iterator[KeptValue]:
        """Yield the values of the kept documents, ascending, with the new ordinals of the documents, ascending.

        Takes 30 bytes of memory for each document and value.

        Raises:
            FormatError: the column is damaged.
        """
        first = np.flatnonzero(self._first)
        docs = np.concatenate([first, self._check_docs(self._docs)])
        codes = np.concatenate([self._first[first], self._codes])
        codes, docs = codes[keep[docs]], docs[keep[docs]]
        order = np.lexsort((docs, codes))
        codes, docs = codes[order], ordinals[docs[order]]
        if len(codes) and not 0 < codes[0] <= codes[-1] < self.dictionary.everything[1]:
            raise CorruptFile("a metadata column has invalid codes", path=self._path)
        starts = np.flatnonzero(np.diff(codes, prepend=0)).tolist()
        before: tuple[Kind, int | float | bytes] | None = None
        for start, end in pairwise([*starts, len(codes)]):
            value = self.dictionary.value(int(codes[start]))
            if before is not None and not before < value:
                raise CorruptFile("the values of a metadata column do not ascend", path=self._path)
            yield *value, docs[start:end]
            before = value

    def _find_docs_by_first(self, runs: Sequence[Run]) -> BoolArray:
        """Return the documents whose first value is in one of the runs."""
        codes = self._first
        if len(runs) > _FEW_RUNS and self._dense:
            wanted = np.zeros(self.dictionary.everything[1], bool)
            for low, high in runs:
                wanted[low:high] = True
            return wanted.take(codes, mode="clip")
        is_match = np.zeros(self._n_docs, bool)
        for low, high in runs if self._dense else ():
            is_match |= codes == low if high == low + 1 else (codes >= low) & (codes <= high - 1)
        return is_match

    @cached_property
    def _first(self) -> AnyArray:
        """(n_docs,): the code of each document's first value; (0,) if the column is not dense."""
        return self._read_part(3, self._code_type)

    @cached_property
    def _docs(self) -> UInt32Array:
        """(n_pairs,): the documents of all other values."""
        return self._read_part(4, np.uint32)

    @cached_property
    def _codes(self) -> AnyArray:
        """(n_pairs,): the codes of those values, ascending."""
        return self._read_part(5, self._code_type)

    def _check_docs(self, docs: UInt32Array) -> UInt32Array:
        if len(docs) and int(docs.max()) >= self._n_docs:
            raise CorruptFile("a metadata column has ordinals that are out of bounds", path=self._path)
        return docs

    def _read_part(self, number: int, dtype: npt.DTypeLike) -> AnyArray:
        return self._section.slice(*self._parts[number]).view(dtype)


class _Texts:
    """The texts of a column."""

    def __init__(self, offsets: UInt64Array, data: UInt8Array, path: Path) -> None:
        self._offsets = _as_python_numbers(offsets)
        self._data = data.data
        self._path = path

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> bytes:
        low, high = self._offsets[number], self._offsets[number + 1]
        if not low <= high <= min(low + MAX_TEXT_BYTES, len(self._data)):
            raise CorruptFile(f"text {number} of a metadata column is out of bounds", path=self._path)
        return bytes(self._data[low:high])

    def containing(self, part: bytes, low: int, high: int) -> list[int]:
        """Return the numbers of the texts from `low` to `high` - 1 that contain some bytes, ascending.

        Many texts at a time are searched as one string; a match that begins in one text and ends in the next one
        is none. Afterwards the search continues with the next text.
        """
        numbers: list[int] = []
        for start in range(low, high, _SEARCHED_TEXTS):
            offsets = self._offsets[start : min(start + _SEARCHED_TEXTS, high) + 1].tolist()
            if not 0 <= offsets[0] <= offsets[-1] <= len(self._data) or any(map(gt, offsets, offsets[1:])):
                raise CorruptFile("the texts of a metadata column are out of bounds", path=self._path)
            if not part:
                numbers += range(start, start + len(offsets) - 1)
                continue
            texts, begin = bytes(self._data[offsets[0] : offsets[-1]]), offsets[0]
            place = texts.find(part)
            while place >= 0:
                number = bisect_right(offsets, place + begin) - 1
                if place + begin + len(part) <= offsets[number + 1]:
                    numbers.append(start + number)
                place = texts.find(part, offsets[number + 1] - begin)
        return numbers


def _as_python_numbers(array: AnyArray) -> Any:  # noqa: ANN401  # the type of elements depends on the format
    """Return a view whose elements are Python numbers, which compare exactly across types."""
    return array.data


def _read_counts(entry: Fields) -> tuple[int, ...]:
    counts = entry.items("counts", len(Kind))
    small = [1] * _CONSTANTS + [_MAX_VALUES] * (len(Kind) - _CONSTANTS)
    right = len(counts) == len(Kind) and all(
        type(count) is int and 0 <= count <= most for count, most in zip(counts, small, strict=True)
    )
    numbers: tuple[int, ...] = tuple(counts) if right else ()  # type: ignore[arg-type]
    if not 0 < sum(numbers) <= _MAX_VALUES:
        raise CorruptFile("a metadata column has invalid counts", path=entry.path)
    return numbers


_BATCH = 1 << 17  # values at a time
_PAIR_BYTES = 4  # of a document's ordinal in a pair


class ColumnWriter:
    """Collects the values at one path, ascending; takes 5 bytes of memory for each document of the segment.

    Args:
        directory: for temporary files.
        n_docs: documents in the segment.
    """

    def __init__(self, directory: Directory, n_docs: int) -> None:
        self._directory = directory
        self._counts = [0] * len(Kind)
        self._owners = np.zeros(n_docs, bool)
        self._numbers = Spool(directory)
        self._text_offsets = Spool(directory)
        self._texts = Spool(directory)
        self._docs = Spool(directory)
        self._codes = Spool(directory)
        self._text_offsets.write_array(np.zeros(1, np.uint64))

    def __len__(self) -> int:
        return sum(self._counts)

    def add(self, kind: Kind, value: float | bytes, docs: UInt32Array) -> None:
        """Append the next value with the documents that have it, one or more, ascending."""
        self._counts[kind] += 1
        if isinstance(value, bytes):
            self._texts.write(value)
            self._text_offsets.write(self._texts.n_bytes.to_bytes(8, "little"))
        elif kind in (Kind.INTEGER, Kind.FLOAT):
            self._numbers.write_array(np.array([value], np.int64 if kind is Kind.INTEGER else np.float64))
        self._owners[docs] = True
        self._docs.write_array(docs)
        self._codes.write_array(np.full(len(docs), len(self), np.uint32))

    def write(self, section: Spool) -> dict[str, object]:
        """Append the column to the section and return its entry in the directory."""
        width = code_type(len(self)).itemsize
        n_owners = int(np.count_nonzero(self._owners))
        dense = len(self._owners) * width < n_owners * (width + _PAIR_BYTES)
        offset = section.n_bytes
        for part in (self._numbers, self._text_offsets, self._texts):
            _append(section, part.chunks())
        n_pairs = self._write_pairs(section, dense)
        return {
            "counts": self._counts,
            "dense": dense,
            "n_pairs": n_pairs,
            "offset": offset,
            "text_bytes": self._texts.n_bytes,
        }

    def close(self) -> None:
        """Delete the temporary files."""
        for spool in (self._numbers, self._text_offsets, self._texts, self._docs, self._codes):
            spool.close()

    def _write_pairs(self, section: Spool, dense: bool) -> int:
        """Write the dense codes and the pairs of all other values; return the number of pairs."""
        dtype = code_type(len(self))
        first = np.zeros(len(self._owners) if dense else 0, dtype)
        docs, codes = Spool(self._directory), Spool(self._directory)
        try:
            for some_docs, some_codes in self._iterate_pairs():
                others = _store_first_codes(some_docs, some_codes, first) if dense else slice(None)
                docs.write_array(some_docs[others])
                codes.write_array(some_codes[others].astype(dtype))
            _append(section, iter([first.tobytes()]))
            _append(section, docs.chunks())
            _append(section, codes.chunks())
            return docs.n_bytes // _PAIR_BYTES
        finally:
            docs.close()
            codes.close()

    def _iterate_pairs(self) -> Iterator[tuple[UInt32Array, UInt32Array]]:
        n_pairs = self._docs.n_bytes // _PAIR_BYTES
        for low in range(0, n_pairs, _BATCH):
            high = min(n_pairs, low + _BATCH)
            yield self._docs.read_array(np.uint32, low, high), self._codes.read_array(np.uint32, low, high)


def _store_first_codes(docs: UInt32Array, codes: UInt32Array, first: AnyArray) -> BoolArray:
    """Store the first code of each document that has none yet; return which pairs remain."""
    _, places = np.unique(docs, return_index=True)
    places = places[first[docs[places]] == 0]
    first[docs[places]] = codes[places]
    left = np.ones(len(docs), bool)
    left[places] = False
    return left


def _append(section: Spool, chunks: Iterator[bytes]) -> None:
    """Append a part and zeros up to the next multiple of PART_ALIGNMENT."""
    for chunk in chunks:
        section.write(chunk)
    section.write(bytes(-section.n_bytes % PART_ALIGNMENT))
