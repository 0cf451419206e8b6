"""Documents of an index as users get them back, with their vectors if requested."""

from __future__ import annotations

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.snapshot import OpenSegment

__all__ = ["stored_document"]


def stored_document(
    doc_id: str, segment: OpenSegment, ordinal: int, metric: Metric, *, with_vectors: bool
) -> Document:
    """Read a document.

    Args:
        doc_id: its id.
        segment: that it is in.
        ordinal: its number there.
        metric: of the index.
        with_vectors: whether its vectors are read too; see `Document.stored_as`.

    Raises:
        FormatError: the document is damaged.
    """
    stored = segment.reader.documents[ordinal]
    if not with_vectors:
        return Document(doc_id, stored.text, stored.title, stored.metadata)
    table = segment.reader.centroids
    rows, _ = table.rows_of(np.array([ordinal]))
    vectors = metric.vectors(StoredVectors(segment).vectors(rows))
    spans = unpack_spans(stored.spans, segment.reader.path)
    return Document(
        doc_id,
        stored.text,
        stored.title,
        stored.metadata,
        vectors=np.ascontiguousarray(vectors),
        spans=tuple((each[0][0], each[-1][1]) if each else (0, 0) for each in spans),
        stored_as="codes" if table.kind == "none" else table.kind,
    )
