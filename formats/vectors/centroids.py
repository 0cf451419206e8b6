"""The centroids of a segment's documents: int8 with a scale each, or float16.

Sections: ``centroid_offsets`` (the first row of each document), ``centroids`` (the rows of all
documents), and for int8 ``centroid_scales``: a stored vector is its int8 row times its scale. A segment with codes
only has just the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from quarry.formats.arrays import AnyArray, BoolArray, Float32Array, Int8Array, Int64Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import BULK_ALIGNMENT
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, InvalidDocument

__all__ = [
    "CENTROID_TYPES",
    "CentroidTable",
    "CentroidsWriter",
    "RoundedRows",
    "StoredBatch",
    "merge_centroids",
    "quantize_int8",
]

CENTROID_TYPES = ("int8", "float16", "none")
_BATCH_ROWS = 8192
_MAX_SCALE = 1e12  # squared norms of the longest vectors with it are finite in float32
_TINY = np.finfo(np.float32).tiny


def quantize_int8(
    vectors: Float32Array,
) -> tuple[Int8Array, Float32Array]:
    """Quantize each row symmetrically to -127..127.

    Args:
        vectors: (n, dim) float32, finite.

    Returns:
        (n, dim) int8 and (n,) float32 scales; a row is approximately its int8 values times its scale.
    """
    scales = np.maximum(vectors.max(axis=1), -vectors.min(axis=1)) / np.float32(127)
    scales[scales < _TINY] = 0  # a subnormal scale is too coarse to keep its quotients within 127
    quotients = vectors / np.where(scales > 0, scales, np.float32(1))[:, None]
    return np.rint(quotients, out=quotients).astype(np.int8), scales.astype(np.float32)


class RoundedRows(NamedTuple):
    """Rows as they are stored.

    Attributes:
        values: (n, dim) int8 or float16.
        scales: (n,) float32, by which int8 values are multiplied; None for float16.
        squares: (n,) float32, the squared norms of the rows as they are stored; inf if one is too large.
    """

    values: AnyArray
    scales: Float32Array | None
    squares: Float32Array

    @classmethod
    def of(cls, vectors: Float32Array, kind: str) -> Self:
        """Round (n, dim) float32 vectors to the type "int8" or "float16"."""
        scales = None
        if kind == "int8":
            values: AnyArray
            values, scales = quantize_int8(vectors)
        else:
            with np.errstate(over="ignore"):
                values = vectors.astype(np.float16)
        stored = _decode(values, scales)
        return cls(values, scales, np.einsum("ij,ij->i", stored, stored))

    def __len__(self) -> int:
        return len(self.values)

    def select(self, places: Int64Array) -> Self:
        """Return the rows at (m,) places, in that order."""
        scales = None if self.scales is None else self.scales[places]
        return type(self)(self.values[places], scales, self.squares[places])


class StoredBatch:
    """Rows as stored, decoded when they are taken out.

    Args:
        values: (n, dim) int8, float16 or float32.
        scales: (n,) float32; None: all are 1.

    Attributes:
        shape: (n, dim).
    """

    def __init__(self, values: AnyArray, scales: Float32Array | None) -> None:
        self._values = values
        self._scales = scales
        self.shape: tuple[int, ...] = values.shape

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, places: Int64Array | slice) -> Float32Array:
        """Return the rows at (m,) places, (m, dim) float32."""
        return _decode(self._values[places], None if self._scales is None else self._scales[places])

    def select(self, places: Int64Array) -> Self:
        """Return the rows at (m,) places as stored."""
        return type(self)(self._values[places], None if self._scales is None else self._scales[places])

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of several batches, at least one, as stored; as float32 if they are not of one type."""
        if len({(part._values.dtype, part._scales is None) for part in parts}) > 1:
            return cls(np.concatenate([part[:] for part in parts]), None)
        scales = [part._scales for part in parts if part._scales is not None]
        return cls(np.concatenate([part._values for part in parts]), np.concatenate(scales) if scales else None)


