"""Whole segments of other indexes are taken into an index, in one commit; of equal ids the last one counts."""

from __future__ import annotations

import contextlib
import os
import reprlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from quarry.engine.arguments import iterator_of, shown
from quarry.engine.indexer.commits.deletions import with_deletions
from quarry.engine.indexer.commits.generation import CurrentGeneration
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.reuse.generation_files import GenerationFiles, open_generations
from quarry.formats.arrays import BoolArray, Int64Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.documents.ids import DocIds
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import Manifest, SegmentRecord
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.system_errors import checked_path
from quarry.formats.vectors.hnsw_graph import graph_name
from quarry.formats.vectors.quantizer import write_quantizer

__all__ = ["AddIndexesReport", "LiveDocuments", "add_indexes"]

_FREE_SETTINGS = frozenset({"languages", "analysis", "k1", "b", "seed", "passages", "synonyms"})
"""Settings that nothing in a segment depends on: those of the index that takes the segments apply."""

_BATCH_IDS = 1 << 16  # compared at once


@dataclass(frozen=True, kw_only=True)
class AddIndexesReport:
    """The result of `Engine.add_indexes`.

    Attributes:
        n_documents: documents that were added.
        n_replaced: documents, of this index or of the others, that a later one with the same id replaced.
        n_segments: segment files that were taken over.
        n_linked: how many of their files are hard links; the others were copied.
        generation: that the index has now.
    """

    n_documents: int
    n_replaced: int
    n_segments: int
    n_linked: int
    generation: int


def add_indexes(
    writer: IndexWriter, directory: Directory, paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]
) -> AddIndexesReport:
    """Take the segments of other indexes into an index; see `quarry.engine.engine.Engine.add_indexes`."""
    with ExitStack() as stack:
        sources = [
            source
            for path in _checked_paths(paths)
            for source in open_generations(Directory(path.absolute()), stack)
        ]
        for source in sources:
            source.manifest.check_writable(source.directory)
            if _is_same_folder(source.directory.path, directory.path):
                raise InvalidSetting("an index cannot be added to itself", path=source.directory.path)
        addition = _Addition(directory, sources)
        generation = writer.rewrite(addition.compose)
        return AddIndexesReport(
            n_documents=addition.n_documents,
            n_replaced=addition.live.n_replaced,
            n_segments=addition.n_segments,
            n_linked=sum(source.n_linked for source in sources),
            generation=generation,
        )


def _checked_paths(paths: object) -> list[Path]:
    """Return the paths of the other indexes.

    Raises:
        InvalidSetting: not a path, or an iterable of paths.
    """
    if isinstance(paths, str | os.PathLike):
        return [checked_path(paths, "paths")]
    given = iterator_of(paths)
    if given is None or isinstance(paths, bytes):
        raise InvalidSetting("not paths of indexes", expected="a path, or several", actual=shown(paths))
    return [checked_path(path, "a path of an index") for path in given]  # type: ignore[arg-type]  # is checked


