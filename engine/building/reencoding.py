"""Writes all documents of an index again, in a work index in its folder, so that it can resume.

They are encoded with another encoder, or keep their vectors and are divided into passages.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from quarry.engine.building.plan import BuildPlan
from quarry.engine.choices import CentroidType
from quarry.engine.documents.document import Document
from quarry.engine.documents.file_place import heading_starts
from quarry.engine.documents.place import shown
from quarry.engine.encoding.encoder import Encoder, trained_quantizer
from quarry.engine.encoding.no_encoder import has_encoder
from quarry.engine.encoding.passages import cut_into_passages
from quarry.engine.index.partition import read_document
from quarry.engine.indexer.commits.garbage import WORK_FOLDER
from quarry.engine.indexer.commits.generation import CurrentGeneration
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.options import BuildKeywords, BuildOptions
from quarry.engine.progress import Progress, ProgressSetting
from quarry.engine.representation.base import Representation, scale_rows
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.registry import is_readable
from quarry.engine.reuse.generation_files import GenerationFiles
from quarry.engine.scoring.metric import Metric
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import Float32Array
from quarry.formats.container.directory import Directory
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.errors import FormatError, IndexClosed, IndexNotFound, InvalidDocument, InvalidSetting
from quarry.formats.manifest import EncoderRecord, IndexSettings, Manifest
from quarry.formats.snapshot import Snapshot
from quarry.formats.system_errors import system_errors

__all__ = ["Reencoding"]

_NO_LISTS = 1 << 62  # rows, which no segment has


@dataclass(frozen=True, eq=False)
class Reencoding:
    """The documents of an index, written again.

    They are collected in a work index, which is committed every `Thresholds.reencoding_s` seconds. When it is
    complete, its segments become those of the index, in one commit that changes encoder and settings too. If there
    is a work index of the same encoder, it is continued; documents that have changed since are encoded again.

    Attributes:
        writer: the writer of the index.
        directory: the folder of the index.
        encoder: the new one; that of the index if its documents keep their vectors.
        threads: for encoding, training and coding.
        thresholds: sizes from which on segments have inverted lists.
        progress: see `quarry.engine.progress`.
        keeps_vectors: whether documents are not encoded, but divided into passages; see `_divided`.
    """

    writer: IndexWriter
    directory: Directory
    encoder: Encoder
    threads: int
    thresholds: Thresholds
    progress: ProgressSetting
    keeps_vectors: bool = False

    @property
    def _path(self) -> Path:
        return self.directory.path / WORK_FOLDER

    @property
    def _representation(self) -> Representation:
        """The representation of the index so far."""
        return self.writer.document_encoder.representation

    def run(self) -> int:
        """Write the documents and commit; return the generation.

        Nothing is done if the encoder is the same one, or if documents with their vectors are divided already.

        Raises:
            InvalidSetting: changes are not committed, the encoder does not fit the settings of the index, or its
                vectors cannot be divided.
            InvalidDocument: a document has no text, or the encoder has no vector for it.
            QuarryError: as `IndexWriter.add` and `commit` raise it; the index is unchanged.
        """
        while True:
            (snapshot,) = self.writer.snapshots()
            try:
                before = snapshot.manifest
                is_done = before.settings.passages is not None
                if is_done if self.keeps_vectors else _is_same(before.encoder, self.encoder):
                    return before.generation
                if self.keeps_vectors:
                    _check_divisible(snapshot)
                    settings = replace(before.settings, passages=BuildOptions().passages)
                else:
                    settings = _new_settings(before, self.encoder, self._representation)
                self._encode(snapshot, settings)
            finally:
                snapshot.close()
            with GenerationFiles(Directory(self._path)) as files:
                committed = _Replacement(self.directory, before, files)
                generation = self.writer.rewrite(committed.compose, self.encoder)
            if committed.is_made:
                shutil.rmtree(self._path, ignore_errors=True)
                return generation

    def _encode(self, snapshot: Snapshot, settings: IndexSettings) -> None:
        """Make the documents of the work index those of a snapshot."""
        directory = self._work_directory(settings)
        collecting = replace(self.thresholds, list_rows=_NO_LISTS, training_rows=_NO_LISTS)
        fresh = settings if _manifest_of(directory) is None else None
        open_writer = partial(
            IndexWriter, directory, self.encoder, self.threads, representation=self._representation
        )
        with closing(open_writer(fresh=fresh, thresholds=collecting, merges=True)) as work:
            self._update(work, snapshot)
        finishing = open_writer(thresholds=self.thresholds)
        with closing(finishing), closing(finishing.snapshots()[0]) as collected:
            kinds = {segment.reader.centroids.kind for segment in collected.segments}
            if kinds:  # a quantizer is trained on all documents, not on those of the first commit
                finishing.merge(retrain="none" not in kinds)

    def _work_directory(self, settings: IndexSettings) -> Directory:
        """Return the folder of the work index; one of another encoder, or that cannot be read, is deleted."""
        if self._path.is_dir():
            existing = _manifest_of(Directory(self._path))
            if existing is None or existing.settings != settings or not _is_same(existing.encoder, self.encoder):
                shutil.rmtree(self._path, ignore_errors=True)
        with system_errors("made", self._path):
            self._path.mkdir(exist_ok=True)
        return Directory(self._path, limits=self.thresholds.writing)

    def _update(self, work: IndexWriter, snapshot: Snapshot) -> None:
        """Add what the work index lacks, delete what the index has no more, and commit from time to time."""
        (done,) = work.snapshots()
        try:
            work.delete(doc_id for document in _documents(done) if snapshot.find(doc_id := document.id) is None)
            n_total = len(snapshot)
            with Progress(self.progress, "dividing" if self.keeps_vectors else "reencoding") as bar:
                missing = self._missing(snapshot, done, bar, n_total)
                for first in missing:
                    try:
                        work.add(
                            _until(
                                itertools.chain([first], missing), time.monotonic() + self.thresholds.reencoding_s
                            )
                        )
                    finally:
                        _commit_collected(work)
                bar.update(n_total, n_total)
        finally:
            done.close()
        work.commit()  # the first of an index without documents, or deletions alone

    def _missing(self, snapshot: Snapshot, done: Snapshot, bar: Progress, n_total: int) -> Iterator[Document]:
        """Yield the documents that are not done; each is counted when the next one is requested."""
        metric = Metric.of(snapshot.manifest)
        for number, document in enumerate(_documents(snapshot)):
            bar.update(number, n_total)
            if not _is_stored(document, done):
                if self.keeps_vectors:
                    place = snapshot.find(document.id)
                    assert place is not None
                    stored = read_document(document.id, *place, metric, with_vectors=True)
                    yield _divided(stored, done.manifest, self.encoder)
                    continue
                if not document.full_text.strip():
                    raise InvalidDocument(
                        f"document {shown(document.id)} has no text that could be encoded again",
                        path=self.directory.path,
                    )
                yield document


class _Replacement:
    """The segments of a work index as the next generation of an index.

    Args:
        directory: the folder of the index.
        before: the generation whose documents the work index has.
        files: the files of the work index.

    Attributes:
        is_made: whether the index was still at that generation.
    """

    def __init__(self, directory: Directory, before: Manifest, files: GenerationFiles) -> None:
        self.is_made = False
        self._directory = directory
        self._before = before
        self._files = files

    def compose(self, current: CurrentGeneration, names: list[str]) -> Manifest | None:
        """Link or copy files and return the manifest, see `quarry.engine.indexer.commits.committer.Compose`."""
        if current.manifest.commit_id != self._before.commit_id:
            return None
        made = self._files.manifest
        known = {record.name for record in current.manifest.quantizers}
        for name in sorted(made.file_names() - {made.name} - known):
            names.append(name)
            self._directory.delete(name)
            self._files.put_file(name, self._directory)
        following = current.manifest.next(made.segments, made.quantizers)
        manifest = replace(following, settings=made.settings, encoder=made.encoder)
        Snapshot(self._directory, manifest=manifest).close()
        self.is_made = True
        return manifest


def _new_settings(manifest: Manifest, encoder: Encoder, stored: Representation) -> IndexSettings:
    """Return the settings of an index for another encoder: those that do not depend on the encoder stay.

    Args:
        manifest: the manifest of the index.
        encoder: the other one.
        stored: the representation of the index.

    Raises:
        InvalidSetting: the encoder does not fit them.
    """
    before = manifest.settings
    given: BuildKeywords = {
        "centroids": cast("CentroidType", before.centroids),
        "language": before.language,
        "k1": before.k1,
        "b": before.b,
        "seed": before.seed,
        "passage_words": before.passages.max_words if before.passages else None,
        "passage_overlap": before.passages.overlap if before.passages else 0,
        "searchable": before.searchable,
        "synonyms": dict(before.synonyms),
        "field_weights": before.field_weights,
    }
    if before.metric is not None:
        given["metric"] = before.metric.name
    elif not has_encoder(manifest.encoder) and manifest.encoder.normalize:
        given["metric"] = "cosine"  # the caller chose it: there was no encoder whose vectors have norm 1
    is_fitting = not before.code_bytes or encoder.dim % (2 * before.code_bytes) == 0
    is_default = before.code_bytes == BuildOptions.of(given).code_bytes_for(
        before.dim
    )  # it depends on the encoder
    if is_fitting and not is_default and (not before.code_bytes or trained_quantizer(encoder) is None):
        given["code_bytes"] = before.code_bytes
    is_kept = encoder.trained_representation is None and has_encoder(manifest.encoder)
    # Otherwise it is what the encoder was trained for, or the default.
    representation = stored if is_kept and is_readable(stored, encoder) else None
    return BuildPlan.of(encoder, representation, given).settings


def _check_divisible(snapshot: Snapshot) -> None:
    """Check that the vectors of an index can be divided among passages.

    Raises:
        InvalidSetting: they stand for no contiguous parts of texts, or only their codes are stored.
    """
    settings, encoder = snapshot.manifest.settings, snapshot.manifest.encoder
    problem = ""
    if any(segment.reader.centroids.kind == "none" for segment in snapshot.segments):
        problem = "the index stores codes alone, which would be less exact if they were decoded and encoded again"
    elif has_encoder(encoder) and settings.representation != Pieces.name:
        problem = "the vectors of the index do not stand for contiguous pieces of its texts"
    if problem:
        raise InvalidSetting(
            f"{problem}; build it again from its documents",
            path=snapshot.directory.path,
            expected=f"stored centroids of the representation {Pieces.name!r}",
            actual=f"{settings.representation!r}, {settings.centroids!r}",
        )


def _divided(document: Document, manifest: Manifest, encoder: Encoder) -> Document:
    """Return a document of the representation `Pieces` with its pieces grouped into passages; others as they are.

    Passages are those of a new index. A piece belongs to the one that its middle is in, and its span is cut there.
    The mean of the whole document is replaced by one for each passage, weighted by the characters of its pieces.
    """
    passages, spans = manifest.settings.passages, document.spans
    if document.vectors is None or passages is None or not has_encoder(manifest.encoder):
        return document
    pieces = np.array(spans[:-1])
    cut = cut_into_passages(document.text, passages, heading_starts(document))
    if len(pieces) < 2 or len(cut) < 2 or spans[-1] != (pieces[0, 0], pieces[-1, 1]):
        return document
    n_before = len(document.full_text) - len(document.text)
    bounds = [(start + n_before if start else 0, end + n_before) for start, end in cut]
    owners = np.searchsorted([start for start, _ in bounds], pieces.mean(axis=1), side="right") - 1
    vectors: list[Float32Array] = []
    found: list[tuple[int, int]] = []
    for passage in np.unique(owners).tolist():
        rows, own = document.vectors[:-1][owners == passage], pieces[owners == passage]
        if len(rows) > 1:
            vectors.append(rows)
            found += map(tuple, np.clip(own, *bounds[passage]).tolist())
            rows = np.average(rows, axis=0, weights=own[:, 1] - own[:, 0])[np.newaxis].astype(np.float32)
        vectors.append(scale_rows(rows, encoder.normalize))
        found.append(bounds[passage])
    return Document(
        *(document.id, document.text, document.title, document.metadata),
        vectors=np.concatenate(vectors),
        spans=tuple(found),
    )


def _is_same(record: EncoderRecord, encoder: Encoder) -> bool:
    """Return whether vectors of an index are those of an encoder."""
    return (record.identity, record.normalize) == (encoder.identity, encoder.normalize)


def _commit_collected(work: IndexWriter) -> None:
    """Commit, unless the writer was closed by an error."""
    with contextlib.suppress(IndexClosed):
        work.commit()


def _manifest_of(directory: Directory) -> Manifest | None:
    """Return the manifest of a work index; None if there is none that can be read."""
    try:
        snapshot = Snapshot(directory)
    except (IndexNotFound, FormatError):
        return None
    snapshot.close()
    return snapshot.manifest


def _documents(snapshot: Snapshot) -> Iterator[Document]:
    """Yield the live documents."""
    for segment in snapshot.segments:
        live, reader = np.flatnonzero(segment.live), segment.reader
        for doc_id, stored in zip(reader.ids.read(live), reader.documents.read(live), strict=True):
            yield Document(doc_id, stored.text, stored.title, stored.metadata)


def _is_stored(document: Document, snapshot: Snapshot) -> bool:
    """Return whether a generation has exactly this document."""
    place = snapshot.find(document.id)
    if place is None:
        return False
    stored = place[0].reader.documents[place[1]]
    if (stored.title, stored.text) != (document.title, document.text):
        return False
    return PackedMetadata.of(stored.metadata).packed == PackedMetadata.of(document.metadata).packed


def _until(documents: Iterator[Document], end: float) -> Iterator[Document]:
    """Yield documents, at least one, until `end` of `time.monotonic`."""
    for document in documents:
        yield document
        if time.monotonic() >= end:
            return
