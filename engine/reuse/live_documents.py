"""Live documents of segments of several indexes that become one: of equal ids the one that came last."""

from __future__ import annotations

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array
from quarry.formats.documents.ids import DocIds
from quarry.formats.snapshot import OpenSegment

__all__ = ["LiveDocuments"]


_BATCH_IDS = 1 << 16


class LiveDocuments:
    """The live documents of a growing list of segments, of which no two have the same id.

    Attributes:
        n_replaced: documents that a later one with the same id replaced.
    """

    def __init__(self) -> None:
        self.n_replaced = 0
        self._segments: dict[bytes, OpenSegment] = {}
        self._live: dict[bytes, BoolArray] = {}

    def add(self, segments: tuple[OpenSegment, ...]) -> int:
        """Add the segments of one generation; its live documents replace earlier ones. Return how many there are.

        A segment that was added before, with other deleted documents, is not added twice: its documents that are
        live now are live again.

        Raises:
            FormatError: the ids of a segment are damaged.
        """
        flags = [segment.live for segment in segments]
        before = list(self._segments.values())
        for segment, live in zip(segments, flags, strict=True):
            for earlier in before:
                if earlier.reader.segment_id != segment.reader.segment_id:
                    self._replace(earlier, segment, live)
        for segment, live in zip(segments, flags, strict=True):
            key = segment.reader.segment_id
            if key in self._segments:
                self.n_replaced += int(np.count_nonzero(self._live[key] & live))
                self._live[key] = self._live[key] | live
            else:
                self._segments[key], self._live[key] = segment, live.copy()
        return sum(int(np.count_nonzero(live)) for live in flags)

    def deleted(self, segment: OpenSegment) -> BoolArray:
        """Return (n_docs,) bool, the documents of an added segment that are not live."""
        return ~self._live[segment.reader.segment_id]

    def _replace(self, earlier: OpenSegment, later: OpenSegment, live: BoolArray) -> None:
        """Delete the documents of one segment whose ids live documents of the other one have."""
        flags = self._live[earlier.reader.segment_id]
        old, new = _equal_hashes(earlier.reader.ids, flags, later.reader.ids, live)
        for low in range(0, len(old), _BATCH_IDS):
            places = old[low : low + _BATCH_IDS]
            ids, others = earlier.reader.ids.many(places), later.reader.ids.many(new[low : low + _BATCH_IDS])
            equal = np.array([one == other for one, other in zip(ids, others, strict=True)], bool)
            self.n_replaced += int(np.count_nonzero(equal))
            flags[places[equal]] = False


def _equal_hashes(
    first: DocIds, first_live: BoolArray, second: DocIds, second_live: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Return the ordinals of all pairs of live documents whose ids have equal hashes: (n,) int64 for each side."""
    hashes, ordinals = first.sorted_hashes()
    wanted, wanted_ordinals = second.sorted_hashes()
    hashes, ordinals = hashes[first_live[ordinals]], ordinals[first_live[ordinals]]
    wanted, wanted_ordinals = wanted[second_live[wanted_ordinals]], wanted_ordinals[second_live[wanted_ordinals]]
    low = np.searchsorted(hashes, wanted, "left")
    counts = np.searchsorted(hashes, wanted, "right") - low
    number = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ordinals[low[number] + within].astype(np.int64), wanted_ordinals[number].astype(np.int64)
