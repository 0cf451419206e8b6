"""Selection of segments to merge: a pure function of their sizes.

Segments are assigned to levels by their size, each level `width` times the one below. `width` segments of a level
are merged into one of the next level, so that every document is rewritten once per level (P. O'Neil et al., The
log-structured merge-tree, 1996; sizes are pro-rated by live documents as in Lucene's TieredMergePolicy). A segment
with many deleted documents is rewritten whatever its level. When nothing is left to merge, there are fewer than
`width` segments in each level, some of the largest size, and a bounded share of dead bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quarry.engine.thresholds import MergeLimits

__all__ = ["MergePolicy", "SegmentSize"]


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """Size of a segment, for the policy.

    Attributes:
        n_bytes: length of its file.
        live_share: share of its documents that are not deleted, 0 to 1.
    """

    n_bytes: int
    live_share: float

    @property
    def live_bytes(self) -> float:
        """Bytes of its live documents, pro-rated."""
        return self.n_bytes * self.live_share

    @property
    def dead_bytes(self) -> float:
        """Bytes of its deleted documents, pro-rated."""
        return self.n_bytes - self.live_bytes


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Selects segments to merge.

    Attributes:
        limits: sizes and shares that decide.
    """

    limits: MergeLimits

    def next_merge(self, segments: Sequence[SegmentSize]) -> tuple[int, ...]:
        """Return the numbers of the segments that should be merged into one now, ascending; none if none should.

        Call it again after each merge. It terminates, because each merge leaves fewer segments, or as many with
        fewer dead bytes.
        """
        return tuple(sorted(self._find_full_level(segments) or self._find_dead(segments)))

    def full_merge(self, segments: Sequence[SegmentSize]) -> list[tuple[int, ...]]:
        """Return merges that leave as few segments as possible, without deleted documents."""
        return [group for group in self.pack(segments) if len(group) > 1 or segments[group[0]].live_share < 1]

    def pack(self, segments: Sequence[SegmentSize]) -> list[tuple[int, ...]]:
        """Return groups of neighboring segments up to the largest size."""
        groups: list[tuple[int, ...]] = []
        total = math.inf
        for number, segment in enumerate(segments):
            total += segment.live_bytes
            if total > self.limits.max_bytes:
                groups.append(())
                total = segment.live_bytes
            groups[-1] += (number,)
        return groups

    def _find_full_level(self, segments: Sequence[SegmentSize]) -> list[int]:
        """Return the smallest segments of the lowest level that has as many as `width`."""
        levels: dict[int, list[int]] = defaultdict(list)
        for number, segment in enumerate(segments):
            if segment.live_bytes <= self.limits.max_bytes / 2:
                levels[self._level(segment)].append(number)
        for level in sorted(levels):
            if len(levels[level]) >= self.limits.width:
                smallest = sorted(levels[level], key=lambda number: segments[number].live_bytes)
                return self._limit(segments, smallest[: self.limits.width])
        return []

    def _find_dead(self, segments: Sequence[SegmentSize]) -> list[int]:
        """Return the segments with too many dead bytes, those with the fewest live bytes first."""
        dead = [
            number
            for number, segment in enumerate(segments)
            if segment.dead_bytes > max(self.limits.dead_bytes, self.limits.dead_share * segment.n_bytes)
        ]
        return self._limit(segments, sorted(dead, key=lambda number: segments[number].live_bytes))

    def _limit(self, segments: Sequence[SegmentSize], numbers: Iterable[int]) -> list[int]:
        """Return as many of the first `numbers` as fit into the largest segment, but at least one of them."""
        taken: list[int] = []
        total = 0.0
        for number in numbers:
            total += segments[number].live_bytes
            if taken and total > self.limits.max_bytes:
                break
            taken.append(number)
        return taken

    def _level(self, segment: SegmentSize) -> int:
        floor_bytes, width = self.limits.floor_bytes, self.limits.width
        if segment.live_bytes < floor_bytes:
            return 0
        return 1 + math.floor(math.log(segment.live_bytes / floor_bytes, width))
