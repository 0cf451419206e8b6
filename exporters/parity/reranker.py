"""Measures how close an exported reranker's scores are to those of the fp32 graph it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from quarry.engine.search.reranker import Reranker
from quarry.formats.bundle.reranker import RerankerParity
from quarry.formats.errors import InvalidSetting

__all__ = ["LEAST_CORRELATIONS", "check_reranker_parity", "measure_reranker_parity"]

LEAST_CORRELATIONS: Mapping[str, float] = {"fp32": 0.9999, "fp16": 0.999, "int8-weights": 0.99, "int8": 0.98}
"""Pearson's correlation of scores with those of fp32, by precision; less is a fault of the export.

Spearman's also counts the order among texts that all score about as low as a score can be, where it says little.
Neither sees a factor or an offset: those change no order.
"""

Scores = npt.NDArray[np.float64]
Pair = tuple[str, str]


def measure_reranker_parity(
    exact: Reranker, variant: Reranker, pairs: Iterable[Pair]
) -> tuple[RerankerParity, Pair]:
    """Compare two rerankers on pairs of a query and a text.

    Args:
        exact: the fp32 reranker.
        variant: the reranker to judge.
        pairs: real ones, with different scores.

    Returns:
        Differences and correlations, and the pair with the scores furthest apart.

    Raises:
        InvalidSetting: all scores are the same, so that nothing can be said about their order.
        QuarryError: a pair cannot be scored.
    """
    listed = list(pairs)
    one, other = (_scores(reranker, listed) for reranker in (exact, variant))
    if len(listed) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        raise InvalidSetting("parity needs pairs with different scores", actual=f"{len(listed)} pairs")
    differences = np.abs(one - other)
    values = (
        differences.mean(),
        differences.max(),
        _correlation(one, other),
        _correlation(_ranks(one), _ranks(other)),
    )
    record = RerankerParity(len(listed), *(round(float(value), 5) for value in values))
    return record, listed[int(differences.argmax())]


def check_reranker_parity(record: RerankerParity, worst_pair: Pair, precision: str) -> None:
    """Refuse a variant that is too far from fp32.

    Raises:
        InvalidSetting: the correlation is below that of `LEAST_CORRELATIONS`; the message has the largest
            difference and the pair that showed it.
    """
    least = LEAST_CORRELATIONS.get(precision, min(LEAST_CORRELATIONS.values()))
    if not record.correlation >= least:
        query, text = (part[:100] for part in worst_pair)
        raise InvalidSetting(
            f"the exported graph is too far from fp32: furthest off (by {record.difference_max:.4f}) "
            f"is the score of {query!r} with {text!r}",
            expected=f"scores that correlate by at least {least}",
            actual=f"{record.correlation:.4f}, ranks {record.rank_correlation:.4f}",
        )


def _scores(reranker: Reranker, pairs: list[Pair]) -> Scores:
    return np.array([reranker.scores(query, [text])[0] for query, text in pairs], np.float64)


def _correlation(one: Scores, other: Scores) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(scores: Scores) -> Scores:
    """Return ranks from 0, the mean of their places for equal scores."""
    ordered = np.sort(scores)
    first, last = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    ranks: Scores = (first + last - 1) / 2
    return ranks
