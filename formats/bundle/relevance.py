"""The calibration of an encoder: how to estimate from scores whether a document answers a query.

A bundle may have it in the file ``relevance.json``: for each kind of search a logistic model of the features in
`FEATURES`, fitted on judged queries against queries of other collections (``python -m bench relevance``). Those of
multilingual encoders have one more, `BETWEEN_LANGUAGES` (``python -m bench between_languages``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "BETWEEN_LANGUAGES",
    "FEATURES",
    "RELEVANCE_NAME",
    "RELEVANCE_SEARCHES",
    "LogisticModel",
    "RelevanceModels",
    "read_relevance",
    "write_relevance",
]

RELEVANCE_NAME: Final = "relevance.json"
RELEVANCE_SEARCHES: Final = ("hybrid", "dense", "lexical")
BETWEEN_LANGUAGES: Final = "between_languages"
"""The model of documents in another language than the query, where words differ and dense scores are lower."""
FEATURES: Final = ("dense", "share", "spread")
"""Of a document and a query: its dense score; the share of the query's information (idf) whose terms the document
has; and of the query alone the standard deviation of its dense scores with random documents, which is larger for
queries about the subject of the collection, averaged with `RelevanceModels.typical_spread`."""

_FORMAT: Final = 2  # with a model between languages, otherwise 1
_MAX_BYTES: Final = 1 << 16
_MAX_WEIGHT: Final = 1e4  # of a feature
_MAX_NAMES: Final = 256  # of collections that it was fitted to


@dataclass(frozen=True, slots=True)
class LogisticModel:
    """A logistic model: the probability is 1 / (1 + exp(-(intercept + sum of weight x feature))).

    Attributes:
        intercept: log odds when all features are 0.
        weights: the weights of features by name, see `FEATURES`; the others have weight 0.
    """

    intercept: float
    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RelevanceModels:
    """The calibration of an encoder.

    Attributes:
        models: by kind of search: "hybrid", "dense", "lexical"; and `BETWEEN_LANGUAGES`, of the feature "dense"
            alone, for hybrid and dense searches. Some may be missing.
        collections: names of the collections that they were fitted on.
        typical_spread: the feature "spread" of an average query, which counts as much as that of 32 documents;
            None: the spread is that of the documents alone.
    """

    models: Mapping[str, LogisticModel]
    collections: tuple[str, ...]
    typical_spread: float | None = None


def read_relevance(path: Path) -> RelevanceModels:
    """Read the calibration in a file.

    Raises:
        FormatTooNew: a later version wrote it.
        CorruptFile: it is not valid.
    """
    fields = Fields.from_json(read_json(path, _MAX_BYTES), path)
    fields.check_format(_FORMAT, "calibration")
    searches = fields.child("models")
    names_of_models = (*RELEVANCE_SEARCHES, BETWEEN_LANGUAGES)
    models = {name: _read_model(searches.child(name)) for name in names_of_models if searches.has(name)}
    searches.refuse_unknown()
    names = fields.items("collections", _MAX_NAMES)
    typical = fields.number("typical_spread", 0.0, _MAX_WEIGHT) if fields.has("typical_spread") else None
    fields.refuse_unknown()
    if not all(isinstance(name, str) for name in names):
        raise CorruptFile("names of collections that are not texts", path=path)
    return RelevanceModels(models, tuple(str(name) for name in names), typical)


def _read_model(fields: Fields) -> LogisticModel:
    intercept = fields.number("intercept", -_MAX_WEIGHT, _MAX_WEIGHT)
    child = fields.child("weights")
    weights = {name: child.number(name, -_MAX_WEIGHT, _MAX_WEIGHT) for name in FEATURES if child.has(name)}
    child.refuse_unknown()
    fields.refuse_unknown()
    return LogisticModel(intercept, weights)


def write_relevance(models: RelevanceModels) -> bytes:
    """Return the content of the file of a calibration.

    Raises:
        InvalidSetting: the typical spread is not a number from 0.
    """
    if models.typical_spread is not None and not 0 <= models.typical_spread <= _MAX_WEIGHT:
        raise InvalidSetting(
            "typical_spread is out of range", expected=f"0 to {_MAX_WEIGHT}", actual=models.typical_spread
        )
    typical = {} if models.typical_spread is None else {"typical_spread": models.typical_spread}
    content = {
        "format": _FORMAT if BETWEEN_LANGUAGES in models.models else 1,
        "models": {
            name: {"intercept": model.intercept, "weights": dict(model.weights)}
            for name, model in models.models.items()
        },
        "collections": list(models.collections),
        **typical,
    }
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