def _is_same_folder(path: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.samefile(other)
    return path.resolve() == other.resolve()


class _Addition:
    """A generation of an index and the segments of others.

    Args:
        directory: the folder of the index.
        sources: the open generations of the others; of equal ids the last one wins.

    Attributes:
        live: which documents stay.
        n_documents: live documents of the sources.
        n_segments: segments that were taken over.
    """

    def __init__(self, directory: Directory, sources: Sequence[GenerationFiles]) -> None:
        self.live = LiveDocuments()
        self.n_documents = self.n_segments = 0
        self._directory = directory
        self._sources = sources

    def compose(self, current: CurrentGeneration, names: list[str]) -> Manifest | None:
        """Link or copy the files, write tombstones, and return the manifest; see `Compose`.

        Raises:
            EncoderMismatch: a source has another encoder.
            InvalidSetting: a source has another setting that matters.
            FormatError: a file of a source is damaged.
        """
        for source in self._sources:
            _check_same(current.manifest, source)
        self.live.add(current.segments)
        self.n_documents = sum(self.live.add(source.snapshot.segments) for source in self._sources)
        if not self.n_documents:
            return None
        kept = [self._with_deletions(segment, segment.record, names) for segment in current.segments]
        records = {record.file.file_id: record for record in kept if record is not None}
        known = {segment.reader.segment_id for segment in current.segments}
        quantizers = {record.name: record for record in current.manifest.quantizers}
        new_quantizers: dict[str, FileRecord] = {}
        for source in self._sources:
            for segment in source.snapshot.segments:
                if segment.reader.segment_id not in known:
                    known.add(segment.reader.segment_id)
                    record = self._take(source, segment, new_quantizers, names)
                    if record is not None:
                        records[record.file.file_id] = record
        used = {record.quantizer for record in records.values()}
        new = [record for name, record in new_quantizers.items() if name not in quantizers]
        ordered = [*new, *quantizers.values()]  # the newest of this index stays the last one
        manifest = current.manifest.next(
            tuple(records.values()), tuple(record for record in ordered if record.name in used)
        )
        Snapshot(self._directory, current.segments, manifest).close()  # which checks the new files
        return manifest

    def _take(
        self, source: GenerationFiles, segment: OpenSegment, quantizers: dict[str, FileRecord], names: list[str]
    ) -> SegmentRecord | None:
        """Take over a segment; return its record, or None if none of its documents stays."""
        if self.live.deleted(segment).all():
            return None
        self.n_segments += 1
        self._put(source, segment.record.file.name, names)
        graph = graph_name(segment.record.file.file_id)
        if source.has_file(graph):
            self._put(source, graph, names)
        record = replace(segment.record, tombstones=None, n_deleted=0)
        if segment.quantizer is not None:
            stored = write_quantizer(self._directory, segment.quantizer)
            quantizers[stored.name] = stored
        return self._with_deletions(segment, record, names)

    def _put(self, source: GenerationFiles, name: str, names: list[str]) -> None:
        names.append(name)
        self._directory.delete(name)  # an orphan file, if it is there
        if not self._directory.may_hold(name):  # Windows keeps one that is open, which has the same content
            source.put_file(name, self._directory)

    def _with_deletions(
        self, segment: OpenSegment, record: SegmentRecord, names: list[str]
    ) -> SegmentRecord | None:
        return with_deletions(self._directory, record, segment.deleted, self.live.deleted(segment), names)


def _check_same(manifest: Manifest, source: GenerationFiles) -> None:
    """Check that an index has the encoder of this one, and the settings that its segments depend on."""
    path, other = source.directory.path, source.manifest
    if (manifest.encoder.identity, manifest.encoder.normalize) != (
        other.encoder.identity,
        other.encoder.normalize,
    ):
        raise EncoderMismatch(
            "the vectors of this index are of another encoder than those of the index that it is added to",
            path=path,
            expected=f"{manifest.encoder.name} ({manifest.encoder.identity})",
            actual=f"{other.encoder.name} ({other.encoder.identity})",
        )
    theirs = asdict(other.settings)
    for name, value in asdict(manifest.settings).items():
        if name not in _FREE_SETTINGS and theirs[name] != value:
            brief = reprlib.repr if name == "metric" else str  # a mean has many bytes
            raise InvalidSetting(
                f"this index has another value of {name} than the index that it is added to",
                path=path,
                expected=brief(value),
                actual=brief(theirs[name]),
            )


class LiveDocuments:
    """The live documents of a growing list of segments, of which no two have the same id.

    Attributes:
        n_replaced: documents that a later one with the same id replaced.
    """

    def __init__(self) -> None:
        self.n_replaced = 0
        self._segments: dict[bytes, OpenSegment] = {}
        self._live: dict[bytes, BoolArray] = {}

    def add(self, segments: tuple[OpenSegment, ...]) -> int:
        """Add the segments of one generation; its live documents replace earlier ones. Return how many there are.

        A segment that was added before, with other deleted documents, is not added twice: its documents that are
        live now are live again.

        Raises:
            FormatError: the ids of a segment are damaged.
        """
        flags = [segment.live for segment in segments]
        before = list(self._segments.values())
        for segment, live in zip(segments, flags, strict=True):
            for earlier in before:
                if earlier.reader.segment_id != segment.reader.segment_id:
                    self._replace(earlier, segment, live)
        for segment, live in zip(segments, flags, strict=True):
            key = segment.reader.segment_id
            if key in self._segments:
                self.n_replaced += int(np.count_nonzero(self._live[key] & live))
                self._live[key] = self._live[key] | live
            else:
                self._segments[key], self._live[key] = segment, live.copy()
        return sum(int(np.count_nonzero(live)) for live in flags)

    def deleted(self, segment: OpenSegment) -> BoolArray:
        """Return (n_docs,) bool, the documents of an added segment that are not live."""
        return ~self._live[segment.reader.segment_id]

    def _replace(self, earlier: OpenSegment, later: OpenSegment, live: BoolArray) -> None:
        """Delete the documents of one segment whose ids live documents of the other one have."""
        flags = self._live[earlier.reader.segment_id]
        old, new = _equal_hashes(earlier.reader.ids, flags, later.reader.ids, live)
        for low in range(0, len(old), _BATCH_IDS):
            places = old[low : low + _BATCH_IDS]
            ids, others = earlier.reader.ids.many(places), later.reader.ids.many(new[low : low + _BATCH_IDS])
            equal = np.array([one == other for one, other in zip(ids, others, strict=True)], bool)
            self.n_replaced += int(np.count_nonzero(equal))
            flags[places[equal]] = False


def _equal_hashes(
    first: DocIds, first_live: BoolArray, second: DocIds, second_live: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Return the ordinals of all pairs of live documents whose ids have equal hashes: (n,) int64 for each side."""
    hashes, ordinals = first.sorted_hashes()
    wanted, wanted_ordinals = second.sorted_hashes()
    hashes, ordinals = hashes[first_live[ordinals]], ordinals[first_live[ordinals]]
    wanted, wanted_ordinals = wanted[second_live[wanted_ordinals]], wanted_ordinals[second_live[wanted_ordinals]]
    low = np.searchsorted(hashes, wanted, "left")
    counts = np.searchsorted(hashes, wanted, "right") - low
    number = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ordinals[low[number] + within].astype(np.int64), wanted_ordinals[number].astype(np.int64)
