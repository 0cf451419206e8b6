"""Compares an exported reranker with the fp32 graph of the same weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from quarry.engine.search.reranker import Reranker
from quarry.formats.bundle.reranker import RerankerParity
from quarry.formats.errors import InvalidSetting

__all__ = ["LEAST_CORRELATIONS", "check_reranker_parity", "measure_reranker_parity"]

LEAST_CORRELATIONS: Mapping[str, float] = {"fp32": 0.9999, "fp16": 0.999, "int8-weights": 0.99, "int8": 0.98}
"""Pearson correlation of scores with those of fp32, by precision; a lower one is refused.

Spearman's correlation would also count the order among texts with very low scores, which matters little. Neither
depends on a factor or an offset, which do not change the order.
"""

Scores = npt.NDArray[np.float64]
Pair = tuple[str, str]


def measure_reranker_parity(
    exact: Reranker, variant: Reranker, pairs: Iterable[Pair]
) -> tuple[RerankerParity, Pair]:
    """Compare two rerankers on pairs of a query and a text.

    Args:
        exact: the fp32 reranker.
        variant: the reranker to compare with it.
        pairs: real pairs with different scores.

    Returns:
        Differences and correlations, and the pair whose scores differ most.

    Raises:
        InvalidSetting: all scores are equal, so they have no order.
        QuarryError: a pair cannot be scored.
    """
    listed = list(pairs)
    one, other = (_compute_scores(reranker, listed) for reranker in (exact, variant))
    if len(listed) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        raise InvalidSetting("parity needs pairs with different scores", actual=f"{len(listed)} pairs")
    differences = np.abs(one - other)
    values = (
        differences.mean(),
        differences.max(),
        _correlate(one, other),
        _correlate(_rank(one), _rank(other)),
    )
    record = RerankerParity(len(listed), *(round(float(value), 5) for value in values))
    return record, listed[int(differences.argmax())]


def check_reranker_parity(record: RerankerParity, worst_pair: Pair, precision: str) -> None:
    """Refuse a variant that differs too much from fp32.

    Raises:
        InvalidSetting: the correlation is below `LEAST_CORRELATIONS`; the message has the largest difference and
            its pair.
    """
    least = LEAST_CORRELATIONS.get(precision, min(LEAST_CORRELATIONS.values()))
    if not record.correlation >= least:
        query, text = (part[:100] for part in worst_pair)
        raise InvalidSetting(
            f"the exported graph differs too much from fp32, most (by {record.difference_max:.4f}) "
            f"in the score of {query!r} with {text!r}",
            expected=f"a correlation of at least {least}",
            actual=f"{record.correlation:.4f}, ranks {record.rank_correlation:.4f}",
        )


def _compute_scores(reranker: Reranker, pairs: list[Pair]) -> Scores:
    return np.array([reranker.scores(query, [text])[0] for query, text in pairs], np.float64)


def _correlate(one: Scores, other: Scores) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def _rank(scores: Scores) -> Scores:
    """Return ranks from 0; equal scores share their mean rank."""
    ordered = np.sort(scores)
    first, last = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    ranks: Scores = (first + last - 1) / 2
    return ranks
