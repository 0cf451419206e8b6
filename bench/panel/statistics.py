"""Bootstrap intervals over queries, and the rule that decides whether a feature of ranking or an encoder stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "Verdict", "interval_of", "judge", "mean_interval"]

_LEAST_RISE = 0.003
_LARGEST_FALL = 0.010
_RESAMPLES = 2000
_SEED = 0

Values = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class Verdict(NamedTuple):
    """What the rule says of the change from one way of ranking to another.

    Attributes:
        changes: the changes of each collection, paired by query.
        mean: the change of the mean over collections.
        falls: collections that fall significantly, or by more than .010.
        stays: whether the mean rises by .003 or more, and no collection falls.
    """

    changes: dict[str, Interval]
    mean: Interval
    falls: list[str]
    stays: bool


def _resample(values: Values) -> Values:
    """Return the means of 2,000 samples of (n,) values, drawn with replacement; the same in every run."""
    generator = np.random.default_rng(_SEED)
    draws = (values[generator.integers(0, len(values), len(values))].mean() for _ in range(_RESAMPLES))
    return np.fromiter(draws, np.float64, _RESAMPLES)


def _interval(mean: float, resampled: Values) -> Interval:
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
    return Interval(mean, low, high)


def interval_of(values: Values) -> Interval:
    """Return the mean of (n,) values of queries."""
    return _interval(float(values.mean()), _resample(values))


def mean_interval(collections: Collection[Values]) -> Interval:
    """Return the mean over collections, each of which counts the same, given the values of their queries."""
    resampled = np.mean([_resample(values) for values in collections], axis=0)
    return _interval(float(np.mean([values.mean() for values in collections])), resampled)


def judge(before: Mapping[str, Values], after: Mapping[str, Values], in_mean: Collection[str]) -> Verdict:
    """Compare two ways of ranking by the values of the same queries.

    Args:
        before: by collection.
        after: by collection, of the same queries in the same order.
        in_mean: the collections that count in the mean; the others only must not fall.
    """
    differences = {name: after[name] - before[name] for name in before}
    changes = {name: interval_of(each) for name, each in differences.items()}
    mean = mean_interval([differences[name] for name in differences if name in in_mean])
    falls = [name for name, each in changes.items() if each.high < 0 or each.mean < -_LARGEST_FALL]
    return Verdict(changes, mean, falls, mean.mean >= _LEAST_RISE and not falls)
