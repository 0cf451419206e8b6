"""Measures the rankings of search modes with judged queries, by measures as trec_eval defines them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from quarry.engine.arguments import checked_integer, shown
from quarry.engine.choices import Mode
from quarry.engine.engine import Engine
from quarry.engine.evaluation.judgments import JudgedQueries
from quarry.engine.options import MAX_K, SearchKeywords
from quarry.formats.errors import InvalidQuery

__all__ = [
    "Interval",
    "ModeQuality",
    "count_missing",
    "evaluate",
    "mean_interval",
    "measure_ndcg",
    "measure_recall",
    "measure_reciprocal_rank",
    "rank_queries",
]


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


_N_RESAMPLES = 2000  # of the bootstrap; bounds vary by some hundredths of the interval
_SHARE = 0.95  # of the bootstrap means that lie in an interval


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
        seed: the seed of the resamples.
    """
    given = np.asarray(values, np.float64)
    generator = np.random.default_rng(seed)
    means = np.array([given[generator.integers(0, len(given), len(given))].mean() for _ in range(_N_RESAMPLES)])
    low, high = np.quantile(means, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return Interval(float(given.mean()), float(low), float(high))


_N_FIRST = 10  # of nDCG and of the reciprocal rank
_QUERIES_AT_ONCE = 256  # in one search


@dataclass(frozen=True, slots=True)
class ModeQuality:
    """Means over the queries.

    Attributes:
        ndcg_10: nDCG@10 with linear gain.
        recall: share of the relevant documents among the first k.
        rr_10: reciprocal rank of the first relevant document among the first ten (MRR@10).
    """

    ndcg_10: Interval
    recall: Interval
    rr_10: Interval


def evaluate(
    index: Engine, queries: JudgedQueries, modes: Sequence[Mode], k: int = 100, seed: int = 0
) -> dict[Mode, ModeQuality]:
    """Measure the rankings of an index.

    Args:
        index: the index, opened with its encoder unless all modes are lexical.
        queries: the queries.
        modes: search modes.
        k: number of hits that recall is measured in, at least 1.
        seed: the seed of the confidence intervals.

    Raises:
        InvalidSetting: `k` or `seed` is out of range.
        InvalidQuery: the index has none of the relevant documents.
    """
    count_missing(index, queries)
    k, seed = checked_integer(k, "k", 1, MAX_K), checked_integer(seed, "seed", 0, sys.maxsize)
    qualities: dict[Mode, ModeQuality] = {}
    for mode in modes:
        rankings = rank_queries(index, queries, max(k, _N_FIRST), mode=mode)
        pairs = list(zip(rankings, queries.judged, strict=True))
        qualities[mode] = ModeQuality(
            ndcg_10=mean_interval([measure_ndcg(*pair, _N_FIRST) for pair in pairs], seed),
            recall=mean_interval([measure_recall(*pair, k) for pair in pairs], seed),
            rr_10=mean_interval([measure_reciprocal_rank(*pair, _N_FIRST) for pair in pairs], seed),
        )
    return qualities


def count_missing(index: Engine, queries: JudgedQueries) -> int:
    """Return the number of relevant documents that the index does not have; no ranking can find them.

    Raises:
        InvalidQuery: the index has none of them, so the ids of the judgments are not those of the index.
    """
    relevant = {doc_id for judged in queries.judged for doc_id, score in judged.items() if score >= 1}
    missing = sorted(doc_id for doc_id in relevant if doc_id not in index)
    if len(missing) == len(relevant):
        example = next(iter(index.ids(limit=1)), None)
        raise InvalidQuery(
            "the index has none of the relevant documents",
            expected="ids of its documents"
            if example is None
            else f"ids of its documents, such as {shown(example)}",
            actual=shown(missing[0]),
        )
    return len(missing)


def rank_queries(
    index: Engine, queries: JudgedQueries, k: int, **options: Unpack[SearchKeywords]
) -> list[list[str]]:
    """Return the ids of the first k hits of each query."""
    rankings = []
    for low in range(0, len(queries.texts), _QUERIES_AT_ONCE):
        answers = index.search(queries.texts[low : low + _QUERIES_AT_ONCE], k, **options)
        rankings += [[hit.id for hit in hits] for hits in answers]
    return rankings
