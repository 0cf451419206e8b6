"""What the first documents determine: whether int8 is precise enough for the differences of their vectors."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.scoring.metric import Metric
from quarry.formats.arrays import Float32Array, Float64Array
from quarry.formats.vectors.centroids import RoundedRows, StoredBatch

__all__ = ["N_SAMPLED", "choose_storage", "column_sample", "read_given_sample"]

_log = logging.getLogger(__name__)

N_SAMPLED = 256
"""Vectors that are measured."""

_MAX_ERROR = 0.05  # of scores by rounding, as a share of their spread; int8 has about .01 for usual vectors


def read_given_sample(documents: Iterable[Document], dim: int) -> tuple[Float32Array, Iterator[Document]]:
    """Return the (n, dim) vectors that the first documents came with, and all documents."""
    following = iter(documents)
    first, failure = _read_first(following)
    given = [each.vectors for each in first if each.vectors is not None and each.vectors.shape[1] == dim]
    vectors = np.concatenate([np.empty((0, dim), np.float32), *given])[:N_SAMPLED]
    return vectors, itertools.chain(first, following if failure is None else _raise(failure))


def choose_storage(metric: Metric, vectors: Float32Array) -> Metric:
    """Return the metric with which vectors like these are stored precisely enough to keep the order of hits.

    The error of their scores by rounding is compared with the spread of these scores. Vectors with a large common
    offset have scores that hardly differ. They are stored as float16 instead of int8, and if that is too coarse,
    too, their mean is subtracted.

    Args:
        metric: the metric of the index.
        vectors: (n, dim) float32.
    """
    kind = "int8" if metric.stored_as == "none" else metric.stored_as
    if _rounding_error(metric, vectors, kind) <= _MAX_ERROR:
        return metric
    if metric.stored_as == "int8":
        metric = replace(metric, stored_as="float16")
        if _rounding_error(metric, vectors, "float16") <= _MAX_ERROR:
            _log.info("vectors are stored as float16, because the differences of their scores are lost in int8")
            return metric
    _log.info("the mean of the first vectors is subtracted, because the differences of scores are lost otherwise")
    return replace(metric, mean=metric.exact(vectors).mean(axis=0).astype(np.float32))


def _rounding_error(metric: Metric, vectors: Float32Array, kind: str) -> float:
    """Return the deviation of scores by rounding, as a share of the deviation of scores; 0 if all are equal."""
    if not len(vectors):
        return 0.0
    rounded, exact = RoundedRows.of(metric.rows(vectors), kind), metric.exact(vectors)
    stored = StoredBatch(rounded.values, rounded.scales)[:][:, : metric.dim].astype(np.float64)
    scores = _scores(metric, exact, exact)
    error, spread = (each.std(axis=1).mean() for each in (_scores(metric, exact, stored) - scores, scores))
    return float(error / spread) if spread > 0 else 0.0


def _scores(metric: Metric, queries: Float64Array, vectors: Float64Array) -> Float64Array:
    """Return (n, m) scores of (m, dim) vectors for (n, dim) queries, up to a constant for each query."""
    halves = np.einsum("ij,ij->i", vectors, vectors) / 2 if metric.name == "l2" else 0
    return queries @ vectors.T - halves


def column_sample(columns: DocumentColumns, dim: int) -> Float32Array:
    """Return the first (n, dim) vectors of columns."""
    vectors = columns.vectors
    if vectors is None or vectors.shape[-1] != dim:
        return np.empty((0, dim), np.float32)
    return np.asarray(vectors[:N_SAMPLED], np.float32).reshape(-1, dim)[:N_SAMPLED]


def _read_first(documents: Iterator[Document]) -> tuple[list[Document], Exception | None]:
    """Return the first documents, and the error that reading the next one raised."""
    first: list[Document] = []
    try:
        for document in itertools.islice(documents, N_SAMPLED):
            first.append(document)  # noqa: PERF402  # those before an error are kept
    except Exception as error:  # raised when the document is added
        return first, error
    return first, None


def _raise(failure: Exception) -> Iterator[Document]:
    yield from ()
    raise failure
