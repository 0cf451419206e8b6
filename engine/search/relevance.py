"""Relevance: the probability that a document answers a query, comparable between queries.

It is a logistic model in the encoder's bundle (`quarry.formats.bundle.relevance`), fitted on judged queries and on
queries of other collections. Scores of hits cannot tell whether any document answers a query, because fused scores
are relative to the candidates of the query, and BM25 scores to the length and rarity of its words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.scoring.query_vectors import Vectors
from quarry.engine.search.background import BackgroundSample
from quarry.formats.bundle.relevance import LogisticModel, RelevanceModels
from quarry.formats.errors import InvalidSetting

__all__ = ["CalibratedEncoder", "QueryRelevance", "RelevanceEstimator"]

Floats = npt.NDArray[np.float32]


@runtime_checkable
class CalibratedEncoder(Protocol):
    """An encoder with a calibration.

    Attributes:
        relevance: the calibration, or None.
    """

    @property
    def relevance(self) -> RelevanceModels | None: ...  # noqa: D102


class QueryRelevance(NamedTuple):
    """The model of one search, prepared for one query.

    Attributes:
        model: the model.
        spread: standard deviation of the query's scores with random documents.
    """

    model: LogisticModel
    spread: float

    def estimate(self, dense: Floats | None, shares: Floats | None, n: int) -> Floats:
        """Return the relevance of n documents, from 0 to 1.

        Args:
            dense: (n,) dense scores; None if not computed.
            shares: (n,) shares of the query's information that the documents have; None if not computed.
            n: number of documents.
        """
        weights = self.model.weights
        odds = np.full(n, self.model.intercept + weights.get("spread", 0.0) * self.spread)
        if dense is not None:
            odds += weights.get("dense", 0.0) * dense.astype(np.float64)
        if shares is not None:
            odds += weights.get("share", 0.0) * shares
        with np.errstate(over="ignore"):  # of exp, for odds near 0
            estimated: Floats = (1 / (1 + np.exp(-odds))).astype(np.float32)
        return estimated


class RelevanceEstimator:
    """Prepares the estimation of relevance for the searches of one generation; thread-safe.

    Args:
        encoder: encoder of queries.
        identity: identity of the encoder that the index was built with.
        sample: reads the background of the collection, when it is first needed.
    """

    def __init__(self, encoder: Encoder, identity: str, sample: Callable[[], BackgroundSample]) -> None:
        self._encoder = encoder
        self._identity = identity
        self._read_sample = sample

    def model(self, mode: str) -> LogisticModel | None:
        """Return the model for the searches of a mode; None if the encoder has none, or is not the index's."""
        if mode != "lexical" and self._encoder.identity != self._identity:
            return None
        return self._models.get(mode)

    def require(self, mode: str) -> None:
        """Raise unless relevance can be estimated in a mode.

        Raises:
            InvalidSetting: it cannot.
        """
        if self.model(mode) is None:
            raise InvalidSetting(
                f"relevance cannot be estimated in {mode} mode: the encoder has no calibration for it",
                expected="search without min_relevance, or an encoder with a calibration",
                actual=self._encoder.name,
            )

    def prepare(self, mode: str, vector: Vectors | None) -> QueryRelevance | None:
        """Prepare the model of a mode for a query; None without a calibration."""
        model = self.model(mode)
        if model is None:
            return None
        return QueryRelevance(model, 0.0 if vector is None else self._sample.spread(vector))

    @cached_property
    def _models(self) -> Mapping[str, LogisticModel]:
        models = self._encoder.relevance if isinstance(self._encoder, CalibratedEncoder) else None
        return {} if models is None else models.models

    @cached_property
    def _sample(self) -> BackgroundSample:
        return self._read_sample()
