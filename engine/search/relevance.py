"""Relevance: the probability that a document answers a query, comparable between queries.

It is a logistic model in the encoder's bundle (`quarry.formats.bundle.relevance`), fitted on judged queries and on
queries of other collections. Scores of hits cannot tell whether any document answers a query, because fused scores
are relative to the candidates of the query, and BM25 scores to the length and rarity of its words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.scoring.query_vectors import Vectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import Float32Array, Int64Array, UInt64Array
from quarry.formats.bundle.relevance import BETWEEN_LANGUAGES, LogisticModel, RelevanceModels
from quarry.formats.errors import InvalidSetting, QuarryError
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "BackgroundSample",
    "CalibratedEncoder",
    "QueryRelevance",
    "RelevanceEstimator",
    "merge_samples",
    "sample_background",
]

_N_DOCUMENTS = 256  # in a sample
_PRIOR = 32  # documents that a typical spread counts for
_LEAST_RANGE = 9  # typical spreads; chosen with the weight of calibrated encoders (bench/README.md, "The panel")


class BackgroundSample(NamedTuple):
    """The background of a collection: vectors of random documents, to see how a query scores with them.

    The documents are those whose ids have the smallest hashes. So the sample is the same however the documents are
    divided into segments and shards, and it is read from the beginning of the sorted hashes of each segment.

    Attributes:
        hashes: (n,) uint64, hashes of the documents' ids, ascending.
        vectors: (n, dim) float32.
    """

    hashes: UInt64Array
    vectors: Float32Array

    @staticmethod
    def empty() -> BackgroundSample:
        """Return the sample of a collection without documents."""
        return BackgroundSample(np.empty(0, np.uint64), np.empty((0, 0), np.float32))

    def spread(self, query: Float32Array, typical: float | None = None) -> float:
        """Return the standard deviation of the inner products with a query; 0 without documents.

        A few documents, one of which answers the query, have a large spread, although the query is not closer than
        others to the subject of the collection.

        Args:
            query: (dim,) float32.
            typical: the spread of an average query. The variance is then as if this many more documents, `_PRIOR`,
                had it.
        """
        n = len(self.vectors)
        measured = float((self.vectors @ query).std(dtype=np.float64)) if n else 0.0
        if typical is None:
            return measured
        return math.sqrt((n * measured**2 + _PRIOR * typical**2) / (n + _PRIOR))


def sample_background(segments: Sequence[OpenSegment], searcher: Searcher) -> BackgroundSample:
    """Read the sample of some segments.

    Args:
        segments: with the documents that are deleted.
        searcher: the searcher of the same segments.

    Raises:
        FormatError: a segment is damaged.
    """
    samples = []
    for number, segment in enumerate(segments):
        hashes, docs = _first_live(segment)
        samples.append(BackgroundSample(hashes, searcher.rescorer(number).row_vectors(docs, hashes)))
    return merge_samples(samples)


def merge_samples(samples: Iterable[BackgroundSample]) -> BackgroundSample:
    """Return the sample of several parts of a collection together, given those of the parts."""
    filled = [sample for sample in samples if len(sample.hashes)]
    if not filled:
        return BackgroundSample.empty()
    hashes = np.concatenate([sample.hashes for sample in filled])
    order = np.argsort(hashes, kind="stable")[:_N_DOCUMENTS]
    return BackgroundSample(hashes[order], np.concatenate([sample.vectors for sample in filled])[order])


def _first_live(segment: OpenSegment) -> tuple[UInt64Array, Int64Array]:
    """Return hashes and ordinals of the live documents of a segment with the smallest hashes."""
    ids = segment.reader.ids
    hashes, docs = np.empty(0, np.uint64), np.empty(0, np.int64)
    for low in range(0, ids.n_docs, _N_DOCUMENTS):
        more, ordinals = ids.by_hash(low, min(low + _N_DOCUMENTS, ids.n_docs))
        if segment.deleted is not None:
            live = ~segment.deleted[ordinals]
            more, ordinals = more[live], ordinals[live]
        hashes, docs = np.append(hashes, more), np.append(docs, ordinals)
        if len(hashes) >= _N_DOCUMENTS:
            break
    return hashes[:_N_DOCUMENTS], docs[:_N_DOCUMENTS]


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
        spread: standard deviation of the query's scores with random documents, see `BackgroundSample.spread`.
        offset: what is added to dense scores.
        lexical: in hybrid mode, the model of lexical mode, for documents whose searchable fields have all words of
            the query, as encoders do not read these fields. None: no such model.
        between: the model of documents in another language than the query. None: the encoder has none.
    """

    model: LogisticModel
    spread: float
    offset: float = 0.0
    lexical: LogisticModel | None = None
    between: LogisticModel | None = None

    def estimate(self, dense: Float32Array | None, shares: Float32Array | None, n: int) -> Float32Array:
        """Return the relevance of n documents, from 0 to 1.

        Args:
            dense: (n,) dense scores; None if not computed.
            shares: (n,) shares of the query's information that the documents have; None if not computed.
            n: number of documents.
        """
        weights = self.model.weights
        odds = np.full(n, self.model.intercept + weights.get("spread", 0.0) * self.spread)
        if dense is not None:
            odds += weights.get("dense", 0.0) * (dense.astype(np.float64) + self.offset)
        if shares is not None:
            odds += weights.get("share", 0.0) * shares
        with np.errstate(over="ignore"):  # of exp, for odds near 0
            estimated: Float32Array = (1 / (1 + np.exp(-odds))).astype(np.float32)
        return estimated


