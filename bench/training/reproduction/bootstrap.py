"""Paired bootstrap: how sure is a difference of two systems on the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Difference", "paired_difference", "seed_means"]

_SAMPLES = 10_000
_BATCH = 500


class Difference(NamedTuple):
    """The difference of two means.

    Attributes:
        mean: of the queries' differences.
        low: 2.5 % of bootstrap samples lie below.
        high: 2.5 % lie above.
    """

    mean: float
    low: float
    high: float


def paired_difference(system: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> Difference:
    """Compare two systems by the values of the same queries (Efron and Tibshirani 1993, percentile intervals).

    Queries are drawn with replacement, 10,000 times, and both systems are judged on each draw.

    Args:
        system: (n_queries,) float64.
        other: the values of the other system, in the same order of queries.

    Raises:
        ValueError: the systems were not judged on the same number of queries, or on none.
    """
    if system.shape != other.shape or not len(system):
        raise ValueError(f"no pairs of values: {system.shape} and {other.shape}")
    differences, rng = system - other, np.random.default_rng(0)
    means = [
        differences[rng.integers(0, len(differences), (_BATCH, len(differences)))].mean(1)
        for _ in range(_SAMPLES // _BATCH)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Difference(float(differences.mean()), float(low), float(high))


def seed_means(runs: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Average the values of each query over runs that differ in their seeds: (n_queries,) float64."""
    means: npt.NDArray[np.float64] = np.array(runs, np.float64).mean(axis=0)
    return means
