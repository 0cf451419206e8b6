"""Builds an index from the stored vectors of another one, with other settings; nothing is encoded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.batches.document_encoder import EncodedDocument
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_builder import SegmentBuilder
from quarry.engine.representation.base import DocumentVectors
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import IndexSettings
from quarry.formats.snapshot import Snapshot

__all__ = ["recode_index"]


def recode_index(
    source: Snapshot,
    folder: Path,
    settings: IndexSettings,
    n_docs: int | None = None,
    thresholds: Thresholds | None = None,
    encoder: Encoder | None = None,
    texts: Mapping[str, str] | None = None,
) -> Snapshot:
    """Build an index of the first documents of the first segment: ids and dequantized vectors, without postings.

    Args:
        source: the index with the vectors.
        folder: an empty folder.
        settings: of the new index.
        n_docs: number of documents; None: all.
        thresholds: from which size on there are inverted lists; None: the defaults.
        encoder: calibrates searches with texts as queries, as in an index built from documents; None: searches are
            calibrated with rows.
        texts: by id, of the documents; needed if there is an encoder.
    """
    segment = source.segments[0]
    vectors, table = StoredVectors(segment), segment.reader.centroids
    builder = SegmentBuilder(Directory(folder), ListPlan(settings, 2, thresholds or Thresholds(), encoder))
    for doc in range(segment.record.n_docs if n_docs is None else n_docs):
        rows, _ = table.rows_of(np.array([doc]))
        values = DocumentVectors(vectors.vectors(rows), tuple(() for _ in rows))
        name = segment.reader.ids[doc]
        encoded = EncodedDocument(Document(name, texts[name] if texts else "text"), values, [], 0)
        builder.add(EncodedBatch.of([encoded], Metric.of_settings(settings)))
    built = builder.finish(None)
    builder.close()
    assert built is not None
    quantizers = (built.quantizer,) if built.quantizer else ()
    following = source.manifest.next((built.record,), quantizers)
    replace(following, settings=settings).commit(Directory(folder))
    return Snapshot(Directory(folder))
