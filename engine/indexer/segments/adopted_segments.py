"""Segments that other processes wrote, joined to one segment of an index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry.engine.indexer.segments.new_quantizer import TrainingRows
from quarry.engine.indexer.segments.segment_builder import BuiltSegment
from quarry.engine.indexer.segments.segment_merger import SegmentMerger, training_rows
from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import CorruptFile
from quarry.formats.manifest import IndexSettings
from quarry.formats.segment import SegmentReader
from quarry.formats.segment_merge import MergeInput, merge_segments
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["MAX_OPEN", "AdoptedSegments", "StagedSegment"]

MAX_OPEN = 128
"""How many files are open at once, at most; each takes a descriptor, of which a process often has 1,024."""


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment without inverted lists in a folder that is not an index."""

    folder: Path
    file: FileRecord


class AdoptedSegments:
    """The documents of staged segments, until `finish`; has the methods that a writer needs of `SegmentBuilder`.

    Of documents with the same id the last one is kept. When there are many segments, neighbors are first merged in
    the folder that they are in, so that few files are open at once.

    Args:
        segments: at least one, in the order of their documents.
        merger: writes the segment of the index.
        settings: the settings of the index.
        max_open: how many files may be open, at least 2.

    Raises:
        FormatError: a file is damaged.
    """

    def __init__(
        self, segments: Sequence[StagedSegment], merger: SegmentMerger, settings: IndexSettings, max_open: int
    ) -> None:
        self._merger = merger
        self._settings = settings
        self._readers: list[SegmentReader] = []
        try:
            for segment in _merged_to(max_open, segments, settings.dim):
                self._readers.append(_open(segment, settings.dim))
            self._dead = _find_superseded(self._readers)
        except BaseException:
            self.close()
            raise
        self._n_superseded = sum(int(np.count_nonzero(dead)) for dead in self._dead)

    def __len__(self) -> int:
        return sum(reader.n_docs for reader in self._readers)

    @property
    def n_rows(self) -> int:
        """Number of centroids."""
        return sum(reader.n_rows for reader in self._readers)

    @property
    def training_rows(self) -> TrainingRows:
        """The centroids, to train a quantizer on."""
        return training_rows(self._inputs(), self._settings.seed)

    def ids(self) -> Iterator[str]:
        """Yield the ids of all documents."""
        for reader in self._readers:
            yield from reader.ids.read(np.arange(reader.n_docs))

    def __contains__(self, doc_id: str) -> bool:
        """Return whether there is a live document with that id."""
        return any(
            not dead[ordinal]
            for reader, dead in zip(self._readers, self._dead, strict=True)
            for ordinal in reader.ids.ordinals_of(doc_id)
        )

    def delete(self, doc_id: str) -> bool:
        """Delete the document with that id; return whether there was one."""
        for reader, dead in zip(self._readers, self._dead, strict=True):
            for ordinal in reader.ids.ordinals_of(doc_id):
                if not dead[ordinal]:
                    dead[ordinal] = True
                    return True
        return False

    def live_documents(self) -> Iterator[tuple[str, StoredDocument]]:
        """Yield the documents that are neither deleted nor replaced: id and content."""
        for reader, dead in zip(self._readers, self._dead, strict=True):
            docs = np.flatnonzero(~dead)
            yield from zip(reader.ids.read(docs), reader.documents.read(docs), strict=True)

    def finish(self, existing: StoredQuantizer | None) -> BuiltSegment | None:
        """Write the segment, and return it, or None if no document is live; after an error it can be tried again.

        Args:
            existing: quantizer of the index; None: the encoder's is used, or if it has none and the segment is
                large enough, one is trained on it.

        Raises:
            FormatError: a file is damaged.
        """
        inputs = self._inputs()
        record, quantizer = self._merger.write(inputs, [""] * len(inputs), existing)
        if record is None:
            return None
        return BuiltSegment(record, quantizer.record if quantizer else None, self._n_superseded)

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers:
            reader.close()

    def _inputs(self) -> list[MergeInput]:
        return [
            MergeInput(reader, ~dead if dead.any() else None)
            for reader, dead in zip(self._readers, self._dead, strict=True)
        ]


def _open(segment: StagedSegment, dim: int) -> SegmentReader:
    try:
        return SegmentReader(Directory(segment.folder), segment.file, dim)
    except FileNotFoundError as error:
        path = segment.folder / segment.file.name
        raise CorruptFile("a segment that was written for this index is missing", path=path) from error


def _merged_to(n: int, segments: Sequence[StagedSegment], dim: int) -> Sequence[StagedSegment]:
    """Merge neighbors until there are at most n segments, and delete the files of those that were merged."""
    while len(segments) > n:
        segments = [_merged(segments[low : low + n], dim) for low in range(0, len(segments), n)]
    return segments


def _merged(group: Sequence[StagedSegment], dim: int) -> StagedSegment:
    if len(group) == 1:
        return group[0]
    directory = Directory(group[0].folder)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(contextlib.closing(_open(segment, dim))) for segment in group]
        file = merge_segments(directory, [MergeInput(reader, None) for reader in readers], 0, 0, True)
    for segment in group:
        directory.delete(segment.file.name)
    return StagedSegment(directory.path, file)


def _find_superseded(readers: Sequence[SegmentReader]) -> list[BoolArray]:
    """Return for each segment (n_docs,) bool, the documents that a later one with the same id replaces."""
    firsts = np.cumsum([0, *(reader.n_docs for reader in readers)])
    parts = [reader.ids.sorted_hashes() for reader in readers]
    hashes = np.concatenate([sorted_hashes for sorted_hashes, _ in parts])
    places = np.concatenate([ordinals + first for (_, ordinals), first in zip(parts, firsts, strict=False)])
    order = np.lexsort((places, hashes))
    ranked = hashes[order]
    again = ranked[1:] == ranked[:-1]
    dead = np.zeros(firsts[-1], bool)
    for low, high in np.flatnonzero(np.diff(again, prepend=False, append=False)).reshape(-1, 2).tolist():
        later: set[str] = set()
        for place in places[order[low : high + 1]][::-1].tolist():
            number = int(np.searchsorted(firsts, place, side="right")) - 1
            doc_id = readers[number].ids[place - int(firsts[number])]
            dead[place] = doc_id in later
            later.add(doc_id)
    return np.split(dead, firsts[1:-1])