class RelevanceEstimator:
    """Prepares the estimation of relevance for the searches of one generation; thread-safe.

    Args:
        open_encoder: returns the encoder of queries, when it is first needed.
        is_of_index: whether the index was built with that encoder.
        sample: reads the background of the collection, when it is first needed.
        offset: what is added to dense scores, so that they are inner products.
    """

    def __init__(
        self,
        open_encoder: Callable[[], Encoder],
        is_of_index: bool,
        sample: Callable[[], BackgroundSample],
        offset: float = 0.0,
    ) -> None:
        self._offset = offset
        self._open_encoder = open_encoder
        self._is_of_index = is_of_index
        self._read_sample = sample

    def model(self, mode: str) -> LogisticModel | None:
        """Return the model for the searches of a mode; None if the encoder has none, or is not the index's."""
        if mode != "lexical" and not self._is_of_index:
            return None
        return self._calibration.models.get(mode)

    @property
    def least_range(self) -> float:
        """The least range of dense scores in fusion, in their unit; 0 if the encoder has no typical spread."""
        typical = self._calibration.typical_spread if self._is_of_index else None
        return _LEAST_RANGE * (typical or 0.0)

    def require(self, mode: str) -> None:
        """Raise unless relevance can be estimated in a mode.

        Raises:
            InvalidSetting: it cannot.
        """
        if self.model(mode) is None:
            raise InvalidSetting(
                f"relevance cannot be estimated in {mode} mode: the encoder has no calibration for it",
                expected="search without min_relevance, or an encoder with a calibration",
                actual=None if self._encoder is None else self._encoder.name,
            )

    def prepare(self, mode: str, vector: Vectors | None) -> QueryRelevance | None:
        """Prepare the model of a mode for a query; None without a calibration."""
        model = self.model(mode)
        if model is None:
            return None
        if vector is None:
            return QueryRelevance(model, 0.0)
        spread = self._sample.spread(vector, self._calibration.typical_spread)
        lexical = self.model("lexical") if mode == "hybrid" else None
        return QueryRelevance(model, spread, self._offset, lexical, self.model(BETWEEN_LANGUAGES))

    @cached_property
    def _encoder(self) -> Encoder | None:
        """The encoder of queries; None if it is not the index's and cannot be opened, so that it is not needed."""
        try:
            return self._open_encoder()
        except QuarryError:
            if self._is_of_index:
                raise
            return None

    @cached_property
    def _calibration(self) -> RelevanceModels:
        models = self._encoder.relevance if isinstance(self._encoder, CalibratedEncoder) else None
        return RelevanceModels({}, ()) if models is None else models

    @cached_property
    def _sample(self) -> BackgroundSample:
        return self._read_sample()
