"""Changes to a partition: documents added and deleted are collected, and become visible together at a commit."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from quarry.engine.analysis.auto_analyzer import open_analyzer
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.batches.encode import DocumentEncoder
from quarry.engine.indexer.collected_changes import CollectedChanges
from quarry.engine.indexer.commits.committer import Committer, Compose
from quarry.engine.indexer.commits.failures import WriterState, clear_frames
from quarry.engine.indexer.commits.garbage import collect_garbage
from quarry.engine.indexer.commits.generation import make_root
from quarry.engine.indexer.merge_scheduler import MergeScheduler
from quarry.engine.indexer.segments.adopted_segments import MAX_OPEN, StagedSegment
from quarry.engine.indexer.segments.new_quantizer import ListPlan, TrainingRows
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.progress import Report, no_report
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import stored_representation
from quarry.engine.scoring.metric import Metric, stored_dim
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    AccessFailed,
    CommitFailed,
    EncoderMismatch,
    FormatError,
    InvalidDocument,
    InvalidSetting,
)
from quarry.formats.manifest import IndexSettings, Manifest, MetricRecord
from quarry.formats.snapshot import Snapshot
from quarry.formats.write_lock import WriteLock

__all__ = ["PartitionWriter"]

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class PartitionWriter:
    """Collects changes and commits them; the only writer of an index without shards, or of a shard.

    Several threads may use it: a commit contains every document whose `add_batch` had finished.

    If an I/O error occurs before a commit is visible, for example because the disk is full, what was collected is
    kept: the commit can be tried again, or given up with `rollback`. `WriterStatus` lists what failures lead to.

    Args:
        directory: the folder of the partition.
        encoder: computes the vectors of documents without vectors; not used if the index was built without one.
        threads: for training and coding.
        pool: threads that compress texts.
        representation: this and the following are as for `quarry.engine.indexer.index_writer.IndexWriter`.
        fresh: see there.
        thresholds: see there.
        merges: see there.
        after_merge: see there.
        lock: see there.
        wait_s: see there.

    Attributes:
        lock: the lock of the folder, held until `close`.
        settings: the settings of the index.
        metric: the metric of the index.
        n_tokens: tokens encoded so far.
        n_rows: centroids made so far.

    Raises:
        IndexLocked: there is another writer.
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
    """

    def __init__(  # noqa: PLR0913  # keywords, each with a default
        self,
        directory: Directory,
        encoder: Encoder,
        threads: int,
        pool: WorkerPool,
        *,
        representation: Representation | None = None,
        fresh: IndexSettings | None = None,
        thresholds: Thresholds | None = None,
        merges: bool = False,
        after_merge: Callable[[], object] = lambda: None,
        lock: WriteLock | None = None,
        wait_s: float = 0,
    ) -> None:
        self._directory = directory
        self._pool = pool
        self._encoder = encoder
        self._given = representation
        self._threads = threads
        self._thresholds = thresholds or Thresholds()
        self._is_automatic = merges
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._owns_lock = lock is None
        self.lock = lock or WriteLock(directory.path, wait_s)
        self._state = WriterState(directory.path)
        self.n_tokens = self.n_rows = 0
        try:
            root = make_root(directory, fresh, encoder) if fresh else None
            self._committer = Committer(directory, self.lock, root, self._state)
        except BaseException:
            self._release_lock()
            raise
        self._after_merge = after_merge
        try:
            self._follow_settings()
        except BaseException:
            self._release()
            raise

    def _follow_settings(self) -> None:
        """Prepare for changes with the settings of the current generation."""
        manifest = self._committer.current.manifest
        self.settings = manifest.settings
        self.metric = Metric.of(manifest)
        if not has_encoder(manifest.encoder):
            self._encoder = NoEncoder(self.settings.dim, manifest.encoder.normalize)
        self._representation: Representation = stored_representation(
            self.settings.representation, self.settings.representation_settings, self._given
        )
        self._analyzer = open_analyzer(self.settings.language, self.settings.analysis_rules)
        is_same = self._encoder.identity == manifest.encoder.identity and not isinstance(self._encoder, NoEncoder)
        encoder = self._encoder if is_same else None  # it counts if vectors of the index are its own
        self._plan = ListPlan(self.settings, self._threads, self._thresholds, encoder)
        self._merges = MergeScheduler(self._committer, self._plan, self._after_merge)
        self._changes = CollectedChanges(
            self._directory, self._committer, self._plan, self._analyzer, self._pool.submit
        )

    @property
    def document_encoder(self) -> DocumentEncoder:
        """The encoder of the documents of this index."""
        return DocumentEncoder(self._encoder, self._representation, self._analyzer, self.metric, self.settings)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current generation that shares the files this writer has open."""
        return self._committer.snapshot()

    @property
    def chooses_storage(self) -> bool:
        """Whether the first documents decide how vectors are stored; false once there are some."""
        is_empty = not self._committer.current.manifest.segments and self._changes.training_rows is None
        return is_empty and self.metric.mean is None

    def fix_storage(self, metric: Metric) -> None:
        """Fix the type of stored vectors, and what is subtracted from them, as long as there are no documents."""
        with self._mutex:
            if self.chooses_storage and metric is not self.metric:
                record = self.settings.metric
                if metric.mean is not None:
                    record = record or MetricRecord(name=metric.name, dim=metric.dim)
                    record = replace(record, mean=metric.mean.astype("<f4").tobytes())
                settings = replace(self.settings, centroids=metric.stored_as, metric=record)
                if record is not None and record.by_distance:
                    settings = replace(settings, dim=stored_dim(record.dim, settings.code_bytes))
                self.settings = self._plan.settings = settings
                self._committer.fix_settings(settings)
                self.metric = Metric.of_settings(settings, is_normalized=self._encoder.normalize)

    @finishes_before_exit
    def add_batch(self, batch: Batch, encoder: Encoder | None = None) -> None:
        """Collect documents that are encoded already; one replaces another with the same id.

        Args:
            batch: the documents.
            encoder: what their vectors were made with; None: they came with vectors.

        Raises:
            EncoderMismatch: the index was encoded again with another encoder meanwhile.
        """
        with self._mutex:
            if self._state.is_closed:
                raise self._state.closed_error()
            if encoder is not None and encoder is not self._encoder:
                raise EncoderMismatch(
                    "the index was encoded again with another encoder while documents were added; add them again",
                    path=self._directory.path,
                    expected=self._encoder.name,
                    actual=encoder.name,
                )
            try:
                self._changes.add(batch)
            except (InvalidDocument, InvalidSetting, FormatError):  # raised before any document was added
                raise
            except BaseException as error:  # a part of the batch may have been added
                self._fail(error)
                raise
            self.n_tokens += sum(batch.n_tokens)
            self.n_rows += len(batch.vectors)
            try:
                self._changes.spill()
            except BaseException as error:
                self._fail(
                    error, "documents could not be moved to temporary files; those added until then are kept"
                )
                raise

    @finishes_before_exit
    def adopt(self, segments: Sequence[StagedSegment], n_tokens: int = 0, max_open: int = MAX_OPEN) -> int:
        """Collect the documents of segments that other processes wrote; return how many documents there are.

        A document replaces one with the same id in the index or in an earlier segment. The files are read by the
        next commit, which writes their documents to one segment as if they had been added in this order.

        Args:
            segments: in the order of their documents; their files stay until the commit.
            n_tokens: encoded for them.
            max_open: how many files may be open at once.

        Raises:
            InvalidSetting: documents were collected already since the last commit.
            FormatError: a file is damaged; nothing was collected.
        """
        with self._mutex:
            self.check_open()
            if not segments:
                return 0
            staged = self._changes.open_staged(segments, max_open)
            try:
                self._changes.adopt(staged)
            except BaseException as error:  # some of the documents that they replace may be deleted
                self._fail(error)
                raise
            self.n_tokens += n_tokens
            self.n_rows += staged.n_rows
            return len(staged)

    def has_changes(self) -> bool:
        """Whether something was collected since the last commit, and this writer is open."""
        with self._mutex:
            return not self._state.is_closed and bool(self._changes)

    @property
    def pending_rows(self) -> TrainingRows | None:
        """The centroids collected since the last commit, to train a quantizer on; None if there are none."""
        return self._changes.training_rows

    def apply(
        self, change: Callable[Concatenate[CollectedChanges, P], R], *arguments: P.args, **keywords: P.kwargs
    ) -> R:
        """Call a method of what was collected since the last commit, while other threads wait."""
        with self._mutex:
            self.check_open()
            return change(self._changes, *arguments, **keywords)

    @finishes_before_exit
    def commit(self) -> tuple[int, int]:
        """Make everything collected since the last commit the next generation of the index.

        Returns:
            The generation that is current now, and how many documents were replaced by later ones of the same
            id within this commit.

        Raises:
            CommitFailed: an I/O error occurred; the last commit is still current, and what was collected is kept.
            DurabilityUnknown: the commit is visible, but a power loss may undo it, or whether it is visible is
                unknown too; this writer is closed.
            Exception: any other, such as MemoryError: as CommitFailed, unless the commit is visible.
        """
        with self._mutex:
            self.check_open()
            if not self.has_changes():
                return self._committer.current.manifest.generation, 0
            try:
                built = self._changes.finish()
                generation = self._committer.commit(built, self._changes.updates)
                self._changes.discard()
            except BaseException as error:
                self._fail(error, "nothing was committed; what was collected is kept")
                raise
            n_added = built.record.n_live if built else 0
            _log.info("%s: committed generation %d, %d new documents", self._directory.path, generation, n_added)
            if self._is_automatic:
                self._merges.start()
            return generation, built.n_replaced if built else 0

    @finishes_before_exit
    def merge(self, retrain: bool = False, report: Report = no_report) -> int:
        """Merge all committed segments into as few as possible, on this thread, and return the generation.

        What was collected for the next commit is kept.

        Args:
            retrain: whether to train a new quantizer on all centroids and encode them again.
            report: called with how many documents of how many are merged.

        Raises:
            FormatError: a segment is damaged; the index is unchanged.
            InvalidSetting: `retrain` on an index of codes alone.
            MergeFailed: an I/O error occurred; the last commit is still current.
            DurabilityUnknown: the merge is visible, but a power loss may undo it; this writer is closed.
        """
        with self._mutex:
            self.check_open()
            try:
                self._merges.merge_all(retrain, report)
            except BaseException as error:
                self._state.note_orphan_files()
                if not self._state.can_commit:
                    self._fail(error)
                raise
            return self._committer.current.manifest.generation

    @finishes_before_exit
    def rewrite(self, compose: Compose, encoder: Encoder | None = None) -> int:
        """Make a generation that `compose` returns, after background merges have ended; return its number.

        Args:
            compose: see `quarry.engine.indexer.commits.committer.Compose`.
            encoder: the encoder of the vectors of the new generation; None: they are of the same encoder as
                before.

        Raises:
            InvalidSetting: something was collected that is not committed.
            QuarryError: as `commit` raises it, or as `compose` does; if nothing was committed, the new files are
                deleted.
        """
        with self._mutex:
            self.check_open()
            if self.has_changes():
                raise InvalidSetting(
                    "there are additions or deletions that are not committed; commit or roll back first",
                    path=self._directory.path,
                )
            try:
                self._merges.join()
                before = self._committer.current.manifest.generation
                generation = self._committer.rewrite(compose)
                if encoder is not None and generation != before:
                    self._merges.abandon()
                    self._encoder = encoder
                    self._follow_settings()
            except BaseException as error:
                self._fail(error, "nothing was committed")
                raise
            if self._is_automatic:
                self._merges.start()
            return generation

    def change_manifest(self, change: Callable[[Manifest], Manifest]) -> int:
        """Store settings of no segment in a generation of its own; return its number."""
        with self._mutex:
            generation = self.rewrite(lambda current, _: change(current.manifest))
            self.settings = self._plan.settings = self._committer.current.manifest.settings
            return generation

    def raise_merge_failure(self) -> None:
        """Raise the error that a merge in the background failed with, once.

        The last commit is still current. See `MergeScheduler` for when merging is tried again.
        """
        self._merges.raise_failure()

    def rollback(self) -> None:
        """Discard everything collected since the last commit."""
        with self._mutex:
            self.check_open()
            try:
                self._changes.discard()
                self._committer.rollback()
            except BaseException as error:  # documents may be discarded whose predecessors would still be deleted
                self._fail(error)
                raise

    def close(self, *, abandon: bool = False) -> None:
        """Discard what was not committed and release the lock; closing twice is harmless.

        In a forked child this leaves the parent's files and lock alone.

        Args:
            abandon: whether a merge in the background is given up instead of waited for.

        Raises:
            Exception: what a merge in the background failed with, if it was not raised yet; everything is closed.
        """
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._state.is_closed:
                return
            try:
                self._finish_work(abandon)
            finally:
                self._release()

    def _finish_work(self, abandon: bool) -> None:
        try:
            self._changes.discard()
            if not abandon:
                self._merges.wait()
        finally:
            self._merges.abandon()
            if self._state.has_orphan_files:
                collect_garbage(self._directory, self.lock)

    def _release(self) -> None:
        self._committer.close()
        self._release_lock()

    def _release_lock(self) -> None:
        if self._owns_lock:
            self.lock.release()
        self._state.close()

    def check_open(self) -> None:
        """Check that changes can be made; close this writer if it has failed.

        Raises:
            IndexClosed: it is closed, or has failed.
            IndexLocked: the lock was lost to another writer.
            CommitFailed: the lock file cannot be looked up.
        """
        with self._mutex:
            if not self._state.can_commit:  # a merge in the background may have failed
                self.close(abandon=True)
            self._state.check()
            try:
                self.lock.check()
            except AccessFailed as error:
                message = "nothing was changed, because the lock file cannot be looked up"
                raise CommitFailed(message, path=self._directory.path, actual=str(error)) from error

    def _fail(self, error: BaseException, message: str | None = None) -> None:
        """Record that a step failed; close this writer unless it can go on.

        Args:
            error: what the step failed with.
            message: the message of the error, if the failed step has changed nothing. None: the step may be half
                done, and the writer is closed.

        Raises:
            CommitFailed: `error` is an I/O error.
        """
        is_interrupt = not isinstance(error, Exception)  # which may come between any two parts of a step
        if message is None or is_interrupt or not self._state.can_commit:
            message = "nothing was committed"
            self._merges.stop()
            self._state.fail(error)
            self.close(abandon=True)
        else:
            self._state.note_orphan_files()
            clear_frames(error)
        if isinstance(error, OSError):
            raise CommitFailed(message, path=self._directory.path, actual=str(error)) from error
