from __future__ import annotations

import pytest

from quarry.engine.quantization.candidates import find_setting
from quarry.formats.vectors.quantizer import SearchSetting

TEN, HUNDRED = SearchSetting(10, 20, 200), SearchSetting(100, 80, 800)


def test_nothing_was_measured():
    assert find_setting((), 10) is None


@pytest.mark.parametrize("k", [1, 9, 10])
def test_few_hits_take_what_the_fewest_did(k):
    assert find_setting((TEN, HUNDRED), k) == TEN


@pytest.mark.parametrize(
    ("k", "expected"),
    [(100, HUNDRED), (1000, SearchSetting(1000, 320, 3200)), (32, SearchSetting(32, 41, 403))],
)
def test_more_hits_take_more(k, expected):
    """Settings are interpolated: ten times as many hits take four times as much."""
    found = find_setting((TEN, HUNDRED), k)
    assert (found.nprobe, found.rows) == (expected.nprobe, expected.rows)


def test_more_hits_never_take_less():
    settings = (SearchSetting(10, 20, 300), SearchSetting(100, 15, 250), SearchSetting(500, 30, 260))
    found = [find_setting(settings, k) for k in range(1, 3000)]
    assert all(each.nprobe >= 15 and each.rows >= 250 for each in found)
    only = [find_setting((TEN,), k) for k in range(1, 3000)]
    assert [each.nprobe for each in only] == [20] * len(only)
    assert [each.rows for each in only] == sorted(each.rows for each in only)
    assert only[99].rows == pytest.approx(200 * 10**0.62, abs=1)


def test_of_the_largest_numbers():
    found = find_setting((SearchSetting(1, 1, 1), SearchSetting(1 << 20, 1 << 24, 1 << 32)), 1 << 20)
    assert (found.nprobe, found.rows) == (1 << 24, 1 << 32)
