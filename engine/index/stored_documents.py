"""Documents of an index as users get them back, with their vectors if requested."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["stored_documents"]


def stored_documents(
    snapshot: Snapshot, ids: Iterable[str], metric: Metric, *, with_vectors: bool
) -> list[Document]:
    """Return the documents with these ids, in their order; ids that no document has are ignored.

    Raises:
        FormatError: a document is damaged.
    """
    places = ((doc_id, snapshot.find(doc_id)) for doc_id in ids)
    return [_read(doc_id, *place, metric, with_vectors=with_vectors) for doc_id, place in places if place]


def _read(doc_id: str, segment: OpenSegment, ordinal: int, metric: Metric, *, with_vectors: bool) -> Document:
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
