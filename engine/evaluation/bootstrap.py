"""Confidence intervals of means over queries, by the bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "mean_interval"]

_N_RESAMPLES = 2000
_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over queries, with its confidence interval of 95 %.

    Attributes:
        mean: the mean.
        low: lower end of the interval.
        high: upper end.
    """

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean of values, one a query, with its percentile interval (Efron and Tibshirani 1993, ch. 13).

    Args:
        values: at least one.
        seed: of the 2000 resamples.
    """
    given = np.asarray(values, np.float64)
    generator = np.random.default_rng(seed)
    means = np.array([given[generator.integers(0, len(given), len(given))].mean() for _ in range(_N_RESAMPLES)])
    low, high = np.quantile(means, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return Interval(float(given.mean()), float(low), float(high))
