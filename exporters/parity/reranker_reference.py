"""Scores of a few pairs, recorded before the graph is converted, so that a bundle can be checked by itself.

``reference.json`` of a reranker's bundle is a list of ``{"query", "text", "score"}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.exporters.parity.encoder_reference import find_recorded_file
from quarry.exporters.parity.reranker import check_reranker_parity, measure_reranker_parity
from quarry.formats.bundle.reranker import RerankerParity, load_reranker_bundle
from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import CorruptFile

__all__ = ["check_reranker_bundle", "record_scores"]

_N_PAIRS = 40
_CHARACTERS = 400
_MAX_BYTES = 4 * 1024 * 1024
_LARGEST_SCORE = 1e9


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
