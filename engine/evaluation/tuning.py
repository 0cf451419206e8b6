"""Chooses the weight of dense against lexical scores for an index, by judged queries."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from quarry.engine.arguments import checked_integer
from quarry.engine.engine import Engine
from quarry.engine.evaluation.evaluation import Interval, count_missing, mean_interval, measure_ndcg, rank_queries
from quarry.engine.evaluation.judgments import JudgedQueries
from quarry.formats.arrays import Float64Array
from quarry.formats.errors import InvalidSetting

__all__ = ["MIN_QUERIES", "TunedWeight", "tune"]

MIN_QUERIES = 50
"""With fewer judged queries a weight is chosen by chance more than by quality."""

_WEIGHTS = np.linspace(0, 1, 21)  # that are tried
_N_FOLDS = 5  # of the cross-validation
_N_FIRST = 10  # hits that nDCG is measured at


@dataclass(frozen=True, slots=True)
class TunedWeight:
    """The weight that was chosen, and what is gained by choosing it.

    Attributes:
        dense_weight: the best weight for all queries.
        before: the weight that the index has now.
        gain: nDCG@10 of weights that were chosen without the queries they are measured with, minus that of
            `before`: mean over the queries, with its confidence interval.
        n_queries: number of judged queries.
    """

    dense_weight: float
    before: float
    gain: Interval
    n_queries: int

    @property
    def is_better(self) -> bool:
        """Whether the whole confidence interval of the gain is above 0."""
        return self.gain.low > 0


def tune(index: Engine, queries: JudgedQueries, seed: int = 0) -> TunedWeight:
    """Choose a weight; nothing is stored, see `Engine.set_dense_weight`.

    Weights from 0 to 1 in steps of 0.05 are compared by nDCG@10. The gain is cross-validated: the queries are
    divided at random into five parts, and each part is measured with the weight that is best for the other four.

    Args:
        index: the index, opened with its encoder.
        queries: at least `MIN_QUERIES`.
        seed: the seed of the division and of the confidence interval.

    Raises:
        InvalidSetting: there are too few queries.
        InvalidQuery: the index has none of the relevant documents.
    """
    seed, n = checked_integer(seed, "seed", 0, sys.maxsize), len(queries.texts)
    if n < MIN_QUERIES:
        raise InvalidSetting(
            "too few judged queries to choose a weight", expected=f"at least {MIN_QUERIES}", actual=n
        )
    count_missing(index, queries)
    before = float(str(index.stats()["dense_weight"]))
    quality = np.stack([_measure(index, queries, float(weight)) for weight in _WEIGHTS])
    now = _measure(index, queries, before)
    folds = np.random.default_rng(seed).permutation(n) % _N_FOLDS
    held_out = np.empty(n)
    for fold in range(_N_FOLDS):
        inside = folds == fold
        held_out[inside] = quality[_best(quality[:, ~inside], before)][inside]
    gain = mean_interval((held_out - now).tolist(), seed)
    return TunedWeight(round(float(_WEIGHTS[_best(quality, before)]), 2), before, gain, n)


def _measure(index: Engine, queries: JudgedQueries, weight: float) -> Float64Array:
    """Return nDCG@10 of each query with a weight, (n_queries,) float64."""
    rankings = rank_queries(index, queries, _N_FIRST, mode="hybrid", fusion="linear", dense_weight=weight)
    pairs = zip(rankings, queries.judged, strict=True)
    return np.array([measure_ndcg(ranking, judged, _N_FIRST) for ranking, judged in pairs])


def _best(quality: Float64Array, before: float) -> int:
    """Return the number of the best weight; of equal ones that nearest to the weight before.

    Args:
        quality: (n_weights, n_queries) float64.
        before: the weight before.
    """
    means = quality.mean(axis=1).round(12)
    return int(np.lexsort((np.abs(_WEIGHTS - before), -means))[0])