class CentroidsWriter:
    """Collects the centroids of documents in ordinal order, in temporary files.

    Args:
        directory: the folder of the index.
        dim: length of a vector.
        kind: "int8" or "float16".
    """

    def __init__(self, directory: Directory, dim: int, kind: str) -> None:
        self.dim = dim
        self.kind = kind
        self.n_rows = 0
        self.largest_norm = 0.0
        self._rows = Spool(directory)
        self._scales = Spool(directory)
        self._offsets = Spool(directory)
        self._offsets.write_array(np.zeros(1, np.uint64))

    def add(self, vectors: Float32Array) -> None:
        """Append the (n, dim) float32 centroids of the next document, n >= 1; see `add_many`."""
        self.add_many(RoundedRows.of(vectors, self.kind), np.array([len(vectors)]))

    def add_many(self, rows: RoundedRows, counts: Int64Array) -> None:
        """Append the centroids of the next documents.

        Args:
            rows: n_rows of them, rounded to `kind`.
            counts: (n_docs,) int64, how many of them each document has, 1 at least.

        Raises:
            InvalidDocument: their norm is too large to be stored; nothing was appended.
        """
        longest = float(np.sqrt(rows.squares.max()))
        if not np.isfinite(longest):
            raise InvalidDocument(f"the norm of a vector is too large to be stored as {self.kind}", actual=longest)
        self.largest_norm = max(self.largest_norm, longest)
        self._rows.append(rows.values.tobytes())
        if rows.scales is not None:
            self._scales.append(rows.scales.tobytes())
        ends = self.n_rows + np.cumsum(counts)
        self.n_rows += len(rows)
        self._offsets.append(ends.astype(np.uint64).tobytes())

    def spill(self) -> None:
        """Write buffered bytes to temporary files if there are many."""
        for spool in (self._rows, self._scales, self._offsets):
            spool.spill()

    def vectors(self, low: int, high: int) -> Float32Array:
        """Return the rows low to high - 1 as they will be read back: (high - low, dim) float32."""
        return _decode(*self._read(low, high))

    def _read(self, low: int, high: int) -> tuple[AnyArray, Float32Array | None]:
        """Return the rows low to high - 1 as stored, and their scales."""
        rows = self._rows.read_array(self.kind, low * self.dim, high * self.dim).reshape(-1, self.dim)
        return rows, self._scales.read_array(np.float32, low, high) if self.kind == "int8" else None

    def stored_batches(self) -> Iterator[StoredBatch]:
        """Yield all rows in order as stored, a bounded number at a time."""
        for low in range(0, self.n_rows, _BATCH_ROWS):
            yield StoredBatch(*self._read(low, min(low + _BATCH_ROWS, self.n_rows)))

    def batches(self) -> Iterator[Float32Array]:
        """Yield all rows in order, a bounded number at a time."""
        for low in range(0, self.n_rows, _BATCH_ROWS):
            yield self.vectors(low, min(low + _BATCH_ROWS, self.n_rows))

    def owned_batches(self) -> Iterator[tuple[Float32Array, Int64Array]]:
        """Yield all rows in order with the (n,) int64 ordinals of their documents, a bounded number at a time."""
        n_docs = self._offsets.n_bytes // 8 - 1
        for first in range(0, n_docs, _BATCH_ROWS):
            stop = min(first + _BATCH_ROWS, n_docs)
            offsets = self._offsets.read_array(np.uint64, first, stop + 1).astype(np.int64)
            for low in range(int(offsets[0]), int(offsets[-1]), _BATCH_ROWS):
                high = min(low + _BATCH_ROWS, int(offsets[-1]))
                yield self.vectors(low, high), first + _owners(offsets, low, high)

    def write(self, container: ContainerWriter, keep_rows: bool) -> None:
        """Write the sections; the rows themselves only if `keep_rows`."""
        n_offsets = self._offsets.n_bytes // 8
        container.add_chunks("centroid_offsets", np.uint64, (n_offsets,), self._offsets.chunks())
        if not keep_rows:
            return
        shape = (self.n_rows, self.dim)
        container.add_chunks("centroids", self.kind, shape, self._rows.chunks(), BULK_ALIGNMENT)
        if self.kind == "int8":
            container.add_chunks("centroid_scales", np.float32, (self.n_rows,), self._scales.chunks())

    def close(self) -> None:
        """Delete the temporary files."""
        for spool in (self._rows, self._scales, self._offsets):
            spool.close()


