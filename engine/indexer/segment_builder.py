"""Encoded documents to one segment file: the vectors are stored, coded and put into inverted lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quarry.engine.indexer.document_encoder import EncodedDocument
from quarry.engine.quantization.training import MIN_TRAINING_ROWS, VectorCoder, train_on
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.documents.spans import pack_spans
from quarry.formats.documents.store import KnownDictionary, StoredDocument
from quarry.formats.manifest import IndexSettings, SegmentRecord
from quarry.formats.segment import SegmentWriter
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer, write_quantizer

__all__ = ["IVF_ROWS", "BuiltSegment", "SegmentBuilder", "wants_lists"]

IVF_ROWS = 20_000  # from here on lists answer in half the time of a scan (bench/results/ivf_switch.jsonl)


def wants_lists(settings: IndexSettings, n_rows: int, has_quantizer: bool) -> bool:
    """Whether a segment of `n_rows` centroids has inverted lists, in an index with or without a quantizer."""
    if not settings.code_bytes:
        return False
    if settings.centroids == "none":
        return has_quantizer or n_rows >= MIN_TRAINING_ROWS
    return n_rows >= IVF_ROWS


@dataclass(frozen=True)
class BuiltSegment:
    """A finished segment.

    Attributes:
        record: for the manifest.
        quantizer: record of the quantizer of its codes, new or not; None where it has none.
        n_replaced: documents in it that a later document of the same id replaces.
    """

    record: SegmentRecord
    quantizer: FileRecord | None
    n_replaced: int


class SegmentBuilder:
    """Takes documents until `finish`; memory stays bounded by `settle`, the rest waits in temporary files.

    Args:
        directory: of the index.
        settings: of the index.
        threads: for training and coding.
        known: gives dictionaries of other texts of the index; see `quarry.formats.documents.store.DocStoreWriter`.
    """

    def __init__(
        self,
        directory: Directory,
        settings: IndexSettings,
        threads: int,
        known: KnownDictionary = lambda _: b"",
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._threads = threads
        stored = "int8" if settings.centroids == "none" else settings.centroids
        self._writer = SegmentWriter(directory, settings.dim, stored, known)
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._writer)

    @property
    def n_rows(self) -> int:
        """Centroids taken so far."""
        return self._writer.centroids.n_rows

    def centroid_batches(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the centroids taken so far, (n, dim) float32 each."""
        return self._writer.centroids.batches()

    def add(self, encoded: EncodedDocument) -> None:
        """Append a document."""
        document = encoded.document
        spans = pack_spans(encoded.vectors.spans)
        stored = StoredDocument(document.title, document.text, document.metadata, spans)
        self._writer.add(document.id, stored, encoded.vectors.values, encoded.terms)

    def settle(self) -> None:
        """Move documents out of memory; see `quarry.formats.segment.SegmentWriter.settle`."""
        self._writer.spill()

    def delete(self, doc_id: str) -> bool:
        """Delete the document of that id among those taken so far; whether there was one."""
        ordinals = set(self._writer.ids.ordinals_of(doc_id)) - self._dead
        self._dead |= ordinals
        return bool(ordinals)

    def finish(self, existing: StoredQuantizer | None) -> BuiltSegment | None:
        """Write the segment; None where nothing live is in it. Where that fails it can be tried again.

        Args:
            existing: the quantizer the index has; where there is none and the segment is large
                enough, one is trained on it.
        """
        dead = np.zeros(len(self), bool)
        dead[list(self._dead)] = True
        superseded = self._writer.ids.find_superseded()
        n_replaced = int(np.count_nonzero(~dead[superseded]))
        dead[superseded] = True
        if dead.all():
            return None
        chosen = self._quantizer(existing)
        file = self._write(chosen.quantizer if chosen else None)
        try:
            tombstones = self._tombstones(file.file_id, dead)
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

    def close(self) -> None:
        """Drop what was taken and not finished, and all temporary files."""
        self._writer.close()

    def _quantizer(self, existing: StoredQuantizer | None) -> StoredQuantizer | None:
        """The quantizer to code with; its file is written if it is new."""
        if not wants_lists(self._settings, self.n_rows, existing is not None):
            return None
        if existing:
            return existing
        trained = train_on(self._writer.centroids.batches(), self.n_rows, self._settings, self._threads)
        return StoredQuantizer(trained, write_quantizer(self._directory, trained))

    def _write(self, quantizer: Quantizer | None) -> FileRecord:
        if quantizer is None:
            return self._writer.finish(None, 0, 0, keep_centroids=True)
        lists = InvertedListsWriter(self._directory, quantizer.nlist, quantizer.code_bytes)
        try:
            coder = VectorCoder(quantizer, self._threads)
            for batch in self._writer.centroids.batches():
                lists.add(*coder.code(batch))
            keep = self._settings.centroids != "none"
            fit = coder.fit(lists.sizes())
            return self._writer.finish(lists, quantizer.nlist, quantizer.code_bytes, keep_centroids=keep, fit=fit)
        finally:
            lists.close()

    def _tombstones(self, segment_id: bytes, dead: npt.NDArray[np.bool_]) -> FileRecord | None:
        return write_tombstones(self._directory, segment_id, dead) if dead.any() else None
