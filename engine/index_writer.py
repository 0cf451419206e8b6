"""Changes to an index: documents added and deleted are collected, and become visible together at a commit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.analysis import Analyzer
from engine.document_encoder import DocumentEncoder, EncodedDocument, OnInvalid, encode_documents
from engine.documents import Document
from engine.encoder import Encoder
from engine.representation import Representation, representation_from
from engine.segment_builder import BuiltSegment, SegmentBuilder
from formats.directory import Directory
from formats.envelope import FileRecord
from formats.errors import CommitFailed, DurabilityUnknown, FormatError, IndexClosed, IndexNotFound
from formats.hnsw_graph import graph_name
from formats.manifest import EncoderRecord, IndexSettings, Manifest, SegmentRecord, latest_generation
from formats.quantizer import Quantizer
from formats.snapshot import OpenSegment, Snapshot
from formats.tombstones import write_tombstones
from formats.write_lock import WriteLock

__all__ = ["IndexWriter"]

_OWN_FILES = re.compile(r"MANIFEST-\d{20}|[0-9a-f]{32}\.(seg|quant|del|hnsw)|(spool|manifest)-[0-9a-f]+\.tmp")


class IndexWriter:
    """The one writer of an index; it holds the write lock until `close`.

    Args:
        directory: of the index.
        encoder: that makes the vectors.
        threads: for encoding, training and coding.
        fresh: settings of a new index: the first commit puts it in the place of whatever is there. None: the index
            that is there is changed.

    Attributes:
        n_tokens: tokens encoded so far.
        n_rows: centroids made so far.

    Raises:
        IndexLocked: there is another writer.
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
    """

    def __init__(
        self,
        directory: Directory,
        encoder: Encoder,
        threads: int,
        *,
        fresh: IndexSettings | None = None,
    ) -> None:
        self._directory = directory
        self._encoder = encoder
        self._threads = threads
        self._pid = os.getpid()
        self._lock: WriteLock | None = WriteLock(directory.path)
        self._pending: SegmentBuilder | None = None
        self._deleted: dict[int, npt.NDArray[np.bool_]] = {}
        self._base: Snapshot | None = None
        self.n_tokens = self.n_rows = 0
        try:
            if fresh is None:
                self._base = Snapshot(directory)
                self._base.manifest.check_writable(directory)
            self._settings = fresh or self._parent().settings
            self._representation: Representation = representation_from(
                self._settings.representation, self._settings.representation_settings
            )
            self._analyzer = Analyzer.from_settings(
                {"language": self._settings.language, "rules": self._settings.analysis_rules}
            )
            self._collect_garbage()
        except BaseException:
            self.close()
            raise

    def add(self, documents: Iterable[Document], on_invalid: OnInvalid | None = None) -> int:
        """Encode and collect documents; one whose id exists replaces it. Returns how many were taken.

        Args:
            documents: what to add.
            on_invalid: called for each document that cannot be encoded, which is then left out; None: raise.

        Raises:
            InvalidDocument: a document cannot be indexed; those before it are collected.
            CommitFailed: the system failed; nothing is collected any more, and this writer is closed.
        """
        self._check_open()
        n_before = len(self._builder())
        for encoded in self._encoded(documents, on_invalid):
            self._take(encoded)
        return len(self._builder()) - n_before

    def _encoded(self, documents: Iterable[Document], on_invalid: OnInvalid | None) -> Iterator[EncodedDocument]:
        how = DocumentEncoder(self._encoder, self._representation, self._analyzer)
        return encode_documents(documents, how, self._threads, on_invalid)

    def _take(self, encoded: EncodedDocument) -> None:
        try:
            self._builder().add(encoded)
            self._delete_committed(encoded.document.id)
        except BaseException as error:  # half a document may have been taken
            self._give_up(error)
            raise
        self.n_tokens += encoded.n_tokens
        self.n_rows += len(encoded.vectors.values)

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete the documents of these ids, where there are any. Returns how many there were."""
        self._check_open()
        n_deleted = 0
        for doc_id in doc_ids:
            pending = self._pending is not None and self._pending.delete(doc_id)
            n_deleted += self._delete_committed(doc_id) or pending
        return n_deleted

    def commit(self) -> tuple[int, int]:
        """Make everything collected since the last commit the next generation of the index.

        Returns:
            The generation that is current now, and how many documents were replaced by later ones of the same
            id within this commit.

        Raises:
            CommitFailed: the system failed; the last commit stands, and this writer is closed.
            DurabilityUnknown: the commit is visible, but a power loss might undo it; this writer is closed.
        """
        self._check_open()
        if not self._has_changes():
            return self._generation(), 0
        try:
            built = self._finish_pending()
            manifest = self._next_manifest(built)
            self._directory.sync()
            self._check_open()
            manifest.commit(self._directory)
        except BaseException as error:
            self._give_up(error)
            raise
        self._make_durable(manifest)
        self._start_over()
        return manifest.generation, built.n_replaced if built else 0

    def rollback(self) -> None:
        """Forget everything collected since the last commit."""
        self._check_open()
        self._forget_pending()

    def close(self) -> None:
        """Forget what was not committed and release the lock; closing twice is harmless.

        In a forked child this leaves the parent's files and lock alone.
        """
        if os.getpid() == self._pid:
            self._forget_pending()
        if self._base is not None:
            self._base.close()
            self._base = None
        if self._lock:
            self._lock.release()
            self._lock = None

    def _check_open(self) -> None:
        if self._lock is None:
            raise IndexClosed("this writer is closed", path=self._directory.path)
        self._lock.check()

    def _start_over(self) -> None:
        """After a commit: forget what was collected, and build on the new generation."""
        try:
            self._forget_pending()
            old, self._base = self._base, Snapshot(self._directory)
            if old is not None:
                old.close()
            self._collect_garbage()
        except BaseException:  # what the next commit would build on is not known
            self.close()
            raise

    def _give_up(self, error: BaseException) -> None:
        """Close this writer and delete what it wrote; a failure of the system becomes CommitFailed."""
        self._forget_pending()
        self._collect_garbage()
        self.close()
        if isinstance(error, OSError):
            raise CommitFailed("nothing was committed", path=self._directory.path, actual=str(error)) from error

    def _collect_garbage(self) -> None:
        """Delete files of our own making that the current generation does not name.

        Not before that generation is certain to outlive a power loss: the files may be those of the one before it.
        Not either where the lock file was deleted: they may be another writer's.
        """
        if self._lock is None or not self._lock.is_in_place():
            return
        try:
            self._directory.sync()
            manifest = Manifest.load(self._directory, latest_generation(self._directory))
            current = manifest.file_names() | {graph_name(segment.file.file_id) for segment in manifest.segments}
        except IndexNotFound:
            current = set()
        except (FormatError, OSError):  # what the index needs cannot be known now
            return
        for name in self._directory.names():
            if _OWN_FILES.fullmatch(name) and name not in current:
                self._directory.delete(name)

    def _builder(self) -> SegmentBuilder:
        if self._pending is None:
            self._pending = SegmentBuilder(self._directory, self._settings, self._threads)
        return self._pending

    def _forget_pending(self) -> None:
        self._deleted.clear()
        if self._pending:
            self._pending.close()
            self._pending = None

    def _segments(self) -> tuple[OpenSegment, ...]:
        return self._base.segments if self._base is not None else ()

    def _delete_committed(self, doc_id: str) -> bool:
        """Mark the document of that id in the segments there are; whether it was live until now."""
        for number, segment in enumerate(self._segments()):
            ordinal = segment.live_ordinal(doc_id)
            if ordinal is None:
                continue
            if number not in self._deleted:
                flags = segment.deleted
                self._deleted[number] = np.zeros(segment.record.n_docs, bool) if flags is None else flags.copy()
            was_live = not self._deleted[number][ordinal]
            self._deleted[number][ordinal] = True
            return was_live
        return False

    def _has_changes(self) -> bool:
        return self._base is None or bool(self._deleted) or (self._pending is not None and len(self._pending) > 0)

    def _generation(self) -> int:
        assert self._base is not None
        return self._base.manifest.generation

    def _finish_pending(self) -> BuiltSegment | None:
        if self._pending is None or not len(self._pending):
            return None
        return self._pending.finish(self._quantizer())

    def _quantizer(self) -> tuple[Quantizer, FileRecord] | None:
        """The quantizer of the newest segment that has one."""
        for segment in reversed(self._segments()):
            if segment.quantizer is not None and self._base is not None:
                records = {record.name: record for record in self._base.manifest.quantizers}
                return segment.quantizer, records[segment.record.quantizer]
        return None

    def _next_manifest(self, built: BuiltSegment | None) -> Manifest:
        segments = [record for record in map(self._kept, range(len(self._segments()))) if record]
        quantizers = list(self._base.manifest.quantizers) if self._base is not None else []
        if built:
            segments.append(built.record)
            quantizers += [built.quantizer] if built.quantizer else []
        used = {segment.quantizer for segment in segments}
        return self._parent().next(tuple(segments), tuple(q for q in quantizers if q.name in used))

    def _parent(self) -> Manifest:
        """The manifest that the next one follows; for a new index a stand-in that was never written."""
        if self._base is not None:
            return self._base.manifest
        generation, commit_id = _root(self._directory)
        return Manifest(
            generation=generation,
            commit_id=commit_id,
            parent_id=bytes(16),
            settings=self._settings,
            encoder=EncoderRecord(
                name=self._encoder.name, identity=self._encoder.identity, normalise=self._encoder.normalise
            ),
            segments=(),
            quantizers=(),
        )

    def _kept(self, number: int) -> SegmentRecord | None:
        """What becomes of a segment: as it is, with new tombstones, or gone when nothing in it is live."""
        record = self._segments()[number].record
        flags = self._deleted.get(number)
        if flags is None:
            return record
        n_deleted = int(flags.sum())
        if n_deleted == record.n_docs:
            return None
        tombstones = write_tombstones(self._directory, record.file.file_id, flags)
        return replace(record, tombstones=tombstones, n_deleted=n_deleted)

    def _make_durable(self, manifest: Manifest) -> None:
        try:
            self._directory.sync()
        except OSError as error:
            self.close()
            raise DurabilityUnknown(
                f"generation {manifest.generation} is visible, but may not survive a power loss",
                path=self._directory.path,
                actual=str(error),
            ) from error


def _root(directory: Directory) -> tuple[int, bytes]:
    """Generation and commit id of what a new index replaces; (0, zeros) where nothing is there."""
    try:
        generation = latest_generation(directory)
    except IndexNotFound:
        return 0, bytes(16)
    try:
        return generation, Manifest.load(directory, generation).commit_id
    except FormatError:  # a damaged index may be replaced too
        return generation, bytes(16)
