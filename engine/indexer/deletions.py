"""Documents deleted since the last commit, and where their deletions go when segments are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from quarry.formats.snapshot import OpenSegment

__all__ = ["Deletions", "carried_over"]

Flags = npt.NDArray[np.bool_]


class Deletions:
    """For each segment what is deleted in it, once something was deleted since the last commit."""

    def __init__(self) -> None:
        self._flags: dict[bytes, Flags] = {}

    def __bool__(self) -> bool:
        return bool(self._flags)

    def mark(self, segment: OpenSegment, ordinal: int) -> bool:
        """Delete a document; whether it was live until now."""
        flags = self._flags.get(segment.reader.segment_id)
        if flags is None:
            flags = self.committed(segment).copy()
            self._flags[segment.reader.segment_id] = flags
        was_live = not flags[ordinal]
        flags[ordinal] = True
        return was_live

    def new_flags(self, segment: OpenSegment) -> Flags | None:
        """(n_docs,) bool, all that is deleted in a segment, or None where nothing was since the last commit."""
        return self._flags.get(segment.reader.segment_id)

    def flags(self, segment: OpenSegment) -> Flags:
        """(n_docs,) bool, all that is deleted in a segment."""
        found = self.new_flags(segment)
        return self.committed(segment) if found is None else found

    @staticmethod
    def committed(segment: OpenSegment) -> Flags:
        """(n_docs,) bool, what was deleted in a segment at the last commit."""
        return np.zeros(segment.record.n_docs, bool) if segment.deleted is None else segment.deleted

    def moved(
        self, sources: Sequence[OpenSegment], now: Mapping[bytes, OpenSegment], target: bytes | None
    ) -> Deletions:
        """The same deletions when the live documents of the sources have become the segment `target`.

        Args:
            sources: as they were when the merge began.
            now: the segments of the current generation by their ids.
            target: id of the new segment; None where nothing in it is live.
        """
        old = {source.reader.segment_id for source in sources}
        moved = Deletions()
        moved._flags = {key: flags for key, flags in self._flags.items() if key not in old}
        if target is not None and old & self._flags.keys():
            moved._flags[target] = carried_over(sources, now, self.flags)
        return moved


def carried_over(
    sources: Sequence[OpenSegment], now: Mapping[bytes, OpenSegment], flags: Callable[[OpenSegment], Flags]
) -> Flags:
    """Which of the documents that were live when a merge began are deleted now, one source after the other.

    Args:
        sources: as they were when the merge began.
        now: the segments of the current generation by their ids; from one that is gone everything is deleted.
        flags: (n_docs,) bool, what is deleted in a segment now.
    """
    parts = []
    for source in sources:
        segment = now.get(source.reader.segment_id)
        deleted = np.ones(source.record.n_docs, bool) if segment is None else flags(segment)
        parts.append(deleted if source.deleted is None else deleted[~source.deleted])
    return np.concatenate(parts)
