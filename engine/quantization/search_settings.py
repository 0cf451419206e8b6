"""Search settings for any number of hits, interpolated from those that were calibrated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from quarry.formats.vectors.search_setting import SearchSetting

__all__ = ["find_setting"]

_GROWTH = 0.62  # exponent of rows by hits, used if only one number of hits was calibrated


def find_setting(settings: Sequence[SearchSetting], k: int) -> SearchSetting | None:
    """Return the setting for k hits; None if nothing was calibrated.

    Fewer hits than were calibrated use the setting of the smallest calibrated k. Between two values of k, and
    beyond the last one, nprobe and rows are powers of k through the two nearest calibrated settings.

    Args:
        settings: calibrated settings, by ascending k.
        k: number of hits.
    """
    if not settings or k <= settings[0].k:
        return settings[0] if settings else None
    if len(settings) == 1:
        only = settings[0]
        return SearchSetting(k, only.nprobe, math.ceil(only.rows * (k / only.k) ** _GROWTH))
    above = next((place for place, each in enumerate(settings) if each.k >= k), len(settings) - 1)
    low, high = settings[above - 1], settings[above]
    share = math.log(k / low.k) / math.log(high.k / low.k)
    return SearchSetting(k, _interpolate(low.nprobe, high.nprobe, share), _interpolate(low.rows, high.rows, share))


def _interpolate(low: int, high: int, share: float) -> int:
    """Interpolate, or extrapolate for shares above 1, on a logarithmic scale; the result is at least `low`."""
    value: float = low * (high / low) ** share
    return max(low, math.ceil(value - 1e-9))
