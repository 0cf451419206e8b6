"""Documents that come with their vectors, to batches: their vectors are checked together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.scoring.metric import Metric
from quarry.formats.arrays import Float32Array
from quarry.formats.documents.spans import pack_spans
from quarry.formats.errors import InvalidDocument

__all__ = ["MAX_VALUE", "GivenDocumentEncoder"]

MAX_VALUE = 65504
"""Largest magnitude of a stored number: that of float16, one of the types that vectors are stored as."""


class GivenDocumentEncoder:
    """Makes batches of documents that come with vectors; safe to use from several threads."""

    def __init__(self, analyzer: Analyzer, metric: Metric) -> None:
        self._analyzer = analyzer
        self._metric = metric

    def encode(self, documents: Sequence[Document]) -> Sequence[EncodedBatch | InvalidDocument]:
        """Return documents as batches, with the errors of those that cannot be stored in their places."""
        vectors = _vectors(documents)
        if all(each.shape[1] == self._metric.dim for each in vectors):
            batch = self._batch(documents)
            is_directed = self._metric.name != "cosine" or all(each.any(axis=1).all() for each in vectors)
            if _are_bounded(batch.vectors) and is_directed:
                return [batch.round(self._metric.stored_as)]
        found: list[EncodedBatch | InvalidDocument] = []
        for error, group in groupby(documents, self._find_error):
            found.append(error or self._batch(list(group)).round(self._metric.stored_as))
        return found

    def _batch(self, documents: Sequence[Document]) -> EncodedBatch:
        vectors = _vectors(documents)
        return EncodedBatch.of_documents(
            documents,
            self._metric.rows(np.concatenate(vectors)),
            np.array([len(each) for each in vectors], np.int64),
            [pack_spans([(span,) if span[1] else () for span in document.spans]) for document in documents],
            [self._analyzer.terms(document.full_text) for document in documents],
        )

    def _find_error(self, document: Document) -> InvalidDocument | None:
        """Return why a document cannot be stored, None if it can be."""
        vectors, dim = document.vectors, self._metric.dim
        if vectors is None or vectors.shape[1] != dim:
            actual = None if vectors is None else vectors.shape
            return _error(document, "has the wrong shape", f"(n, {dim})", actual)
        rows = self._metric.rows(vectors)
        if not _are_bounded(rows):
            expected = f"numbers up to {MAX_VALUE} as stored"
            return _error(document, "has numbers that are too large", expected, float(np.abs(rows).max()))
        if self._metric.name == "cosine" and not vectors.any(axis=1).all():
            row = int((~vectors.any(axis=1)).argmax())
            return _error(
                document, f"has a vector of zeros, row {row}", "a direction, for the metric cosine", None
            )
        return None


def _vectors(documents: Sequence[Document]) -> list[Float32Array]:
    return [document.vectors for document in documents if document.vectors is not None]


def _are_bounded(rows: Float32Array) -> bool:
    return not rows.size or bool(max(rows.max(), -rows.min()) <= MAX_VALUE)  # false for NaN


def _error(document: Document, problem: str, expected: str, actual: object = None) -> InvalidDocument:
    name = document.origin or f"document {document.id!r}"
    return InvalidDocument(f"{name}: field 'vectors' {problem}", expected=expected, actual=actual)
