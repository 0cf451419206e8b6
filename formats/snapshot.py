"""One generation of an index with all its files open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.manifest import (
    AUTO_LANGUAGE,
    LANGUAGE_MARK,
    IndexSettings,
    Manifest,
    SegmentRecord,
    use_newest,
)
from quarry.formats.segment import SegmentReader
from quarry.formats.tombstones import read_tombstones
from quarry.formats.vectors.distances import DistanceReduction
from quarry.formats.vectors.hnsw_graph import graph_name
from quarry.formats.vectors.quantizer import Quantizer, read_quantizer

__all__ = ["OpenSegment", "Snapshot", "check_files"]


@dataclass(frozen=True, eq=False)
class OpenSegment:
    """A segment of a snapshot.

    Attributes:
        record: its entry in the manifest.
        reader: its file.
        deleted: (n_docs,) bool, or None if nothing is deleted.
        quantizer: the quantizer of its codes, or None.
        distance_dim: length of the vectors, with which rows begin, if Euclidean distances are compared; None if
            inner products are.
    """

    record: SegmentRecord
    reader: SegmentReader
    deleted: BoolArray | None
    quantizer: Quantizer | None
    distance_dim: int | None = None

    @property
    def live(self) -> BoolArray:
        """(n_docs,) bool, a new array: the documents that are not deleted."""
        return np.ones(self.record.n_docs, bool) if self.deleted is None else ~self.deleted

    @cached_property
    def deleted_passages(self) -> BoolArray | None:
        """(n_passages,) bool: the passages of deleted documents; None if nothing is deleted."""
        return None if self.deleted is None else self.reader.passages.flags(self.deleted)

    @property
    def live_passages(self) -> BoolArray:
        """(n_passages,) bool, a new array: the passages of documents that are not deleted."""
        deleted = self.deleted_passages
        return np.ones(self.reader.passages.n_passages, bool) if deleted is None else ~deleted

    @cached_property
    def n_live_passages(self) -> int:
        """Number of passages of documents that are not deleted."""
        if not self.reader.passages.is_divided:
            return self.record.n_live
        deleted = self.deleted_passages
        return self.reader.passages.n_passages - (0 if deleted is None else int(np.count_nonzero(deleted)))

    def count_languages(self) -> Counter[str]:
        """Return the languages of live documents with the language "auto", and the number of their passages.

        Raises:
            FormatError: the postings are damaged.
        """
        counts: Counter[str] = Counter()
        postings, deleted = self.reader.postings, self.deleted_passages
        for mark in postings.terms_with_prefix(LANGUAGE_MARK):
            n_passages = postings.document_frequency(mark)
            if deleted is not None:
                n_passages -= int(np.count_nonzero(deleted[postings.postings(mark).docs]))
            language = mark.removeprefix(LANGUAGE_MARK)
            if not language.isidentifier():
                raise CorruptFile("a term that names no language", path=postings.path, actual=ascii(language))
            counts[language] = n_passages
        return +counts

    def live_ordinal(self, doc_id: str) -> int | None:
        """Return the ordinal of the live document with that id, or None."""
        for ordinal in reversed(self.reader.ids.ordinals_of(doc_id)):
            if self.deleted is None or not self.deleted[ordinal]:
                return ordinal
        return None


class Snapshot:
    """The newest generation of the index in `directory`.

    Args:
        directory: the folder of the index.
        known: open segments of other snapshots of the index, which are shared if they are in this generation too.
            A file is closed with the last snapshot that uses it.
        manifest: the manifest of the generation; None: the newest.
        at_least: see `quarry.formats.manifest.find_latest_generation`.

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file is damaged.
    """

    def __init__(
        self,
        directory: Directory,
        known: Iterable[OpenSegment] = (),
        manifest: Manifest | None = None,
        at_least: int = 0,
    ) -> None:
        self.directory = directory
        self.segments: tuple[OpenSegment, ...] = ()
        self._known = {segment.record.file: segment for segment in known}
        self._unused: list[OpenSegment] = []
        try:
            if manifest is not None:
                self._open(manifest)
            else:
                use_newest(directory, self._open, at_least)
        finally:
            self._release_unused()

    def _open(self, manifest: Manifest) -> None:
        self.manifest = manifest
        quantizers = self._open_quantizers()
        opened: list[OpenSegment] = []
        try:
            for record in self.manifest.segments:
                opened.append(self._open_segment(record, quantizers.get(record.quantizer)))  # noqa: PERF401
        except BaseException:
            # for example a deleted file; the next attempt uses the files that were opened
            self._unused += opened
            self._known |= {segment.record.file: segment for segment in opened}
            raise
        self.segments = tuple(opened)
        if manifest.settings.language == AUTO_LANGUAGE:
            n_passages = sum((each.count_languages() for each in opened), Counter[str]())
            self.manifest = replace(manifest, settings=manifest.settings.with_languages(n_passages))

    def _release_unused(self) -> None:
        """Close the segments that failed attempts opened and the last one did not use."""
        self._known.clear()
        used = {segment.reader.segment_id for segment in self.segments}
        for segment in self._unused:
            if segment.reader.segment_id not in used:
                segment.reader.release(self)
        self._unused.clear()

    def _open_quantizers(self) -> dict[str, Quantizer]:
        """Return the quantizers by file name."""
        known = {segment.record.quantizer: segment.quantizer for segment in self._known.values()}
        quantizers = {}
        for record in self.manifest.quantizers:
            quantizer = known.get(record.name) or read_quantizer(self.directory, record)
            settings, path = self.manifest.settings, self.directory.path / record.name
            if quantizer.input_dim != settings.dim:
                raise CorruptFile("a quantizer with another number of dimensions", path=path)
            if quantizer.code_bytes != settings.code_bytes:
                message = "the codes of a quantizer do not have the size that the manifest says"
                raise CorruptFile(message, path=path, expected=settings.code_bytes, actual=quantizer.code_bytes)
            quantizers[record.name] = _with_distances(quantizer, settings, path)
        return quantizers

    def _open_segment(self, record: SegmentRecord, quantizer: Quantizer | None) -> OpenSegment:
        known = self._known.get(record.file)
        reader = known.reader if known else None
        if reader is None or not reader.acquire(self):
            reader = SegmentReader(self.directory, record.file, self.manifest.settings.dim)
            reader.acquire(self)
        elif known and known.record == record:
            return known
        try:
            _check_segment(self.directory, record, reader, quantizer)
            deleted = None
            if record.tombstones:
                deleted = read_tombstones(self.directory, record.tombstones, reader.segment_id, reader.n_docs)
            _check_deleted(self.directory, record, deleted)
        except BaseException:
            reader.release(self)
            raise
        metric = self.manifest.settings.metric
        distance_dim = metric.dim if metric is not None and metric.by_distance else None
        return OpenSegment(record, reader, deleted, quantizer, distance_dim)

    def __len__(self) -> int:
        return self.manifest.n_documents

    def find(self, doc_id: str) -> tuple[OpenSegment, int] | None:
        """Return the segment and ordinal of the live document with that id, or None."""
        for segment in reversed(self.segments):
            ordinal = segment.live_ordinal(doc_id)
            if ordinal is not None:
                return segment, ordinal
        return None

    def reopen(self) -> Snapshot:
        """Open the newest generation; it shares the segments that are in this one, too."""
        return Snapshot(self.directory, self.segments, at_least=self.manifest.generation)

    def close(self) -> None:
        """Close all files that no other snapshot uses."""
        for segment in self.segments:
            segment.reader.release(self)
        self.segments = ()


def _with_distances(quantizer: Quantizer, settings: IndexSettings, path: Path) -> Quantizer:
    """Return a quantizer with its reduction of distances; for those without, the settings state it."""
    metric = settings.metric if settings.metric is not None and settings.metric.by_distance else None
    if metric is not None and quantizer.distances is None:
        return replace(quantizer, distances=DistanceReduction(metric.dim, metric.norm or 1.0))
    if quantizer.distances is not None and (metric is None or quantizer.distances.dim != metric.dim):
        raise CorruptFile("a quantizer for vectors of another length or metric", path=path)
    return quantizer


def _check_segment(
    directory: Directory, record: SegmentRecord, reader: SegmentReader, quantizer: Quantizer | None
) -> None:
    """Check that the manifest, the segment and its quantizer agree."""
    path = directory.path / record.file.name
    if reader.n_docs != record.n_docs:
        raise CorruptFile(
            "wrong number of documents",
            path=path,
            expected=record.n_docs,
            actual=reader.n_docs,
        )
    if (reader.lists is None) != (quantizer is None):
        raise CorruptFile("inverted lists without a quantizer, or a quantizer without inverted lists", path=path)
    if reader.lists and quantizer:
        shape = (len(reader.lists.offsets) - 1, reader.lists.code_bytes)
        if shape != (quantizer.nlist, quantizer.code_bytes):
            raise CorruptFile(
                "the inverted lists do not fit the quantizer", path=path, expected=quantizer.nlist, actual=shape[0]
            )


def _check_deleted(directory: Directory, record: SegmentRecord, deleted: BoolArray | None) -> None:
    n_deleted = 0 if deleted is None else int(deleted.sum())
    if n_deleted != record.n_deleted:
        raise CorruptFile(
            "wrong number of deleted documents",
            path=directory.path / record.file.name,
            expected=record.n_deleted,
            actual=n_deleted,
        )


def check_files(
    directory: Directory, manifest: Manifest, intact: dict[str, int] | None = None
) -> list[FormatError]:
    """Read every byte of a generation and of its graphs; return one error for each damage.

    Args:
        directory: the folder of the index.
        manifest: the manifest of the generation.
        intact: size of each file that was found intact before; these are skipped, and intact files are added.
    """
    intact = {} if intact is None else intact
    files: list[tuple[FileKind, str, FileRecord | None]] = [(FileKind.MANIFEST, manifest.name, None)]
    files += [(FileKind.QUANTIZER, record.name, record) for record in manifest.quantizers]
    for segment in manifest.segments:
        files.append((FileKind.SEGMENT, segment.file.name, segment.file))
        if segment.tombstones:
            files.append((FileKind.TOMBSTONES, segment.tombstones.name, segment.tombstones))
    there = set(directory.names())
    graphs = {graph_name(segment.file.file_id) for segment in manifest.segments} & there
    files += [(FileKind.HNSW_GRAPH, name, None) for name in sorted(graphs)]
    findings: list[FormatError] = []
    for kind, name, record in files:
        if name not in intact:
            findings += _check_file(directory, kind, name, record, intact)
    return findings


def _check_file(
    directory: Directory, kind: FileKind, name: str, record: FileRecord | None, intact: dict[str, int]
) -> list[FormatError]:
    try:
        container = ContainerReader(directory, name, kind, record)
    except FileNotFoundError:
        if kind is FileKind.HNSW_GRAPH:  # graphs may be deleted at any time
            return []
        return [CorruptFile("a file of the index is missing", path=directory.path / name)]
    except FormatError as error:
        return [error]
    try:
        damage = container.find_damage()
        if not damage:
            intact[name] = container.n_bytes
        return damage
    finally:
        container.close()
