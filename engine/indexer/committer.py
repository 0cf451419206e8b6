"""What an index is now, and how it becomes its next generation."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.indexer.deletions import Deletions, carried_over
from quarry.engine.indexer.garbage import collect_garbage, files_of
from quarry.engine.indexer.segment_builder import BuiltSegment
from quarry.engine.indexer.segment_merger import Merged
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.errors import (
    CommitFailed,
    DurabilityUnknown,
    FormatError,
    IndexClosed,
    IndexLocked,
    IndexNotFound,
)
from quarry.formats.manifest import Manifest, SegmentRecord, find_latest_generation, manifest_name
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.quantizer import StoredQuantizer
from quarry.formats.write_lock import WriteLock

__all__ = ["Committer", "Failure"]

Flags = npt.NDArray[np.bool_]


class Failure(NamedTuple):
    """What a commit failed with; the error itself would hold on to all that its functions had open.

    Attributes:
        reason: the error's message.
        is_visible: whether the commit is visible, and its durability unknown.
    """

    reason: str
    is_visible: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What an error says."""
        return cls(str(error) or type(error).__name__, isinstance(error, DurabilityUnknown))


class Committer:
    """Holds the current generation and what was deleted from it since.

    One thread may commit while another one swaps in merged segments: every method works under a lock. Where
    `commit` or `swap` fails before anything of it is visible, all is as it was, and it can be tried again. After
    other errors of theirs, which `failure` tells, the index on disk is whole, of the old generation or of the new
    one, but this object must be closed.

    Args:
        directory: of the index.
        lock: the writer's, held.
        root: what the first generation of a new index follows; None: the index that is there is changed.

    Attributes:
        directory: of the index.
        manifest: of the current generation, or the root.
        failure: what `commit` or `swap` failed with, if this object must be closed for it.
    """

    def __init__(self, directory: Directory, lock: WriteLock, root: Manifest | None) -> None:
        self.directory = directory
        self.failure: Failure | None = None
        self._lock = lock
        self._mutex = threading.RLock()
        self._base = None if root else Snapshot(directory)
        self.manifest = root or self._base.manifest  # type: ignore[union-attr]
        try:
            self.manifest.check_writable(directory)
        except BaseException:
            self.close()
            raise
        self._deletions = Deletions()
        self._garbage: set[str] = set()
        self._written: list[str] = []  # by the commit that is under way
        self._may_be_visible = False  # whether that has come to its manifest
        self._for_commit = self._for_merge = ""  # quantizers whose files stay until then
        collect_garbage(directory, lock)

    @property
    def segments(self) -> tuple[OpenSegment, ...]:
        """The segments of the current generation; none before the first."""
        base = self._base
        return base.segments if base is not None else ()

    def snapshot(self) -> Snapshot:
        """The current generation once more, sharing the files that are open here."""
        with self._mutex:
            return Snapshot(self.directory, self.segments, self.manifest)

    def quantizer_for_commit(self) -> StoredQuantizer | None:
        """The newest quantizer, None where there is none; its file stays until the next `commit`."""
        with self._mutex:
            found = self._find_quantizer("")
            self._for_commit = found.record.name if found else ""
            return found

    def quantizer_for_merge(self, name: str) -> StoredQuantizer | None:
        """The quantizer of that name, or for "" the newest; its file stays until the next `swap`."""
        with self._mutex:
            found = self._find_quantizer(name)
            self._for_merge = found.record.name if found else ""
            return found

    def _find_quantizer(self, name: str) -> StoredQuantizer | None:
        with self._mutex:
            records = {record.name: record for record in self.manifest.quantizers}
            wanted = name or next(reversed(records), "")
            for segment in self.segments:
                if segment.quantizer is not None and segment.record.quantizer == wanted:
                    return StoredQuantizer(segment.quantizer, records[wanted])
        return None

    def dictionary(self, size: int) -> bytes:
        """The newest dictionary of texts with half of `size` bytes to twice as many; nothing where there is none.

        Each segment has its own copy, so a much larger one would take more room than it saves.
        """
        for segment in reversed(self.segments):
            documents = segment.reader.documents
            with contextlib.suppress(FormatError):  # damaged; whoever reads the documents is told
                for run in reversed(range(documents.n_runs)):
                    if size <= 2 * len(found := documents.dictionary(run)) <= 4 * size:
                        documents.check_dictionary(run)
                        return found
        return b""

    def delete(self, doc_id: str) -> bool:
        """Delete the live document of that id at the next commit; whether there was one until now."""
        with self._mutex:
            found = self._find(doc_id)
            return self._deletions.mark(*found) if found else False

    def replace(self, doc_id: str, add: Callable[[], object]) -> None:
        """Call `add`, and if it succeeds delete the document of that id that was live before.

        Raises:
            FormatError: what is there cannot be looked up; `add` was not called.
            Exception: what `add` raises; nothing is deleted.
        """
        with self._mutex:
            found = self._find(doc_id)
            add()
            if found:
                self._deletions.mark(*found)

    def _find(self, doc_id: str) -> tuple[OpenSegment, int] | None:
        for segment in self.segments:
            ordinal = segment.live_ordinal(doc_id)
            if ordinal is not None:
                return segment, ordinal
        return None

    def rollback(self) -> None:
        """Forget what was deleted since the last commit."""
        with self._mutex:
            self._deletions = Deletions()

    def has_changes(self) -> bool:
        """Whether something was deleted, or there is no generation yet."""
        return self._base is None or bool(self._deletions)

    def commit(self, built: BuiltSegment | None) -> int:
        """Make what was deleted, and a new segment, the next generation; its number.

        Raises:
            CommitFailed: the system failed; nothing was committed, and the new segment's files are deleted.
            DurabilityUnknown: the commit is visible, but a power loss might undo it; or whether it is visible is
                unknown too.
            IndexClosed: the commit is done, but cannot be opened; or an earlier one has left this object unusable.
        """
        with self._mutex:
            return self._change(built.record if built else None, lambda: self._commit(built))

    def _commit(self, built: BuiltSegment | None) -> int:
        kept = [self._renewed(each.record, self._deletions.new_flags(each)) for each in self.segments]
        records = [record for record in kept if record]
        records += [built.record] if built else []
        manifest = self._publish(records, built.quantizer if built else None)
        self._deletions = Deletions()
        self._for_commit = ""
        return self._settle(manifest)

    def swap(self, merged: Merged) -> int:
        """Put a merged segment in the place of its sources, as a generation of its own; its number.

        What was deleted from them in the meantime, committed or not yet, is deleted from it.

        Raises:
            QuarryError: as `commit` does; where nothing was committed the new segment's file is deleted.
        """
        with self._mutex:
            return self._change(merged.record, lambda: self._swap(merged))

    def _swap(self, merged: Merged) -> int:
        now = {segment.reader.segment_id: segment for segment in self.segments}
        record = merged.record
        if record is not None:
            self._garbage.add(record.file.name)  # unless it is named now
            record = self._renewed(record, carried_over(merged.sources, now, Deletions.committed))
        records = _replaced(self.segments, merged.sources, record)
        manifest = self._publish(records, merged.quantizer.record if merged.quantizer else None)
        target = record.file.file_id if record else None
        self._deletions = self._deletions.moved(merged.sources, now, target)
        self._for_merge = ""
        return self._settle(manifest)

    def close(self) -> None:
        """Close the files."""
        base, self._base = self._base, None
        if base is not None:
            base.close()

    def _change(self, new: SegmentRecord | None, change: Callable[[], int]) -> int:
        """Do what makes the next generation; if that fails it is undone, or this object is left unusable."""
        if self.failure:
            raise IndexClosed("this writer is closed", path=self.directory.path, actual=self.failure.reason)
        before = self.manifest.generation
        self._written = list(new.file_names()) if new else []
        self._may_be_visible = False
        try:
            return change()
        except BaseException as error:
            is_undone = False
            try:
                is_undone = not isinstance(error, IndexLocked) and self._undo(before)
            finally:  # an interrupt may come here too
                told = self._told(error, is_undone)
                if not is_undone:
                    self.failure = Failure.of(told)
            if told is error:
                raise
            raise told from error

    def _undo(self, generation: int) -> bool:
        """Delete the files of a change, if it is certain that nothing of it is visible; whether it is."""
        if self._may_be_visible and not self._is_newest(generation):
            return False
        for name in self._written:
            self.directory.delete(name)
        return True

    def _is_newest(self, generation: int) -> bool:
        """Whether that is certain to be the newest generation in the folder."""
        try:
            return find_latest_generation(self.directory) == generation
        except IndexNotFound:
            return generation == 0
        except OSError:  # as without a descriptor to list the folder with, which takes none to look for one name
            return self._lock.is_in_place() and not self.directory.may_hold(manifest_name(generation + 1))

    def _told(self, error: BaseException, is_undone: bool) -> BaseException:
        """What is raised; a lost answer to the rename is no proof that it was not done."""
        if not isinstance(error, OSError):
            return error
        path, actual = self.directory.path, str(error)
        if is_undone:
            return CommitFailed("nothing was committed", path=path, actual=actual)
        message = "whether the commit is visible, and for good, is unknown"
        return DurabilityUnknown(message, path=path, actual=actual)

    def _renewed(self, record: SegmentRecord, deleted: Flags | None) -> SegmentRecord | None:
        """What becomes of a segment: as it is, with new tombstones, or gone when nothing in it is live."""
        if deleted is None:
            return record
        n_deleted = int(np.count_nonzero(deleted))
        if n_deleted == record.n_docs:
            return None
        if n_deleted == record.n_deleted:
            return record
        tombstones = write_tombstones(self.directory, record.file.file_id, deleted)
        self._written.append(tombstones.name)
        return replace(record, tombstones=tombstones, n_deleted=n_deleted)

    def _publish(self, records: Sequence[SegmentRecord], quantizer: FileRecord | None) -> Manifest:
        """Commit these segments; the newest quantizer is named last."""
        known = {each.name: each for each in self.manifest.quantizers}
        if quantizer:
            known.setdefault(quantizer.name, quantizer)
        used = {record.quantizer for record in records}
        quantizers = tuple(each for name, each in known.items() if name in used)
        manifest = self.manifest.next(tuple(records), quantizers)
        self.directory.sync()
        self._lock.check()
        self._may_be_visible = True
        manifest.commit(self.directory)
        return manifest

    def _settle(self, manifest: Manifest) -> int:
        """After a commit: make it durable, build on it, and delete what it does not need."""
        self._make_durable(manifest)
        old, self._base = self._base, self._reopened(manifest)
        if old is None:  # whatever was there before is replaced
            collect_garbage(self.directory, self._lock)
        else:
            old.close()
            self._garbage |= files_of(self.manifest)
            self._collect(manifest)
        self.manifest = manifest
        return manifest.generation

    def _reopened(self, manifest: Manifest) -> Snapshot:
        try:
            return Snapshot(self.directory, self.segments, manifest)
        except (OSError, FormatError) as error:
            raise IndexClosed(
                f"generation {manifest.generation} is committed, but cannot be opened; this writer is closed",
                path=self.directory.path,
                actual=str(error),
            ) from error

    def _collect(self, manifest: Manifest) -> None:
        """Delete the files that earlier generations needed; one that cannot be deleted yet is tried again."""
        self._garbage -= files_of(manifest)
        for name in self._garbage - {self._for_commit, self._for_merge}:
            self.directory.delete(name)
        with contextlib.suppress(OSError):
            self._garbage &= set(self.directory.names())

    def _make_durable(self, manifest: Manifest) -> None:
        try:
            self.directory.sync()
        except OSError as error:
            raise DurabilityUnknown(
                f"generation {manifest.generation} is visible, but may not survive a power loss",
                path=self.directory.path,
                actual=str(error),
            ) from error


def _replaced(
    segments: Sequence[OpenSegment], sources: Sequence[OpenSegment], record: SegmentRecord | None
) -> list[SegmentRecord]:
    """The records of the segments, the new one in the place of the first of its sources."""
    old = {source.reader.segment_id for source in sources}
    records = []
    for segment in segments:
        if segment.reader.segment_id not in old:
            records.append(segment.record)
        elif record is not None:
            records.append(record)
            record = None
    return records
