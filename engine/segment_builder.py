"""Encoded documents to one segment file: the vectors are stored, coded and put into inverted lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.document_encoder import EncodedDocument
from engine.quantizer_training import (
    MIN_TRAINING_ROWS,
    VectorCoder,
    n_training_rows,
    nlist_for,
    train_quantizer,
)
from formats.directory import Directory
from formats.doc_store import StoredDocument
from formats.envelope import FileRecord
from formats.inverted_lists import InvertedListsWriter
from formats.manifest import IndexSettings, SegmentRecord
from formats.quantizer import Quantizer, write_quantizer
from formats.segment import SegmentWriter
from formats.spans import pack_spans
from formats.tombstones import write_tombstones

__all__ = ["IVF_ROWS", "BuiltSegment", "SegmentBuilder"]

IVF_ROWS = 20_000  # from here on lists answer in half the time of a scan (bench/results/ivf_switch.jsonl)


@dataclass(frozen=True)
class BuiltSegment:
    """A finished segment.

    Attributes:
        record: for the manifest.
        quantizer: record of the quantizer file that was written for it, if a new one was.
        n_replaced: documents in it that a later document of the same id replaces.
    """

    record: SegmentRecord
    quantizer: FileRecord | None
    n_replaced: int


class SegmentBuilder:
    """Takes documents until `finish`; memory stays bounded, the rest waits in temporary files.

    Args:
        directory: of the index.
        settings: of the index.
        threads: for training and coding.
    """

    def __init__(self, directory: Directory, settings: IndexSettings, threads: int) -> None:
        self._directory = directory
        self._settings = settings
        self._threads = threads
        stored = "int8" if settings.centroids == "none" else settings.centroids
        self._writer = SegmentWriter(directory, settings.dim, stored)
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._writer)

    @property
    def n_rows(self) -> int:
        """Centroids taken so far."""
        return self._writer.centroids.n_rows

    def add(self, encoded: EncodedDocument) -> None:
        """Append a document."""
        document = encoded.document
        spans = pack_spans(encoded.vectors.spans)
        stored = StoredDocument(document.title, document.text, document.metadata, spans)
        self._writer.add(document.id, stored, encoded.vectors.values, encoded.terms)

    def delete(self, doc_id: str) -> bool:
        """Delete the document of that id among those taken so far; whether there was one."""
        ordinals = set(self._writer.ids.ordinals_of(doc_id)) - self._dead
        self._dead |= ordinals
        return bool(ordinals)

    def finish(self, existing: tuple[Quantizer, FileRecord] | None) -> BuiltSegment | None:
        """Write the segment; None where nothing live is in it.

        Args:
            existing: the quantizer the index has, with its file; where there is none and the segment is large
                enough, one is trained on it.
        """
        dead = np.zeros(len(self), bool)
        dead[list(self._dead)] = True
        superseded = self._writer.ids.superseded()
        n_replaced = int(np.count_nonzero(~dead[superseded]))
        dead[superseded] = True
        if dead.all():
            return None
        quantizer, record, written = self._quantizer(existing)
        file = self._write(quantizer)
        return BuiltSegment(
            SegmentRecord(
                file=file,
                tombstones=self._tombstones(file.file_id, dead),
                quantizer=record.name if record else "",
                n_docs=len(self),
                n_deleted=int(np.count_nonzero(dead)),
            ),
            quantizer=written,
            n_replaced=n_replaced,
        )

    def close(self) -> None:
        """Drop what was taken and not finished, and all temporary files."""
        self._writer.close()

    def _quantizer(
        self, existing: tuple[Quantizer, FileRecord] | None
    ) -> tuple[Quantizer | None, FileRecord | None, FileRecord | None]:
        """The quantizer to code with, its file, and that file again if it is new."""
        codes_only = self._settings.centroids == "none"
        enough = self.n_rows >= (MIN_TRAINING_ROWS if codes_only else IVF_ROWS)
        if not self._settings.code_bytes or not (enough or (existing and codes_only)):
            return None, None, None
        if existing:
            return existing[0], existing[1], None
        quantizer = self._train()
        record = write_quantizer(self._directory, quantizer)
        return quantizer, record, record

    def _train(self) -> Quantizer:
        n_sample = n_training_rows(self.n_rows, self._settings.dim)
        generator = np.random.default_rng(self._settings.seed)
        # one row out of each of n_sample equal stretches: memory does not grow with the rows
        places = (np.arange(n_sample) + generator.random(n_sample)) * (self.n_rows / n_sample)
        chosen = np.minimum(places.astype(np.int64), self.n_rows - 1)
        sample = np.empty((n_sample, self._settings.dim), np.float32)
        start = seen = 0
        for batch in self._writer.centroids.batches():
            stop = int(np.searchsorted(chosen, seen + len(batch)))
            sample[start:stop] = batch[chosen[start:stop] - seen]
            start, seen = stop, seen + len(batch)
        return train_quantizer(
            sample, nlist_for(self.n_rows), self._settings.code_bytes, self._settings.seed, self._threads
        )

    def _write(self, quantizer: Quantizer | None) -> FileRecord:
        if quantizer is None:
            return self._writer.finish(None, 0, 0, keep_centroids=True)
        lists = InvertedListsWriter(self._directory, quantizer.nlist, quantizer.code_bytes)
        try:
            coder = VectorCoder(quantizer, self._threads)
            for batch in self._writer.centroids.batches():
                lists.add(*coder.code(batch))
            keep = self._settings.centroids != "none"
            return self._writer.finish(lists, quantizer.nlist, quantizer.code_bytes, keep_centroids=keep)
        finally:
            lists.close()

    def _tombstones(self, segment_id: bytes, dead: npt.NDArray[np.bool_]) -> FileRecord | None:
        return write_tombstones(self._directory, segment_id, dead) if dead.any() else None
