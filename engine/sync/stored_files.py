"""What an index knows of the files that its documents were read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["StoredFile", "stored_files"]

_BATCH_DOCS = 256
_CLOCK_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT): two seconds


@dataclass(slots=True)
class StoredFile:
    """A file as it was when its documents were read.

    Attributes:
        size: bytes.
        modified: nanoseconds since 1970.
        read: nanoseconds since 1970.
        hash: of the content.
        ids: of its documents.
        is_torn: whether its documents were read from different contents, as after a crash between two shards.
    """

    size: int
    modified: int
    read: int
    hash: str
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


def stored_files(snapshots: Iterable[Snapshot]) -> dict[str, StoredFile]:
    """Return the files of the live documents by path.

    Args:
        snapshots: of the shards of an index, or of an index without shards.

    Raises:
        FormatError: a document is damaged.
    """
    found: dict[str, StoredFile] = {}
    for segment in chain.from_iterable(snapshot.segments for snapshot in snapshots):
        for doc_id, metadata in _documents(segment):
            file = metadata.get("file")
            parsed = _parsed(file) if isinstance(file, Mapping) else None
            if parsed is not None:
                path, state = parsed
                known = found.setdefault(path, state)
                known.ids.append(doc_id)
                known.is_torn |= known.hash != state.hash
    return found


def _documents(segment: OpenSegment) -> Iterator[tuple[str, Mapping[str, object]]]:
    reader = segment.reader
    if not reader.metadata.paths and reader.metadata.beyond is None:
        return
    live = np.ones(reader.n_docs, bool) if segment.deleted is None else ~segment.deleted
    ordinals = np.flatnonzero(live)
    for start in range(0, len(ordinals), _BATCH_DOCS):
        part = ordinals[start : start + _BATCH_DOCS]
        packed = reader.documents.packed(part)
        for doc_id, document in zip(reader.ids.many(part), packed, strict=True):
            yield doc_id, document.unpack().metadata


def _parsed(file: Mapping[str, object]) -> tuple[str, StoredFile] | None:
    """Path and state; None for metadata of a caller's own under that name."""
    path, hash_ = file.get("path"), file.get("hash")
    size, modified, read = (file.get(name) for name in ("size", "modified", "read"))
    if not isinstance(path, str) or not isinstance(hash_, str):
        return None
    if not isinstance(size, int) or not isinstance(modified, int) or not isinstance(read, int):
        return None
    return path, StoredFile(size, modified, read, hash_)
