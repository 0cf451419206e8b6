"""Files that the documents of an index were read from, as the index has stored them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.metadata.values import Kind
from quarry.formats.segment import SegmentReader
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["StoredFile", "stored_files"]

_FIELDS = ("path", "hash", "size", "modified", "read", "folder", "indexed")  # of metadata["file"]
_CLOCK_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT): two seconds


@dataclass(slots=True)
class StoredFile:
    """A file as it was when its documents were read.

    Attributes:
        path: relative to its folder, with slashes.
        folder: absolute path of the folder that was read; "" if an index of an older version does not say.
        size: bytes.
        modified: nanoseconds since 1970.
        read: nanoseconds since 1970.
        hash: the hash of the content.
        has_vectors: whether its documents are not found by words alone.
        ids: the ids of its documents.
        is_torn: whether its documents were read from different contents, as after a crash between two shards.
    """

    path: str
    folder: str
    size: int
    modified: int
    read: int
    hash: str
    has_vectors: bool = True
    ids: list[str] = field(default_factory=list)
    is_torn: bool = False

    def has_content(self, hash_: str) -> bool:
        """Whether all of its documents were read from the content with this hash."""
        return not self.is_torn and self.hash == hash_

    def is_certainly(self, size: int, modified: int) -> bool:
        """Whether a file of this size and time of modification is certain to be the same.

        It is not if the file was read so soon after it had been modified that a later change may have got the
        same time of modification (as git's "racily clean" entries).
        """
        return (
            not self.is_torn
            and (self.size, self.modified) == (size, modified)
            and self.read - self.modified > _CLOCK_NS
        )


def stored_files(snapshots: Iterable[Snapshot]) -> list[StoredFile]:
    """Return the files of the live documents; no two of them have the same path and folder.

    Args:
        snapshots: the snapshots of the shards of an index, or of an index without shards.

    Raises:
        FormatError: a segment is damaged.
    """
    states: dict[tuple[str, str], StoredFile] = {}
    for segment in chain.from_iterable(snapshot.segments for snapshot in snapshots):
        for doc_id, file in _iterate_files(segment):
            state = _parse_file(file)
            if state is not None:
                known = states.setdefault((state.path, state.folder), state)
                known.ids.append(doc_id)
                known.is_torn |= known.hash != state.hash
    return list(states.values())


def _iterate_files(segment: OpenSegment) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield id and ``metadata["file"]`` of each live document that has one.

    Values are read from the columns of the metadata. A document is decompressed only if it may have other values,
    or if its id is not made of the path: columns do not distinguish a mapping from a list of one mapping.
    """
    reader = segment.reader
    live = segment.live
    beyond = reader.metadata.beyond
    is_incomplete = np.zeros(reader.n_docs, bool) if beyond is None else beyond & live
    columns = [_read_column(reader, f"file.{name}", live, is_incomplete) for name in _FIELDS]
    paths = columns[_FIELDS.index("path")]
    has_path = np.fromiter((path is not None for path in paths), bool, reader.n_docs)
    ordinals = np.flatnonzero(has_path | is_incomplete)
    for doc, doc_id in zip(ordinals.tolist(), reader.ids.read(ordinals), strict=True):
        file: object = dict(zip(_FIELDS, (column[doc] for column in columns), strict=True))
        if is_incomplete[doc] or doc_id.partition("#")[0] != paths[doc]:
            file = reader.documents[doc].metadata.get("file")
        if isinstance(file, Mapping):
            yield doc_id, file


def _read_column(
    reader: SegmentReader, path: str, live: BoolArray, is_incomplete: BoolArray
) -> list[int | str | None]:
    """Return the integer or text that each live document has at a path; None for those without.

    Args:
        reader: the reader of the segment.
        path: the path of the values.
        live: (n_docs,), the documents to read.
        is_incomplete: (n_docs,), set to True for documents with a text that is too long for a column, or with
            several values.
    """
    values: list[int | str | None] = [None] * reader.n_docs
    column = reader.metadata.column(path)
    if column is None:
        return values
    has_value = np.zeros(reader.n_docs, bool)
    for kind, value, docs in column.values(live, np.arange(reader.n_docs, dtype=np.uint32)):
        is_incomplete[docs] |= has_value[docs] | (kind is Kind.LONG_TEXT)
        has_value[docs] = True
        if kind in (Kind.INTEGER, Kind.TEXT):
            plain = value.decode() if isinstance(value, bytes) else int(value)
            for doc in docs.tolist():
                values[doc] = plain
    return values


def _parse_file(file: Mapping[str, object]) -> StoredFile | None:
    """Return the file; None if a caller stores something else under ``file``."""
    path, hash_, size, modified, read, folder, indexed = (file.get(name) for name in _FIELDS)
    if not isinstance(path, str) or not isinstance(hash_, str):
        return None
    if not isinstance(size, int) or not isinstance(modified, int) or not isinstance(read, int):
        return None
    own_folder = folder if isinstance(folder, str) else ""
    return StoredFile(path, own_folder, size, modified, read, hash_, indexed != "words")