def _decode(values: AnyArray, scales: Float32Array | None) -> Float32Array:
    """Return stored rows as (n, dim) float32."""
    decoded: Float32Array = values.astype(np.float32, copy=scales is not None)
    if scales is not None:
        decoded *= scales[:, None]
    return decoded


class CentroidTable:
    """Reads the centroids of a segment.

    Attributes:
        kind: "int8", "float16" or "none".
        largest_norm: upper bound of the norms of all centroids.
    """

    def __init__(
        self, container: ContainerReader, n_docs: int, n_rows: int, dim: int, kind: str, largest_norm: float
    ) -> None:
        self.kind = kind
        self.largest_norm = largest_norm
        self.dim = dim
        self.n_rows = n_rows
        self._offsets = container.section("centroid_offsets", np.uint64, (n_docs + 1,))
        self._path = container.path
        self._rows = container.section("centroids", kind, (n_rows, dim)) if kind != "none" else None
        scaled = kind == "int8"
        self._scales = container.section("centroid_scales", np.float32, (n_rows,)) if scaled else None

    @cached_property
    def offsets(self) -> Int64Array:
        """(n_docs + 1,) int64, the first row of each document: d owns the rows offsets[d] to offsets[d + 1] - 1.

        Raises:
            CorruptFile: they do not ascend from 0 to the number of rows; checked at first use.
        """
        return _check_offsets(self._offsets.array(), self.n_rows, self._path)

    def stored(self, ordinals: Int64Array) -> tuple[AnyArray, Float32Array]:
        """Return rows as stored, (n, dim) int8 or float16, and their scales, (n,) float32 (1 for float16)."""
        assert self._rows is not None
        rows = self._rows.rows(ordinals)
        if self._scales is None:
            return rows, np.ones(len(rows), np.float32)
        return rows, self._scales.rows(ordinals).astype(np.float32, copy=False)

    def stored_slice(self, low: int, high: int) -> tuple[AnyArray, Float32Array]:
        """Return the rows low to high - 1 as stored, without a copy, and their scales."""
        assert self._rows is not None
        rows = self._rows.slice(low, high)
        if self._scales is None:
            return rows, np.ones(len(rows), np.float32)
        return rows, self._scales.slice(low, high).astype(np.float32, copy=False)

    def rows_of(self, docs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the rows of the documents `docs`, and their offsets by document.

        Returns:
            (n_rows,) int64 row ordinals, document after document, and (len(docs) + 1,) int64 offsets.
        """
        starts, ends = self.offsets[docs], self.offsets[docs + 1]
        bounds = offsets_from_sizes(ends - starts)
        return np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], ends - starts), bounds

    def row_keep(self, keep: BoolArray | None) -> BoolArray | None:
        """Return the rows of the documents to keep, (n_rows,) bool; None if all are kept."""
        return None if keep is None else np.repeat(keep, np.diff(self.offsets))

    def batches(self, keep: BoolArray | None) -> Iterator[Float32Array]:
        """Yield the rows of the documents (n_docs,) `keep`, or all, as float32, verified and in batches."""
        for values, scales in self.iterate_kept(self.row_keep(keep)):
            yield values.astype(np.float32) * scales[:, None]

    def stored_batches(self, keep: BoolArray | None) -> Iterator[StoredBatch]:
        """Yield the rows of `batches` as stored."""
        return (StoredBatch(*each) for each in self.iterate_kept(self.row_keep(keep)))

    def owned_batches(self, keep: BoolArray | None) -> Iterator[tuple[Float32Array, Int64Array]]:
        """Yield the rows of `batches` with the (n,) int64 ordinals of their documents."""
        rows = self.row_keep(keep)
        for low, (values, scales) in zip(range(0, self.n_rows, _BATCH_ROWS), self.iterate_kept(rows), strict=True):
            high = min(low + _BATCH_ROWS, self.n_rows)
            owners = _owners(self.offsets, low, high)
            vectors = values.astype(np.float32) * scales[:, None]
            yield vectors, owners if rows is None else owners[rows[low:high]]

    def iterate_kept(
        self, keep: BoolArray | None, *, reads_all: bool = True
    ) -> Iterator[tuple[AnyArray, Float32Array]]:
        """Yield the kept rows as stored, with their scales.

        Args:
            keep: (n_rows,) bool, or None to keep all.
            reads_all: whether rows that are left out are verified too; otherwise most of them are not read.

        Raises:
            CorruptFile: a row or a scale is not finite, or a scale is negative or too large.
        """
        for low in range(0, self.n_rows, _BATCH_ROWS):
            high = min(low + _BATCH_ROWS, self.n_rows)
            if not reads_all and keep is not None and not keep[low:high].any():
                continue
            values, scales = self.stored_slice(low, high)
            self._check(values, scales)
            stays = slice(None) if keep is None else keep[low:high]
            yield values[stays], scales[stays]

    def _check(self, values: AnyArray, scales: Float32Array) -> None:
        if not ((scales >= 0) & (scales <= _MAX_SCALE)).all():
            expected = f"numbers from 0 to {_MAX_SCALE:g}"
            raise CorruptFile("section centroid_scales has invalid numbers", path=self._path, expected=expected)
        if values.dtype != np.int8 and not np.isfinite(values).all():
            raise CorruptFile("section centroids has numbers that are not finite", path=self._path)


def _owners(offsets: Int64Array, low: int, high: int) -> Int64Array:
    """Return the (high - low,) int64 positions in `offsets` of the documents that own rows low to high - 1."""
    return np.searchsorted(offsets, np.arange(low, high), side="right") - 1


def merge_centroids(
    readers: Sequence[CentroidTable],
    keeps: Sequence[BoolArray | None],
    container: ContainerWriter,
    keep_rows: bool,
    reads_all: bool = True,
) -> float:
    """Write the centroids of several segments as one, in bounded memory.

    Args:
        readers: the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
        container: the new file.
        keep_rows: whether the rows are written, all of one type, or only their offsets.
        reads_all: whether rows that are left out are verified too.

    Returns:
        An upper bound of the norms of all centroids.

    Raises:
        FormatError: a segment is damaged.
    """
    counts = [np.diff(reader.offsets) for reader in readers]
    counts = [each if keep is None else each[keep] for each, keep in zip(counts, keeps, strict=True)]
    offsets = offsets_from_sizes(np.concatenate(counts)).astype(np.uint64)
    container.add("centroid_offsets", offsets)
    if keep_rows:
        _merge_rows(readers, keeps, container, int(offsets[-1]), reads_all)
    return max(reader.largest_norm for reader in readers)


def _merge_rows(
    readers: Sequence[CentroidTable],
    keeps: Sequence[BoolArray | None],
    container: ContainerWriter,
    n_rows: int,
    reads_all: bool,
) -> None:
    kind, dim = readers[0].kind, readers[0].dim
    row_keeps = [reader.row_keep(keep) for reader, keep in zip(readers, keeps, strict=True)]
    scales = np.empty(n_rows, np.float32)

    def rows() -> Iterator[AnyArray]:
        first = 0
        for reader, keep in zip(readers, row_keeps, strict=True):
            for values, batch_scales in reader.iterate_kept(keep, reads_all=reads_all):
                scales[first : first + len(values)] = batch_scales
                first += len(values)
                yield values

    container.add_pieces("centroids", kind, (n_rows, dim), rows(), BULK_ALIGNMENT)
    if kind == "int8":
        container.add("centroid_scales", scales)


def _check_offsets(raw: AnyArray, n_rows: int, path: Path) -> Int64Array:
    if raw[0] != 0 or raw[-1] != n_rows or (raw[1:] <= raw[:-1]).any():
        raise CorruptFile("centroid offsets do not ascend from 0 to the number of rows", path=path)
    return raw.view(np.int64)
