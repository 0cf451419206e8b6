"""The reference norm of an index with the metric "l2", which its first documents determine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.indexer.batches.document_encoder import DocumentEncoder
from quarry.engine.scoring.metric import typical_norm
from quarry.formats.errors import InvalidDocument

__all__ = ["column_norm", "read_reference_norm"]

_SAMPLED = 256  # documents with vectors whose norms are averaged,
_ENCODED = 16  # or documents that are encoded for that


def read_reference_norm(documents: Iterable[Document], how: DocumentEncoder) -> tuple[float, Iterator[Document]]:
    """Return the typical norm of the vectors of the first documents, 0 if there are none, and all documents.

    Args:
        documents: whose first ones are read.
        how: encodes documents without vectors.
    """
    following = iter(documents)
    first, failure = _read_first(following)
    vectors = [document.vectors for document in first if document.vectors is not None]
    if not vectors:
        for document in first[:_ENCODED]:
            with contextlib.suppress(InvalidDocument):  # raised when the document is added
                vectors.append(how.encode(document).vectors.values)
    norm = typical_norm(vectors) if vectors else 1.0
    return norm if first else 0.0, itertools.chain(first, following if failure is None else _raise(failure))


def column_norm(columns: DocumentColumns) -> float:
    """Return the typical norm of the first vectors of columns; 0 if there are none."""
    vectors = columns.vectors
    if vectors is None or not len(vectors):
        return 0.0
    return typical_norm([np.asarray(vectors[:_SAMPLED], np.float32).reshape(-1, vectors.shape[-1])])


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
