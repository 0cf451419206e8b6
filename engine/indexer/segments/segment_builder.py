"""Writes encoded documents to one segment file: vectors are stored, encoded and put into inverted lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.segments.new_quantizer import ListPlan, TrainingRows
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.query_sample import QuerySample
from quarry.formats.container.background import StartWork, work_at_once
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.documents.store import KnownDictionary, StoredDocument
from quarry.formats.manifest import SegmentRecord
from quarry.formats.segment import SegmentWriter
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.centroids import RoundedRows
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer

__all__ = ["BuiltSegment", "SegmentBuilder"]


@dataclass(frozen=True)
class BuiltSegment:
    """A finished segment.

    Attributes:
        record: for the manifest.
        quantizer: record of the quantizer of its codes, new or not; None if it has none.
        n_replaced: documents in it that a later document with the same id replaces.
    """

    record: SegmentRecord
    quantizer: FileRecord | None
    n_replaced: int


class SegmentBuilder:
    """Collects documents until `finish`; `spill` bounds memory by temporary files.

    Args:
        directory: the folder of the index.
        plan: decides whether the segment has inverted lists.
        known: gives dictionaries of other texts of the index; see `quarry.formats.documents.store.DocStoreWriter`.
        start: starts work that other threads may do; see `quarry.formats.segment.SegmentWriter`.
    """

    def __init__(
        self,
        directory: Directory,
        plan: ListPlan,
        known: KnownDictionary = lambda _: b"",
        start: StartWork = work_at_once,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._queries = QuerySample(plan.settings.seed)
        stored = plan.settings.centroids
        if stored == "none":  # until the rows are encoded, or permanently if they are too few to train a quantizer
            stored = "int8" if plan.trained is None else "float16"
        self._writer = SegmentWriter(directory, plan.settings.dim, stored, known, start)
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._writer)

    @property
    def n_rows(self) -> int:
        """Number of centroids collected so far."""
        return self._writer.centroids.n_rows

    @property
    def training_rows(self) -> TrainingRows:
        """The centroids collected so far, to train a quantizer on."""
        rows = self._writer.centroids
        return TrainingRows(
            self._writer.passages.n_passages,
            self.n_rows,
            rows.stored_batches,
            rows.owned_batches,
            lambda: self._queries.texts,
        )

    def add(self, batch: Batch) -> None:
        """Append documents."""
        kind, rows = self._writer.centroids.kind, batch.rounded
        if rows is None or rows.values.dtype != kind:
            rows = RoundedRows.of(batch.vectors, kind)
        self._writer.add_many(batch.ids, _stored_documents(batch), rows, batch.counts, batch.terms, batch.passages)
        if self._plan.encoder is not None:  # nothing else encodes queries
            self._queries.add_many(batch.titles, batch.texts)

    def __contains__(self, doc_id: str) -> bool:
        """Return whether a live document with that id was collected."""
        return bool(set(self._writer.ids.ordinals_of(doc_id)) - self._dead)

    def spill(self) -> None:
        """Write buffered documents to temporary files; see `quarry.formats.segment.SegmentWriter.spill`."""
        self._writer.spill()

    def delete(self, doc_id: str) -> bool:
        """Delete the document with that id among those collected so far; return whether there was one."""
        ordinals = set(self._writer.ids.ordinals_of(doc_id)) - self._dead
        self._dead |= ordinals
        return bool(ordinals)

    def live_documents(self) -> Iterator[tuple[str, StoredDocument]]:
        """Yield the documents collected so far that are neither deleted nor replaced: id and content."""
        dead = self._dead.union(self._writer.ids.find_superseded().tolist())
        for ordinal, stored in enumerate(self._writer.documents.documents()):
            if ordinal not in dead:
                yield self._writer.ids[ordinal], stored

    def finish(self, existing: StoredQuantizer | None) -> BuiltSegment | None:
        """Write the segment, and return it, or None if no document is live; after an error it can be tried again.

        Args:
            existing: quantizer of the index; None: the encoder's is used, or if it has none and the segment is
                large enough, one is trained on it.
        """
        dead = np.zeros(len(self), bool)
        dead[list(self._dead)] = True
        superseded = self._writer.ids.find_superseded()
        n_replaced = int(np.count_nonzero(~dead[superseded]))
        dead[superseded] = True
        if dead.all():
            return None
        chosen = self._plan.choose(self._directory, existing, self.n_rows, lambda: self.training_rows)
        file = self._write(chosen.quantizer if chosen else None)
        try:
            tombstones = write_tombstones(self._directory, file.file_id, dead) if dead.any() else None
        except BaseException:
            self._directory.delete(file.name)
            raise
        return BuiltSegment(
            SegmentRecord(
                file=file,
                tombstones=tombstones,
                quantizer=chosen.record.name if chosen else "",
                n_docs=len(self),
                n_deleted=int(np.count_nonzero(dead)),
            ),
            quantizer=chosen.record if chosen else None,
            n_replaced=n_replaced,
        )

    def finish_without_lists(self) -> FileRecord:
        """Write the segment, of at least one document, with its centroids only; documents that are replaced stay.

        Such a segment is a part of one that is made later, see
        `quarry.engine.indexer.segments.adopted_segments.AdoptedSegments`.
        """
        return self._write(None)

    def close(self) -> None:
        """Discard the documents, and delete all temporary files."""
        self._writer.close()

    def _write(self, quantizer: Quantizer | None) -> FileRecord:
        if quantizer is None:
            return self._writer.finish(None, 0, 0, keep_centroids=True)
        lists = InvertedListsWriter(self._directory, quantizer.nlist, quantizer.code_bytes)
        try:
            coder = VectorCoder(quantizer, self._plan.threads)
            coder.code_all(self._writer.centroids.batches(), lists.add)
            keep = self._plan.settings.centroids != "none"
            fit = coder.fit(lists.sizes())
            return self._writer.finish(lists, quantizer.nlist, quantizer.code_bytes, keep_centroids=keep, fit=fit)
        finally:
            lists.close()


def _stored_documents(batch: Batch) -> list[StoredDocument]:
    """Return what is stored of documents; documents in a row without content of their own are one object."""
    stored: list[StoredDocument] = []
    last: tuple[object, ...] = (None, None, None, None)
    for title, text, metadata, spans in zip(batch.titles, batch.texts, batch.metadata, batch.spans, strict=True):
        if text is last[1] and spans is last[3] and metadata is last[2] and title is last[0]:
            stored.append(stored[-1])
            continue
        stored.append(StoredDocument(title, text, metadata, spans))
        last = title, text, metadata, spans
    return stored
