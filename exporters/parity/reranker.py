"""Compares an exported reranker with the fp32 graph of the same weights, or with scores that were recorded.

Scores of a few pairs are recorded before the graph is converted, so that a bundle can be checked by itself.
``reference.json`` of a reranker's bundle is a list of ``{"query", "text", "score"}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.exporters.parity.encoder import find_recorded_file
from quarry.formats.bundle.reranker import RerankerParity, load_reranker_bundle
from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "LEAST_CORRELATIONS",
    "check_reranker_bundle",
    "check_reranker_parity",
    "measure_reranker_parity",
    "record_scores",
]

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


_N_PAIRS = 40  # of queries and texts
_CHARACTERS = 400  # of a text
_MAX_BYTES = 4 * 1024 * 1024  # of the file with recorded scores
_LARGEST_SCORE = 1e9  # larger ones are not logits


def record_scores(exact: Reranker, pairs: Iterable[tuple[str, str]]) -> bytes:
    """Score the beginnings of a few pairs and return the contents of ``reference.json``.

    Args:
        exact: the reranker before its conversion.
        pairs: real (query, text) pairs; the first 40 are used.
    """
    short = [tuple(text.strip()[:_CHARACTERS] for text in pair) for pair in islice(pairs, _N_PAIRS)]
    entries = [
        {"query": query, "text": text, "score": float(exact.scores(query, [text])[0])} for query, text in short
    ]
    return json.dumps(entries, ensure_ascii=False, indent=0).encode("utf-8")


def check_reranker_bundle(path: str | Path) -> RerankerParity:
    """Run a reranker's bundle of any precision and compare it with the scores that its export recorded.

    Raises:
        InvalidSetting: there is no reranker's bundle, it has no recorded scores, or its scores differ; the message
            has the largest difference and its pair.
        FormatError: the bundle is damaged.
    """
    bundle = load_reranker_bundle(path)
    recorded = _RecordedReranker(find_recorded_file(bundle, "scores"))
    record, worst_pair = measure_reranker_parity(recorded, open_reranker(bundle.path), recorded.pairs)
    check_reranker_parity(record, worst_pair, bundle.settings.precision)
    return record


class _RecordedReranker:
    """A reranker that returns the recorded scores of a few pairs."""

    name = "recorded"

    def __init__(self, path: Path) -> None:
        entries = read_json(path, _MAX_BYTES)
        if not isinstance(entries, list):
            raise CorruptFile(
                "not a list of recorded scores", path=path, expected="a list", actual=type(entries).__name__
            )
        self._known = dict(_read_entry(Fields.from_json(entry, path)) for entry in entries)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs that were recorded."""
        return list(self._known)

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return recorded scores."""
        return np.array([self._known[query, text] for text in texts], np.float32)


def _read_entry(fields: Fields) -> tuple[tuple[str, str], float]:
    entry = (fields.text("query"), fields.text("text")), fields.number("score", -_LARGEST_SCORE, _LARGEST_SCORE)
    fields.refuse_unknown()
    return entry
