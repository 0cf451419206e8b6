"""Documents deleted since the last commit, and what becomes of their deletions when segments are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import SegmentRecord
from quarry.formats.snapshot import OpenSegment
from quarry.formats.tombstones import write_tombstones

__all__ = ["Deletions", "carry_over", "with_deletions"]


class Deletions:
    """Flags of the deleted documents of each segment in which a document was deleted since the last commit."""

    def __init__(self) -> None:
        self._flags: dict[bytes, BoolArray] = {}

    def __bool__(self) -> bool:
        return bool(self._flags)

    def copy(self) -> Deletions:
        """Return a copy, whose changes do not affect this object."""
        other = Deletions()
        other._flags = {key: flags.copy() for key, flags in self._flags.items()}
        return other

    def is_live(self, segment: OpenSegment, ordinal: int) -> bool:
        """Return whether a document is not deleted."""
        return not self.flags(segment)[ordinal]

    def mark(self, segment: OpenSegment, ordinal: int) -> bool:
        """Delete a document; return whether it was live."""
        flags = self._flags.get(segment.reader.segment_id)
        if flags is None:
            flags = self.committed(segment).copy()
            self._flags[segment.reader.segment_id] = flags
        was_live = not flags[ordinal]
        flags[ordinal] = True
        return was_live

    def mark_all(self, segment: OpenSegment, docs: BoolArray) -> int:
        """Delete documents, (n_docs,) bool; return how many of them were live."""
        before = self.flags(segment)
        n_deleted = int(np.count_nonzero(docs & ~before))
        if n_deleted:
            self._flags[segment.reader.segment_id] = before | docs
        return n_deleted

    def new_flags(self, segment: OpenSegment) -> BoolArray | None:
        """Return (n_docs,) bool, the deleted documents of a segment; None if there is no new one."""
        return self._flags.get(segment.reader.segment_id)

    def flags(self, segment: OpenSegment) -> BoolArray:
        """Return (n_docs,) bool, the deleted documents of a segment."""
        flags = self.new_flags(segment)
        return self.committed(segment) if flags is None else flags

    @staticmethod
    def committed(segment: OpenSegment) -> BoolArray:
        """Return (n_docs,) bool, the documents of a segment that were deleted at the last commit."""
        return np.zeros(segment.record.n_docs, bool) if segment.deleted is None else segment.deleted

    def after_merge(
        self, sources: Sequence[OpenSegment], now: Mapping[bytes, OpenSegment], target: bytes | None
    ) -> Deletions:
        """Return the deletions after a merge that wrote the live documents of the sources to the segment `target`.

        Args:
            sources: as they were when the merge began.
            now: the segments of the current generation by their ids.
            target: id of the new segment; None if no document in it is live.
        """
        old = {source.reader.segment_id for source in sources}
        after = Deletions()
        after._flags = {key: flags for key, flags in self._flags.items() if key not in old}
        if target is not None and old & self._flags.keys():
            after._flags[target] = carry_over(sources, now, self.flags)
        return after


def carry_over(
    sources: Sequence[OpenSegment], now: Mapping[bytes, OpenSegment], flags: Callable[[OpenSegment], BoolArray]
) -> BoolArray:
    """Return (n,) bool, which documents that were live when a merge began are deleted now, source by source.

    Args:
        sources: as they were when the merge began.
        now: the segments of the current generation by their ids; all documents of one that is missing are deleted.
        flags: returns (n_docs,) bool, the deleted documents of a segment.
    """
    parts = []
    for source in sources:
        segment = now.get(source.reader.segment_id)
        deleted = np.ones(source.record.n_docs, bool) if segment is None else flags(segment)
        parts.append(deleted if source.deleted is None else deleted[~source.deleted])
    return np.concatenate(parts)


def with_deletions(
    directory: Directory,
    record: SegmentRecord,
    before: BoolArray | None,
    deleted: BoolArray | None,
    names: list[str],
) -> SegmentRecord | None:
    """Return the record of a segment with the tombstones that are needed; None if no document in it is live.

    Args:
        directory: the folder of the index.
        record: the record of the segment.
        before: (n_docs,) bool, the documents in the tombstones of the record; None: it has none.
        deleted: (n_docs,) bool, the documents that are deleted now; None: the same as before.
        names: the names of new files, to which the name of a new tombstone file is added.
    """
    if deleted is None:
        return record
    if deleted.all():
        return None
    if not deleted.any():
        return replace(record, tombstones=None, n_deleted=0)
    if record.tombstones is not None and before is not None and (deleted == before).all():
        return record
    tombstones = write_tombstones(directory, record.file.file_id, deleted)
    names.append(tombstones.name)
    return replace(record, tombstones=tombstones, n_deleted=int(np.count_nonzero(deleted)))
