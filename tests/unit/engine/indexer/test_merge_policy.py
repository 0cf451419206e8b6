"""The merge policy as a pure function, and in simulations of years of updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.indexer.merge_policy import MergePolicy, SegmentSize
from quarry.engine.thresholds import MergeLimits

LIMITS = MergeLimits(width=4, floor_bytes=100, max_bytes=10_000, dead_share=0.2, dead_bytes=10)
POLICY = MergePolicy(LIMITS)
SIZES = st.lists(
    st.builds(SegmentSize, st.integers(1, 12_000), st.floats(0, 1)),
    max_size=40,
)


def alive(*sizes):
    return [SegmentSize(size, 1.0) for size in sizes]


class TestNextMerge:
    def test_nothing_to_do(self):
        assert POLICY.next_merge([]) == ()
        assert POLICY.next_merge(alive(50, 50, 50, 200, 200, 200, 4000, 9999)) == ()

    def test_a_full_level(self):
        assert POLICY.next_merge(alive(9000, 50, 200, 10, 99, 3)) == (1, 3, 4, 5)

    def test_the_lowest_full_level_first(self):
        assert POLICY.next_merge(alive(500, 600, 700, 800, 10, 20, 30, 40)) == (4, 5, 6, 7)

    def test_the_smallest_of_a_level_as_many_as_fit(self):
        assert POLICY.next_merge(alive(4000, 4500, 3900, 5000, 4100)) == (0, 2)

    def test_large_ones_are_left_alone(self):
        assert POLICY.next_merge(alive(*[5001] * 20)) == ()

    def test_sizes_count_what_is_alive(self):
        shrunk = SegmentSize(9000, 0.81)
        assert POLICY.next_merge([shrunk, *alive(5001, 5001)]) == ()
        assert POLICY.next_merge([SegmentSize(110, 0.91), *alive(600, 60, 60)]) == ()
        assert POLICY.next_merge([SegmentSize(109, 0.91), *alive(60, 60, 60)]) == (0, 1, 2, 3)

    def test_dead_ones_are_rewritten_together(self):
        segments = [SegmentSize(9000, 0.7), SegmentSize(1000, 0.5), SegmentSize(300, 0.81), SegmentSize(40, 0.7)]
        assert POLICY.next_merge(segments) == (0, 1, 3)
        assert POLICY.next_merge([*segments, SegmentSize(9000, 0.7)]) == (0, 1, 3)

    def test_a_few_dead_bytes_are_not_worth_it(self):
        assert POLICY.next_merge([SegmentSize(20, 0.5)]) == ()
        assert POLICY.next_merge([SegmentSize(22, 0.5)]) == (0,)


class TestFullMerge:
    def test_adjacent_segments_up_to_the_largest_size(self):
        assert POLICY.full_merge(alive(4000, 4000, 4000, 1, 9999, 9999, 1, 1)) == [(0, 1), (2, 3), (5, 6)]

    def test_deleted_documents_are_dropped(self):
        assert POLICY.full_merge([SegmentSize(9000, 0.99)]) == [(0,)]
        assert POLICY.full_merge(alive(9000)) == []
        assert POLICY.full_merge([]) == []

    @given(SIZES)
    def test_each_segment_once(self, segments):
        groups = POLICY.pack(segments)
        assert [number for group in groups for number in group] == list(range(len(segments)))
        for group in groups:
            assert len(group) == 1 or sum(segments[number].live_bytes for number in group) <= LIMITS.max_bytes


def at_rest(segments, check=lambda chosen, segments: None):
    """Return the segments after all merges that the policy selects, and the number of bytes written."""
    written = 0
    while chosen := POLICY.next_merge(segments):
        check(chosen, segments)
        live = round(sum(segments[number].live_bytes for number in chosen))
        written += live
        segments = [each for number, each in enumerate(segments) if number not in chosen]
        segments += alive(live) if live else []
    return segments, written


@given(SIZES)
def test_merging_converges_within_its_bounds(segments):
    def check(chosen, now):
        assert list(chosen) == sorted(set(chosen))
        assert len(chosen) == 1 or sum(now[number].live_bytes for number in chosen) <= LIMITS.max_bytes
        assert len(chosen) > 1 or now[chosen[0]].live_share < 1

    rest, _ = at_rest(segments, check)
    large = [each for each in rest if each.live_bytes > LIMITS.max_bytes / 2]
    levels = 2 + math.ceil(math.log(LIMITS.max_bytes / LIMITS.floor_bytes, LIMITS.width))
    assert len(rest) - len(large) < LIMITS.width * levels
    assert all(each.dead_bytes <= max(LIMITS.dead_bytes, LIMITS.dead_share * each.n_bytes) for each in rest)


@pytest.mark.parametrize(
    ("n_live", "batch"), [(20, 1), (300, 1), (300, 20), (3000, 7), (3000, 100), (20_000, 300)]
)
def test_years_of_updates(n_live, batch):
    """If every commit replaces random bytes, dead bytes, segments and written bytes stay bounded."""
    generator = np.random.default_rng(n_live + batch)
    segments, written = alive(n_live), 0
    for _ in range(700):
        live = np.array([round(each.live_bytes) for each in segments])
        live -= generator.multivariate_hypergeometric(live, batch)
        segments = [
            SegmentSize(each.n_bytes, n / each.n_bytes)
            for each, n in zip(segments, live.tolist(), strict=True)
            if n
        ]
        segments, n_bytes = at_rest([*segments, *alive(batch)])
        written += n_bytes
        dead = sum(each.dead_bytes for each in segments)
        assert sum(round(each.live_bytes) for each in segments) == n_live
        assert len(segments) < 4 * LIMITS.width + n_live / (LIMITS.max_bytes / 2)
        assert dead <= LIMITS.dead_share * (n_live + dead) + LIMITS.dead_bytes * len(segments)
    assert written < 700 * batch * (20 + LIMITS.floor_bytes / batch)


@pytest.mark.parametrize("size", [0, 1])
def test_empty_files(size):
    assert POLICY.next_merge([SegmentSize(size, 0.0)] * 3) == ()
