"""Measures the rankings of search modes with judged queries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from quarry.engine.arguments import checked_integer, shown
from quarry.engine.choices import Mode
from quarry.engine.engine import Engine
from quarry.engine.evaluation.judgments import JudgedQueries
from quarry.engine.evaluation.measures import (
    Interval,
    mean_interval,
    measure_ndcg,
    measure_recall,
    measure_reciprocal_rank,
)
from quarry.engine.options import MAX_K, SearchKeywords
from quarry.formats.errors import InvalidQuery

__all__ = ["ModeQuality", "count_missing", "evaluate", "rank_queries"]

_N_FIRST = 10  # of nDCG and of the reciprocal rank
_QUERIES_AT_ONCE = 256


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
        seed: of the confidence intervals.

    Raises:
        InvalidSetting: `k` or `seed` is out of range.
        InvalidQuery: the index has none of the relevant documents.
    """
    count_missing(index, queries)
    k, seed = checked_integer(k, "k", 1, MAX_K), checked_integer(seed, "seed", 0, sys.maxsize)
    found: dict[Mode, ModeQuality] = {}
    for mode in modes:
        rankings = rank_queries(index, queries, max(k, _N_FIRST), mode=mode)
        pairs = list(zip(rankings, queries.judged, strict=True))
        found[mode] = ModeQuality(
            ndcg_10=mean_interval([measure_ndcg(*pair, _N_FIRST) for pair in pairs], seed),
            recall=mean_interval([measure_recall(*pair, k) for pair in pairs], seed),
            rr_10=mean_interval([measure_reciprocal_rank(*pair, _N_FIRST) for pair in pairs], seed),
        )
    return found


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
