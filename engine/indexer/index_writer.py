"""Changes to an index: documents added and deleted are collected, and become visible together at a commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.committer import Committer, Failure
from quarry.engine.indexer.document_encoder import DocumentEncoder, EncodedDocument, EncodedDocuments, OnInvalid
from quarry.engine.indexer.failures import let_go
from quarry.engine.indexer.garbage import collect_garbage
from quarry.engine.indexer.merge_policy import MergePolicy
from quarry.engine.indexer.merge_scheduler import MergeScheduler
from quarry.engine.indexer.segment_builder import BuiltSegment, SegmentBuilder, wants_lists
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.process.worker_pool import PoolClosed, WorkerPool
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import representation_from
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    AccessFailed,
    CommitFailed,
    FormatError,
    IndexClosed,
    IndexNotFound,
    InvalidDocument,
)
from quarry.formats.manifest import EncoderRecord, IndexSettings, Manifest, find_latest_generation
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer, write_quantizer
from quarry.formats.write_lock import WriteLock

__all__ = ["IndexWriter"]


class IndexWriter:
    """The one writer of an index; it holds the write lock until `close`.

    Several threads may use it: a commit takes the documents that any of them has added by then, whole ones.

    After a commit segments are merged in the background as a policy says, in commits of their own.

    Where the system fails, on a full disk for one, before a commit is visible, what was collected stays collected:
    the commit can be made once the disk is well, or be given up with `rollback`.

    Args:
        directory: of the index.
        encoder: that makes the vectors.
        threads: for encoding, training and coding.
        fresh: settings of a new index: the first commit puts it in the place of whatever is there. None: the index
            that is there is changed.
        policy: when segments are merged; None: only by `merge`.
        after_merge: called after each merge, in the background on another thread.
        lock: of the folder, held by the caller, who releases it after `close`; None: this object takes the lock,
            and releases it in `close`.

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
        policy: MergePolicy | None = None,
        after_merge: Callable[[], object] = lambda: None,
        lock: WriteLock | None = None,
    ) -> None:
        self._directory = directory
        self._encoder = encoder
        self._threads = threads
        self._is_automatic = policy is not None
        self._pid = os.getpid()
        self._pool = WorkerPool(threads, "quarry-encode")
        self._mutex = threading.RLock()
        self._owns_lock = lock is None
        self._lock: WriteLock | None = lock or WriteLock(directory.path)
        self._pending: SegmentBuilder | None = None
        self._given_quantizer: Quantizer | None = None
        self._failure: Failure | None = None
        self._is_untidy = False  # whether something that failed may have left files
        self.n_tokens = self.n_rows = 0
        try:
            root = _root(directory, fresh, encoder) if fresh else None
            self._committer = Committer(directory, self._lock, root)
        except BaseException:
            self._release_lock()
            raise
        self._settings = self._committer.manifest.settings
        self._merges = MergeScheduler(self._committer, threads, policy or MergePolicy(), after_merge)
        try:
            self._representation: Representation = representation_from(
                self._settings.representation, self._settings.representation_settings
            )
            self._analyzer = Analyzer.from_settings(
                {"language": self._settings.language, "rules": self._settings.analysis_rules}
            )
        except BaseException:
            self.close()
            raise

    @property
    def document_encoder(self) -> DocumentEncoder:
        """What encodes the documents of this index."""
        return DocumentEncoder(self._encoder, self._representation, self._analyzer)

    def snapshot(self) -> Snapshot:
        """The current generation, sharing the files that this writer has open."""
        return self._committer.snapshot()

    def add(self, documents: Iterable[Document], on_invalid: OnInvalid | None = None) -> int:
        """Encode and collect documents; one whose id exists replaces it. Returns how many were taken.

        Args:
            documents: what to add.
            on_invalid: called for each document that cannot be encoded, which is then left out; None: raise.

        Raises:
            InvalidDocument: a document cannot be indexed; those before it are collected.
            IndexClosed: this writer is closed, or another thread closed it meanwhile.
            CommitFailed: the system failed; what was taken until then, the document under way too, is collected.
        """
        self._check_open()
        how = self.document_encoder
        n_taken = 0
        try:
            with EncodedDocuments(documents, how, self._pool, on_invalid) as encoded:
                for each in encoded:
                    self.add_encoded(each)
                    n_taken += 1
        except PoolClosed:  # by `close` on another thread
            raise self._closed() from None
        return n_taken

    @finishes_before_exit
    def add_encoded(self, encoded: EncodedDocument) -> None:
        """Collect a document that is encoded already; see `add`."""
        with self._mutex:
            if self._lock is None:
                raise self._closed()
            try:
                self._committer.replace(encoded.document.id, lambda: self._builder().add(encoded))
            except (InvalidDocument, FormatError):  # before anything of it was taken
                raise
            except BaseException as error:  # half a document may have been taken
                self._give_up(error)
                raise
            self.n_tokens += encoded.n_tokens
            self.n_rows += len(encoded.vectors.values)
            self._settle()

    def _settle(self) -> None:
        """Move what is collected out of memory; where that fails it stays there."""
        try:
            self._builder().settle()
        except BaseException as error:
            self._stay_or_give_up(
                error, "the system failed while documents were added; those taken until then stay collected"
            )
            raise

    def has_changes(self) -> bool:
        """Whether something was collected since the last commit, and can still be committed."""
        with self._mutex:
            collected = self._pending is not None and len(self._pending) > 0
            return self._lock is not None and (collected or self._committer.has_changes())

    @property
    def n_pending_rows(self) -> int:
        """Centroids collected since the last commit."""
        return self._pending.n_rows if self._pending else 0

    def pending_centroids(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the centroids collected since the last commit, (n, dim) float32 each."""
        return self._pending.centroid_batches() if self._pending else iter(())

    def use_quantizer(self, quantizer: Quantizer) -> None:
        """Use a quantizer when the index has none yet and needs one, instead of training one."""
        self._given_quantizer = quantizer

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete the documents of these ids, where there are any. Returns how many there were."""
        with self._mutex:
            self._check_open()
            n_deleted = 0
            for doc_id in doc_ids:
                pending = self._pending is not None and self._pending.delete(doc_id)
                n_deleted += self._committer.delete(doc_id) or pending
            return n_deleted

    @finishes_before_exit
    def commit(self) -> tuple[int, int]:
        """Make everything collected since the last commit the next generation of the index.

        Returns:
            The generation that is current now, and how many documents were replaced by later ones of the same
            id within this commit.

        Raises:
            CommitFailed: the system failed; the last commit stands, and what was collected stays collected.
            DurabilityUnknown: the commit is visible, but a power loss might undo it, or the system has not said
                whether it is visible; this writer is closed.
            Exception: any other, as where memory is short: likewise, unless the commit is visible.
        """
        with self._mutex:
            self._check_open()
            if not self.has_changes():
                return self._committer.manifest.generation, 0
            try:
                built = self._finish_pending()
                generation = self._committer.commit(built)
                self._forget_pending()
            except BaseException as error:
                self._stay_or_give_up(error, "nothing was committed; what was collected stays collected")
                raise
            if self._is_automatic:
                self._merges.start()
            return generation, built.n_replaced if built else 0

    @finishes_before_exit
    def merge(self, retrain: bool = False) -> int:
        """Merge all committed segments into as few as there can be, on this thread. Returns the generation.

        What is collected for the next commit stays collected.

        Args:
            retrain: whether all centroids are coded anew, with a quantizer that is trained for them.

        Raises:
            FormatError: a segment is damaged; the index stays as it was.
            InvalidSetting: `retrain` where only codes are stored.
            MergeFailed: the system failed; what was committed stands.
            DurabilityUnknown: the merge is visible, but a power loss might undo it; this writer is closed.
        """
        with self._mutex:
            self._check_open()
            try:
                self._merges.merge_all(retrain)
            except BaseException as error:
                self._is_untidy = True
                if self._committer.failure:
                    self._give_up(error)
                raise
            return self._committer.manifest.generation

    def wait_for_merges(self) -> None:
        """Wait until nothing is being merged in the background; see `raise_merge_failure`."""
        self._merges.wait()

    def raise_merge_failure(self) -> None:
        """Raise what a merge in the background failed with, if one did and it was not raised yet.

        The index is whole, and what was committed is. When merging is tried again, see `MergeScheduler`.
        """
        self._merges.raise_failure()

    def rollback(self) -> None:
        """Forget everything collected since the last commit."""
        with self._mutex:
            self._check_open()
            try:
                self._forget_pending()
                self._committer.rollback()
            except BaseException as error:  # documents forgotten, and those that they replace still to be deleted
                self._give_up(error)
                raise

    def close(self, *, abandon: bool = False) -> None:
        """Forget what was not committed and release the lock; closing twice is harmless.

        In a forked child this leaves the parent's files and lock alone.

        Args:
            abandon: whether a merge in the background is given up instead of waited for.

        Raises:
            Exception: what a merge in the background failed with, if nothing has told yet; all is closed.
        """
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._lock is None:
                return
            try:
                self._finish_work(abandon)
            finally:
                self._release()

    def _release(self) -> None:
        try:
            self._pool.close()
        finally:
            self._committer.close()
            self._release_lock()

    def _release_lock(self) -> None:
        if self._lock is not None and self._owns_lock:
            self._lock.release()
        self._lock = None

    def _finish_work(self, abandon: bool) -> None:
        try:
            self._forget_pending()
            if not abandon:
                self._merges.wait()
        finally:
            self._merges.abandon()
            failure = self._failure or self._committer.failure
            is_untidy = self._is_untidy or self._merges.is_untidy or failure
            if is_untidy and not (failure and failure.is_visible):
                self._collect_garbage()

    def _collect_garbage(self) -> None:
        if self._lock:
            collect_garbage(self._directory, self._lock)

    def _check_open(self) -> None:
        with self._mutex:
            if self._lock is not None and self._committer.failure:
                self._shut(self._committer.failure)
            if self._lock is None:
                raise self._closed()
            try:
                self._lock.check()
            except AccessFailed as error:
                message = "nothing was changed, because the lock file cannot be looked up"
                raise CommitFailed(message, path=self._directory.path, actual=str(error)) from error

    def _closed(self) -> IndexClosed:
        """The error that says so, and why, where a failure was the reason."""
        reason = self._failure.reason if self._failure else None
        return IndexClosed("this writer is closed", path=self._directory.path, actual=reason)

    def _stay_or_give_up(self, error: BaseException, message: str) -> None:
        """After a step that changes nothing where it fails; a failure of the system becomes CommitFailed."""
        is_interrupt = not isinstance(error, Exception)  # which may come between any two parts of it
        if self._committer.failure or is_interrupt:
            self._give_up(error)
            return
        let_go(error)
        self._is_untidy = True
        if isinstance(error, OSError):
            raise CommitFailed(message, path=self._directory.path, actual=str(error)) from error

    def _give_up(self, error: BaseException) -> None:
        """Close this writer and delete what it wrote; a failure of the system becomes CommitFailed."""
        self._shut(self._committer.failure or Failure.of(error))
        if isinstance(error, OSError):
            raise CommitFailed("nothing was committed", path=self._directory.path, actual=str(error)) from error

    def _shut(self, failure: Failure) -> None:
        self._failure = failure
        self.close(abandon=True)

    def _builder(self) -> SegmentBuilder:
        if self._pending is None:
            known = self._committer.dictionary
            self._pending = SegmentBuilder(self._directory, self._settings, self._threads, known)
        return self._pending

    def _forget_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending:
            pending.close()

    def _finish_pending(self) -> BuiltSegment | None:
        if self._pending is None or not len(self._pending):
            return None
        existing, given = self._committer.quantizer_for_commit(), self._given_quantizer
        if existing is None and given is not None and wants_lists(self._settings, self._pending.n_rows, True):
            existing = StoredQuantizer(given, write_quantizer(self._directory, given))
        return self._pending.finish(existing)


def _root(directory: Directory, settings: IndexSettings, encoder: Encoder) -> Manifest:
    """The manifest that the first one of a new index follows: a stand-in that is never written."""
    generation, commit_id = _replaced(directory)
    return Manifest(
        generation=generation,
        commit_id=commit_id,
        parent_id=bytes(16),
        settings=settings,
        encoder=EncoderRecord(name=encoder.name, identity=encoder.identity, normalize=encoder.normalise),
        segments=(),
        quantizers=(),
    )


def _replaced(directory: Directory) -> tuple[int, bytes]:
    """Generation and commit id of what a new index replaces; (0, zeros) where nothing is there."""
    try:
        generation = find_latest_generation(directory)
    except IndexNotFound:
        return 0, bytes(16)
    try:
        return generation, Manifest.load(directory, generation).commit_id
    except FormatError:  # a damaged index may be replaced too
        return generation, bytes(16)
