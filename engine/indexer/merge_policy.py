"""Which segments are merged, and when: a pure function of their sizes.

Segments fall into levels by their size, each level `width` times the one below. A level that has `width` segments
is merged into one of the next level, so every document is rewritten once for each level (P. O'Neil et al., The
log-structured merge-tree, 1996; the sizes are pro-rated by live documents as in Lucene's TieredMergePolicy). A
segment with much that is deleted is rewritten whatever its level. At rest there are fewer than `width` segments
in each level, some of the largest size, and a bounded share of dead bytes.
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
    """What the policy knows of a segment.

    Attributes:
        n_bytes: length of its file.
        live_share: share of its documents that are not deleted, 0 to 1.
    """

    n_bytes: int
    live_share: float

    @property
    def live_bytes(self) -> float:
        """What it would take without its deleted documents."""
        return self.n_bytes * self.live_share

    @property
    def dead_bytes(self) -> float:
        """What its deleted documents take."""
        return self.n_bytes - self.live_bytes


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Selects segments to merge.

    Attributes:
        limits: sizes and shares that decide.
    """

    limits: MergeLimits

    def next_merge(self, segments: Sequence[SegmentSize]) -> tuple[int, ...]:
        """The segments that should become one now, ascending; none where all is well.

        To be asked again after each merge: it comes to an end, for each one leaves fewer segments, or fewer
        dead bytes in as many.
        """
        return tuple(sorted(self._crowd(segments) or self._dying(segments)))

    def full_merge(self, segments: Sequence[SegmentSize]) -> list[tuple[int, ...]]:
        """Merges that leave as few segments as there can be, and nothing dead."""
        return [group for group in self.packed(segments) if len(group) > 1 or segments[group[0]].live_share < 1]

    def packed(self, segments: Sequence[SegmentSize]) -> list[tuple[int, ...]]:
        """All segments, neighbours together up to the largest size."""
        groups: list[tuple[int, ...]] = []
        total = math.inf
        for number, segment in enumerate(segments):
            total += segment.live_bytes
            if total > self.limits.max_bytes:
                groups.append(())
                total = segment.live_bytes
            groups[-1] += (number,)
        return groups

    def _crowd(self, segments: Sequence[SegmentSize]) -> list[int]:
        """The smallest segments of the lowest level that has as many as `width`."""
        levels: dict[int, list[int]] = defaultdict(list)
        for number, segment in enumerate(segments):
            if segment.live_bytes <= self.limits.max_bytes / 2:
                levels[self._level(segment)].append(number)
        for level in sorted(levels):
            if len(levels[level]) >= self.limits.width:
                smallest = sorted(levels[level], key=lambda number: segments[number].live_bytes)
                return self._fitting(segments, smallest[: self.limits.width])
        return []

    def _dying(self, segments: Sequence[SegmentSize]) -> list[int]:
        """The segments with too much that is deleted, those with the least alive first."""
        dying = [
            number
            for number, segment in enumerate(segments)
            if segment.dead_bytes > max(self.limits.dead_bytes, self.limits.dead_share * segment.n_bytes)
        ]
        return self._fitting(segments, sorted(dying, key=lambda number: segments[number].live_bytes))

    def _fitting(self, segments: Sequence[SegmentSize], numbers: Iterable[int]) -> list[int]:
        """The first of `numbers`, one at least if there is one, whose live bytes fit into the largest segment."""
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
