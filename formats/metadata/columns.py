"""The metadata of the documents of a segment, by path, so that filters do not read the documents.

Sections, absent if no document has metadata: ``metadata`` (the columns, see `quarry.formats.metadata.column`) and
``metadata_directory`` (msgpack: ``columns``, a map of path -> entry of its column, and ``beyond``, the entry of a
column with the documents that have values at paths without a column, or nil if there are none).

There are at most MAX_PATHS columns, and none for a path of more than MAX_PATH_BYTES. For other paths the documents
in ``beyond`` must be read.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter

import numpy as np

from quarry.formats.arrays import BoolArray, UInt32Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.fields import Fields
from quarry.formats.container.packing import pack, unpack
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.errors import CorruptFile
from quarry.formats.metadata.column import Column, ColumnWriter, KeptValue
from quarry.formats.metadata.values import MAX_TEXT_BYTES, Kind, Scalar, iterate_values, truncate_long_text
from quarry.formats.postings.inversion import PostingRuns

__all__ = ["MAX_PATHS", "MAX_PATH_BYTES", "MetadataReader", "MetadataWriter", "merge_metadata"]

MAX_PATHS = 4096
MAX_PATH_BYTES = 255

_BEYOND = 0xFFFF  # number of all paths without a column
_SIGN = 1 << 63
_DIGITS = tuple(f"{kind:d}" for kind in Kind)  # formatting an enum member is much slower


class MetadataWriter:
    """Collects the metadata of documents in ordinal order.

    Takes 4 bytes of memory for each document, 9 more while it is written, and a buffer of up to
    `WriterLimits.posting_bytes`.
    """

    def __init__(self, directory: Directory, max_paths: int = MAX_PATHS) -> None:
        self._directory = directory
        self._max_paths = max_paths
        self._numbers: dict[str, int] = {}
        self._runs = PostingRuns(directory)

    def add(self, metadata: Mapping[str, object]) -> None:
        """Append the metadata of the next document, which may be empty.

        Raises:
            OverflowError: an integer does not fit 64 bits.
        """
        self._runs.add(self._make_keys(metadata))

    def add_many(self, documents: Iterable[Mapping[str, object]]) -> None:
        """Append the metadata of the next documents; see `add`."""
        keys: list[Sequence[str]] = []
        last: Mapping[str, object] | None = None
        for each in documents:
            if each is not last:
                made: Sequence[str] = () if _is_empty(each) else self._make_keys(each)
                last = each
            keys.append(made)
        self._runs.add_many(keys)

    def spill(self) -> None:
        """Write buffered values to a temporary file if there are many."""
        self._runs.spill()

    def write(self, container: ContainerWriter) -> None:
        """Write the sections, if there is any metadata."""
        paths = list(self._numbers)
        values = (
            (_parse_key(key), postings.docs) for batch in self._runs.merged() for key, postings in batch.terms()
        )
        columns = (
            (
                None if number == _BEYOND else paths[number],
                ((kind, value, docs) for (_, kind, value), docs in group),
            )
            for number, group in groupby(values, key=lambda pair: pair[0][0])
        )
        _write(self._directory, container, self._runs.n_docs, columns)

    def close(self) -> None:
        """Delete the temporary files."""
        self._runs.close()

    def _make_keys(self, metadata: Mapping[str, object]) -> list[str]:
        return [self._make_key(path, value) for path, value in iterate_values(metadata)]

    def _make_key(self, path: str, value: Scalar) -> str:
        """Return a string that sorts by path number, kind and value."""
        number = self._numbers.get(path, _BEYOND)
        if number == _BEYOND and len(self._numbers) < self._max_paths and len(path.encode()) <= MAX_PATH_BYTES:
            number = self._numbers[path] = len(self._numbers)
        if number == _BEYOND:
            value = Scalar(Kind.CONTAINER)
        return f"{number:04x}{_make_value_key(value)}"


def _is_empty(metadata: Mapping[str, object]) -> bool:
    return metadata.is_empty if isinstance(metadata, PackedMetadata) else not metadata


class MetadataReader:
    """Reads the columns of a segment; thread-safe.

    Attributes:
        n_docs: documents in the segment, including deleted ones and those without metadata.
    """

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self.n_docs = n_docs
        self._path = container.path
        self._section = self._entries = None
        if container.has("metadata") or container.has("metadata_directory"):
            self._section = container.section("metadata", np.uint8, (None,))
            self._entries = container.section("metadata_directory", np.uint8, (None,))

    @property
    def paths(self) -> list[str]:
        """The paths with a column, ascending."""
        return sorted(self._columns)

    def column(self, path: str) -> Column | None:
        """Return the column of a path, or None: only documents in `beyond` can have values at such a path."""
        return self._columns.get(path)

    @property
    def beyond(self) -> BoolArray | None:
        """(n_docs,) bool, the documents with values at paths that have no column; None if there are none."""
        column = self._contents[1]
        return None if column is None else column.find_docs([column.dictionary.everything])

    @property
    def _columns(self) -> dict[str, Column]:
        return self._contents[0]

    @cached_property
    def _contents(self) -> tuple[dict[str, Column], Column | None]:
        """All columns, and the column of `beyond`."""
        if self._entries is None:
            return {}, None
        data = self._entries.array().tobytes()
        where = "the directory of metadata"
        fields = unpack(data, self._path, where)
        entries, beyond = fields.child("columns").remaining(), fields.optional_child("beyond")
        fields.refuse_unknown()
        if len(entries) > MAX_PATHS:
            raise CorruptFile("too many columns", path=self._path, expected=MAX_PATHS, actual=len(entries))
        columns = {path: self._read_column(Fields(entry, self._path, where)) for path, entry in entries.items()}
        return columns, None if beyond is None else self._read_column(beyond)

    def _read_column(self, entry: Fields) -> Column:
        assert self._section is not None
        return Column(self._section, entry, self.n_docs)


def merge_metadata(
    directory: Directory,
    readers: Sequence[MetadataReader],
    keeps: Sequence[BoolArray | None],
    container: ContainerWriter,
    max_paths: int = MAX_PATHS,
) -> None:
    """Merge the columns of several segments and write them.

    Takes 30 bytes of memory for each document and value of the current column.

    Args:
        directory: for temporary files.
        readers: the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
            Kept documents are renumbered without gaps; values without documents are left out.
        container: the new file.
        max_paths: columns of the new file.

    Raises:
        FormatError: a segment is damaged.
    """
    parts = _make_parts(readers, keeps)
    kept, dropped = _choose_paths(readers, max_paths)
    beyond = _find_beyond(parts, dropped)
    columns: list[tuple[str | None, Iterable[KeptValue]]] = [(path, _merge_values(parts, path)) for path in kept]
    if len(beyond):
        columns.append((None, [(Kind.CONTAINER, 0, beyond)]))
    n_docs = sum(int(np.count_nonzero(keep)) for _, keep, _ in parts)
    _write(directory, container, n_docs, columns)


_Part = tuple[MetadataReader, BoolArray, UInt32Array]  # a segment, the documents to keep, their new ordinals


def _make_parts(readers: Sequence[MetadataReader], keeps: Sequence[BoolArray | None]) -> list[_Part]:
    masks = [
        np.ones(reader.n_docs, bool) if keep is None else keep for reader, keep in zip(readers, keeps, strict=True)
    ]
    starts = accumulate((int(np.count_nonzero(mask)) for mask in masks), initial=0)
    return [
        (reader, mask, (np.cumsum(mask) + (start - 1)).astype(np.uint32))
        for reader, mask, start in zip(readers, masks, starts, strict=False)
    ]


def _choose_paths(readers: Sequence[MetadataReader], max_paths: int) -> tuple[list[str], list[str]]:
    """Return the paths that get a column, and those that had one in a segment and get none.

    A segment with documents in `beyond` may have values at any path that has no column in it.
    """
    paths = sorted({path for reader in readers for path in reader.paths})
    incomplete = [reader for reader in readers if reader.beyond is not None]
    known = [path for path in paths if all(reader.column(path) for reader in incomplete)]
    kept = known[:max_paths]
    return kept, sorted(set(paths) - set(kept))


def _find_beyond(parts: Sequence[_Part], dropped: Sequence[str]) -> UInt32Array:
    """Return the new ordinals of the documents with values at paths that get no column, ascending."""
    beyond = []
    for reader, keep, ordinals in parts:
        flags = np.zeros(reader.n_docs, bool) if reader.beyond is None else reader.beyond
        for column in filter(None, map(reader.column, dropped)):
            flags |= column.find_docs([column.dictionary.everything])
        beyond.append(ordinals[flags & keep])
    return np.concatenate(beyond or [np.empty(0, np.uint32)])


def _merge_values(parts: Sequence[_Part], path: str) -> Iterator[KeptValue]:
    """Yield the values of all segments at a path, ascending."""
    columns = ((reader.column(path), keep, ordinals) for reader, keep, ordinals in parts)
    streams = [column.values(keep, ordinals) for column, keep, ordinals in columns if column is not None]
    kind_and_value = itemgetter(0, 1)
    for (kind, value), group in groupby(heapq.merge(*streams, key=kind_and_value), key=kind_and_value):
        yield kind, value, np.concatenate([docs for *_, docs in group])


def _write(
    directory: Directory,
    container: ContainerWriter,
    n_docs: int,
    columns: Iterable[tuple[str | None, Iterable[KeptValue]]],
) -> None:
    """Write the sections; the column of path None is `beyond`."""
    section = Spool(directory)
    entries: dict[str | None, dict[str, object]] = {}
    try:
        for path, values in columns:
            entry = _write_column(directory, section, n_docs, values)
            if entry:
                entries[path] = entry
        if entries:
            beyond = entries.pop(None, None)
            packed = pack({"beyond": beyond, "columns": entries})
            container.add_chunks("metadata", np.uint8, (section.n_bytes,), section.chunks())
            container.add("metadata_directory", np.frombuffer(packed, np.uint8))
    finally:
        section.close()


def _write_column(
    directory: Directory, section: Spool, n_docs: int, values: Iterable[KeptValue]
) -> dict[str, object] | None:
    """Append a column and return its entry; None if it has no values."""
    writer = ColumnWriter(directory, n_docs)
    try:
        for value in values:
            writer.add(*value)
        return writer.write(section) if len(writer) else None
    finally:
        writer.close()


def _make_value_key(value: Scalar) -> str:
    """Return a string that sorts by kind and value."""
    kind, payload = value
    digit = _DIGITS[kind]
    if isinstance(payload, str):
        if len(payload) <= MAX_TEXT_BYTES and len(payload.encode()) <= MAX_TEXT_BYTES:
            return digit + payload
        return _DIGITS[Kind.LONG_TEXT] + truncate_long_text(payload)
    if isinstance(payload, float):
        bits = int.from_bytes(struct.pack(">d", payload), "big")
        return f"{digit}{bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN:016x}"
    if not -_SIGN <= payload < _SIGN:
        raise OverflowError(f"an integer of metadata does not fit a signed 64-bit integer: {payload}")
    return f"{digit}{payload + _SIGN:016x}" if kind is Kind.INTEGER else digit


def _parse_key(key: bytes) -> tuple[int, Kind, int | float | bytes]:
    """Return the path number, the kind and the value of a key."""
    number, kind, rest = int(key[:4], 16), Kind(int(key[4:5])), key[5:]
    if kind in (Kind.TEXT, Kind.LONG_TEXT):
        return number, kind, rest
    if kind is Kind.INTEGER:
        return number, kind, int(rest, 16) - _SIGN
    if kind is Kind.FLOAT:
        bits = int(rest, 16)
        bits = bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1)
        value: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
        return number, kind, value
    return number, kind, 0
