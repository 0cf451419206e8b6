"""Contents of a new generation of an index: new segments and deletions, or merged segments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from quarry.engine.indexer.commits.deletions import Deletions, carry_over, with_deletions
from quarry.engine.indexer.commits.failures import WriterState
from quarry.engine.indexer.commits.garbage import Garbage, collect_garbage, delete_finished_work, files_of
from quarry.engine.indexer.commits.generation import CurrentGeneration
from quarry.engine.indexer.commits.metadata_updates import MetadataUpdates
from quarry.engine.indexer.commits.publication import Publication
from quarry.engine.indexer.segments.segment_builder import BuiltSegment
from quarry.engine.indexer.segments.segment_merger import Merged
from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.manifest import IndexSettings, Manifest, SegmentRecord
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.quantizer import StoredQuantizer
from quarry.formats.write_lock import WriteLock

__all__ = ["Committer", "Compose"]


Compose = Callable[[CurrentGeneration, list[str]], Manifest | None]
"""Writes files, and returns the manifest of the next generation, or None if it is the current one.

It is called with the current generation, and with a list to which it adds the name of each file that it writes,
before it writes it. All files must be durable when it returns.
"""


class Committer:
    """Makes generations out of the current one, new segments and deletions.

    One thread may commit while another one swaps in merged segments: every method works under a lock. If `commit`
    or `swap` fails before its generation is visible, nothing has changed, and it can be tried again. After
    other errors, which `state` records, the files of the index are complete, of the old generation or of the new
    one, but the writer must be closed.

    Args:
        directory: the folder of the index.
        lock: the writer's, held.
        root: the predecessor of the first generation of a new index; None: the existing index is changed.
        state: the state of the writer.

    Attributes:
        directory: the folder of the index.
        current: the generation that the next one follows.
        state: the state of the writer.
        mutex: held by every method; a caller holds it while no merge may replace segments between two of them.
    """

    def __init__(self, directory: Directory, lock: WriteLock, root: Manifest | None, state: WriterState) -> None:
        self.directory = directory
        self.state = state
        self.current = CurrentGeneration(directory, root)
        self._lock = lock
        self.mutex = threading.RLock()
        self._deletions = Deletions()
        self._garbage = Garbage(directory)
        collect_garbage(directory, lock)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current generation that shares the open files."""
        with self.mutex:
            return self.current.snapshot()

    def quantizer_for_commit(self) -> StoredQuantizer | None:
        """Return the newest quantizer, if there is one; its file stays until the next `commit`."""
        return self._hold_quantizer("commit", "")

    def quantizer_for_merge(self, name: str) -> StoredQuantizer | None:
        """Return the quantizer of that name, for "" the newest; its file stays until the next `swap`."""
        return self._hold_quantizer("merge", name)

    def _hold_quantizer(self, purpose: str, name: str) -> StoredQuantizer | None:
        with self.mutex:
            quantizer = self.current.find_quantizer(name)
            self._garbage.held[purpose] = quantizer.record.name if quantizer else ""
            return quantizer

    def delete(self, doc_id: str) -> bool:
        """Delete the live document with that id at the next commit; return whether there was one."""
        with self.mutex:
            place = self.current.find(doc_id)
            return self._deletions.mark(*place) if place else False

    def live_segments(self) -> list[OpenSegment]:
        """Return the segments with the documents that are deleted by now, without those that have no other."""
        with self.mutex:
            segments = [replace(each, deleted=self._deletions.flags(each)) for each in self.current.segments]
            return [each for each in segments if each.deleted is not None and not each.deleted.all()]

    def find_all(self, doc_ids: Sequence[str]) -> list[tuple[OpenSegment, int]]:
        """Return segment and ordinal of each committed document that has one of these ids.

        Raises:
            FormatError: a file that is searched for the ids is damaged.
        """
        with self.mutex:
            places = (self.current.find(doc_id) for doc_id in doc_ids) if self.current.segments else ()
            return [each for each in places if each is not None]

    def mark(self, places: Iterable[tuple[OpenSegment, int]]) -> None:
        """Delete the documents that `find_all` returned, at the next commit; `mutex` must be held in between."""
        for each in places:
            self._deletions.mark(*each)

    def mark_all(self, segments: Sequence[OpenSegment], docs: Sequence[BoolArray]) -> int:
        """Delete documents at the next commit, and return how many; hold `mutex` since calling `live_segments`.

        Args:
            segments: those of `live_segments`.
            docs: for each segment the documents to delete, (n_docs,) bool.
        """
        return sum(self._deletions.mark_all(*pair) for pair in zip(segments, docs, strict=True))

    def fix_settings(self, settings: IndexSettings) -> None:
        """Replace the settings, as long as there is no segment; the next commit stores them."""
        with self.mutex:
            self.current.manifest = replace(self.current.manifest, settings=settings)

    def rollback(self) -> None:
        """Discard the deletions since the last commit."""
        with self.mutex:
            self._deletions = Deletions()

    def has_changes(self) -> bool:
        """Whether something was deleted, or there is no generation yet."""
        return self.current.is_root or bool(self._deletions)

    def find_live(self, doc_id: str) -> tuple[OpenSegment, int] | None:
        """Return segment and ordinal of the document with that id, unless it is deleted, committed or not."""
        with self.mutex:
            place = self.current.find(doc_id)
            return place if place is not None and self._deletions.is_live(*place) else None

    def commit(self, built: BuiltSegment | None, updates: MetadataUpdates | None = None) -> int:
        """Make a generation of the current one, the deletions and a new segment; return its number.

        Args:
            built: the new segment.
            updates: changes of the metadata of documents, which are copied to segments of their own; None: none.

        Raises:
            CommitFailed: an I/O error occurred; nothing was committed, and the new segment's files are deleted.
            DurabilityUnknown: the commit is visible, but a power loss may undo it; or whether it is visible is
                unknown too.
            IndexClosed: the commit is done, but cannot be opened; or the writer has failed before.
        """
        with self.mutex, self._publication(built.record if built else None) as publication:
            deletions = self._deletions
            copies: list[SegmentRecord] = []
            if updates:
                deletions = deletions.copy()
                copies = updates.write(self.current, deletions)
                publication.names += [record.file.name for record in copies]
            kept = [
                with_deletions(
                    self.directory, each.record, each.deleted, deletions.new_flags(each), publication.names
                )
                for each in self.current.segments
            ]
            records = [record for record in kept if record] + copies
            records += [built.record] if built else []
            manifest = self._next_manifest(records, built.quantizer if built else None)
            publication.publish(manifest)
            self._deletions = Deletions()
            return self._advance(manifest, "commit")

    def swap(self, merged: Merged) -> int:
        """Replace the sources of a merge by the merged segment, in a generation of its own; return its number.

        Documents that were deleted from the sources during the merge are deleted from the merged segment.

        Raises:
            QuarryError: as `commit` does; if nothing was committed the new segment's file is deleted.
        """
        with self.mutex, self._publication(merged.record) as publication:
            now = {segment.reader.segment_id: segment for segment in self.current.segments}
            record = merged.record
            if record is not None:
                self._garbage.add({record.file.name})  # unless the new manifest names it
                deleted = carry_over(merged.sources, now, Deletions.committed)
                record = with_deletions(self.directory, record, None, deleted, publication.names)
            records = _replace_sources(self.current.segments, merged.sources, record)
            manifest = self._next_manifest(records, merged.quantizer.record if merged.quantizer else None)
            publication.publish(manifest)
            target = record.file.file_id if record else None
            self._deletions = self._deletions.after_merge(merged.sources, now, target)
            return self._advance(manifest, "merge")

    def rewrite(self, compose: Compose) -> int:
        """Make a generation that `compose` returns, and return its number; see `Compose`.

        Nothing may be deleted that is not committed, and no segments may be merged meanwhile.

        Raises:
            QuarryError: as `commit` does, or as `compose` raises it; if nothing was committed, the new files are
                deleted.
        """
        with self.mutex, self._publication(None) as publication:
            manifest = compose(self.current, publication.names)
            if manifest is None:
                return self.current.manifest.generation
            publication.publish(manifest)
            return self._advance(manifest, "commit")

    def close(self) -> None:
        """Close the files, and delete older ones that Windows did not delete while they were open."""
        self.current.close()
        if self.state.can_commit and self._lock.is_in_place():
            self._garbage.collect(self.current.manifest)
            delete_finished_work(self.directory, self._lock)

    def _publication(self, new: SegmentRecord | None) -> Publication:
        generation = self.current.manifest.generation
        names = new.file_names() if new else ()
        return Publication(self.directory, self._lock, self.state, generation, names)

    def _next_manifest(self, records: Sequence[SegmentRecord], quantizer: FileRecord | None) -> Manifest:
        """Return the next manifest; the newest quantizer is named last."""
        known = {each.name: each for each in self.current.manifest.quantizers}
        if quantizer:
            known.setdefault(quantizer.name, quantizer)
        used = {record.quantizer for record in records}
        quantizers = tuple(each for name, each in known.items() if name in used)
        return self.current.manifest.next(tuple(records), quantizers)

    def _advance(self, manifest: Manifest, purpose: str) -> int:
        """Continue from a new generation, and delete the files that it does not need; return its number."""
        self._garbage.held[purpose] = ""
        before, was_root = self.current.manifest, self.current.is_root
        self.current.advance(manifest)
        if was_root:  # the index that existed before is replaced
            collect_garbage(self.directory, self._lock)
        else:
            self._garbage.add(files_of(before))
            self._garbage.collect(manifest)
        return manifest.generation


def _replace_sources(
    segments: Sequence[OpenSegment], sources: Sequence[OpenSegment], record: SegmentRecord | None
) -> list[SegmentRecord]:
    """Return the records of the segments, with the new one in place of the first of its sources."""
    old = {source.reader.segment_id for source in sources}
    records = []
    for segment in segments:
        if segment.reader.segment_id not in old:
            records.append(segment.record)
        elif record is not None:
            records.append(record)
            record = None
    return records
