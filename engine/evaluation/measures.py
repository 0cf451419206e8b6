"""Measures of a ranking against judged documents, as trec_eval defines them, and their means over queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "mean_interval", "measure_ndcg", "measure_recall", "measure_reciprocal_rank"]


def measure_ndcg(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return nDCG@k with linear gain (Järvelin and Kekäläinen 2002, with the discount 1 / log2(rank + 1)).

    Args:
        ranking: ids of documents, best first.
        judged: score of each judged document; others have score 0, as have documents with negative scores.
        k: number of documents that count.
    """
    best = _discounted_gain(sorted((max(0, score) for score in judged.values()), reverse=True)[:k])
    return _discounted_gain([max(0, judged.get(doc_id, 0)) for doc_id in ranking[:k]]) / best if best else 0.0


def measure_recall(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return the share of the documents with score 1 or higher that are among the first k; 0 without any."""
    relevant = {doc_id for doc_id, score in judged.items() if score >= 1}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def measure_reciprocal_rank(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return 1 / rank of the first document with score 1 or higher, 0 if it is not among the first k."""
    for rank, doc_id in enumerate(ranking[:k], 1):
        if judged.get(doc_id, 0) >= 1:
            return 1 / rank
    return 0.0


def _discounted_gain(gains: Sequence[int]) -> float:
    return float(np.sum(np.array(gains) / np.log2(np.arange(2, len(gains) + 2))))


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
    """Return the mean of values with its percentile interval (Efron and Tibshirani 1993, chapter 13).

    Args:
        values: one of each query, at least one.
        seed: of the 2000 resamples.
    """
    given = np.asarray(values, np.float64)
    generator = np.random.default_rng(seed)
    means = np.array([given[generator.integers(0, len(given), len(given))].mean() for _ in range(_N_RESAMPLES)])
    low, high = np.quantile(means, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return Interval(float(given.mean()), float(low), float(high))
