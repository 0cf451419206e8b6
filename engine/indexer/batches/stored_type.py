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
from quarry.formats.arrays import Float32Array
from quarry.formats.vectors.centroids import RoundedRows, StoredBatch

__all__ = ["choose_stored_type", "column_sample", "read_given_sample"]

_log = logging.getLogger(__name__)

_SAMPLED = 256  # vectors that are measured
_MAX_ERROR = 0.05  # of scores by rounding, as a share of their spread; int8 has about .01 for usual vectors


def read_given_sample(documents: Iterable[Document], dim: int) -> tuple[Float32Array, Iterator[Document]]:
    """Return the (n, dim) vectors that the first documents came with, and all documents."""
    following = iter(documents)
    first, failure = _read_first(following)
    found = [each.vectors for each in first if each.vectors is not None and each.vectors.shape[1] == dim]
    vectors = np.concatenate([np.empty((0, dim), np.float32), *found])[:_SAMPLED]
    return vectors, itertools.chain(first, following if failure is None else _raise(failure))


def choose_stored_type(metric: Metric, vectors: Float32Array) -> str:
    """Return the type that vectors like these are stored as instead of int8, if that would lose their order.

    The error of their scores by rounding is compared with the spread of these scores. Vectors with a large common
    offset have scores that hardly differ.

    Args:
        metric: of the index, whose reference norm is known.
        vectors: (n, dim) float32.
    """
    if metric.stored_as != "int8" or _rounding_error(metric, vectors, "int8") <= _MAX_ERROR:
        return metric.stored_as
    if _rounding_error(metric, vectors, "float16") <= _MAX_ERROR:
        _log.warning("vectors are stored as float16, because the differences of their scores are lost in int8")
    else:
        message = "the scores of vectors differ by less than float16 can store; subtract the mean of all vectors"
        _log.warning("%s from them and from queries, or the order of hits is not precise", message)
    return "float16"


def _rounding_error(metric: Metric, vectors: Float32Array, kind: str) -> float:
    """Return the deviation of scores by rounding, as a share of the deviation of scores; 0 if all are equal."""
    rows = replace(metric, stored_as=kind).rows(vectors)
    rounded = RoundedRows.of(rows, kind)
    queries = metric.queries(vectors).astype(np.float64)
    scores = queries @ rows.T
    errors = queries @ StoredBatch(rounded.values, rounded.scales)[:].T - scores
    error, spread = (
        errors.std(axis=1).mean() if len(rows) else 0.0,
        scores.std(axis=1).mean() if len(rows) else 0.0,
    )
    return float(error / spread) if spread > 0 else 0.0


def column_sample(columns: DocumentColumns, dim: int) -> Float32Array:
    """Return the first (n, dim) vectors of columns."""
    vectors = columns.vectors
    if vectors is None or vectors.shape[-1] != dim:
        return np.empty((0, dim), np.float32)
    return np.asarray(vectors[:_SAMPLED], np.float32).reshape(-1, dim)[:_SAMPLED]


def _read_first(documents: Iterator[Document]) -> tuple[list[Document], Exception | None]:
    """Return the first documents, and the error that reading the next one raised."""
    first: list[Document] = []
    try:
        for document in itertools.islice(documents, _SAMPLED):
            first.append(document)  # noqa: PERF402  # those before an error are kept
    except Exception as error:  # raised when the document is added
        return first, error
    return first, None


def _raise(failure: Exception) -> Iterator[Document]:
    yield from ()
    raise failure
