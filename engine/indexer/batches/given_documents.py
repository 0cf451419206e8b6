"""Documents that come with their vectors, to batches: their vectors are checked together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.scoring.metric import Metric
from quarry.formats.documents.spans import pack_spans
from quarry.formats.errors import InvalidDocument

__all__ = ["MAX_VALUE", "GivenDocumentEncoder"]

MAX_VALUE = 65504
"""Largest magnitude of a stored number: that of float16, one of the types that vectors are stored as."""


class GivenDocumentEncoder:
    """Makes batches of documents that come with vectors; safe to use from several threads.

    Args:
        analyzer: splits texts into terms.
        metric: of the index.
    """

    def __init__(self, analyzer: Analyzer, metric: Metric) -> None:
        self._analyzer = analyzer
        self._metric = metric

    def encode(self, documents: Sequence[Document]) -> Sequence[EncodedBatch | InvalidDocument]:
        """Return documents as batches, with the errors of those that cannot be stored in their places."""
        found: list[EncodedBatch | InvalidDocument] = []
        errors = self._find_wrong_dims(documents)
        right = [document for place, document in enumerate(documents) if place not in errors]
        rows, counts = self._rows(right)
        if not _are_usable(rows, self._metric):
            places = [place for place in range(len(documents)) if place not in errors]
            errors |= self._find_unusable(places, right, rows, counts)
            right = [document for place, document in enumerate(documents) if place not in errors]
            rows, counts = self._rows(right)
        batch = EncodedBatch.of_documents(
            right,
            rows,
            counts,
            [pack_spans([(span,) if span[1] else () for span in document.spans]) for document in right],
            [self._analyzer.terms(document.full_text) for document in right],
        )
        if not errors:
            return [batch]
        start = 0
        for n_before, place in enumerate(sorted(errors)):
            if place - n_before > start:
                found.append(batch.select(range(start, place - n_before)))
            start = place - n_before
            found.append(errors[place])
        if start < len(right):
            found.append(batch.select(range(start, len(right))))
        return found

    def _rows(self, documents: Sequence[Document]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return the rows to be stored, (n_rows, stored_dim) float32, and how many each document has."""
        vectors = [document.vectors for document in documents if document.vectors is not None]
        joined = np.concatenate(vectors) if vectors else np.empty((0, self._metric.dim), np.float32)
        return self._metric.rows(joined), np.array([len(each) for each in vectors], np.int64)

    def _find_wrong_dims(self, documents: Sequence[Document]) -> dict[int, InvalidDocument]:
        dim = self._metric.dim
        return {
            place: _error(document, "has the wrong shape", f"(n, {dim})", document.vectors.shape)
            for place, document in enumerate(documents)
            if document.vectors is not None and document.vectors.shape[1] != dim
        }

    def _find_unusable(
        self,
        places: Sequence[int],
        documents: Sequence[Document],
        rows: npt.NDArray[np.float32],
        counts: npt.NDArray[np.int64],
    ) -> dict[int, InvalidDocument]:
        errors: dict[int, InvalidDocument] = {}
        starts = (np.cumsum(counts) - counts).tolist()
        for place, document, start, count in zip(places, documents, starts, counts.tolist(), strict=True):
            own = rows[start : start + count]
            if not _are_bounded(own):
                expected = f"numbers up to {MAX_VALUE} as stored"
                errors[place] = _error(document, "has numbers that are too large", expected, _largest(own))
            elif self._metric.name == "cosine" and not own.any(axis=1).all():
                row = int((~own.any(axis=1)).argmax())
                errors[place] = _error(
                    document, f"has a vector of zeros, row {row}", "a direction, for the metric cosine", None
                )
        return errors


def _are_usable(rows: npt.NDArray[np.float32], metric: Metric) -> bool:
    return _are_bounded(rows) and (metric.name != "cosine" or bool(rows.any(axis=1).all()))


def _are_bounded(rows: npt.NDArray[np.float32]) -> bool:
    return not rows.size or bool(max(rows.max(), -rows.min()) <= MAX_VALUE)  # false for NaN


def _largest(rows: npt.NDArray[np.float32]) -> float:
    return float(np.abs(rows).max())


def _error(document: Document, problem: str, expected: str, actual: object) -> InvalidDocument:
    name = document.origin or f"document {document.id!r}"
    return InvalidDocument(f"{name}: field 'vectors' {problem}", expected=expected, actual=actual)
