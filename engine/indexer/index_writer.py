"""The writer of an index: encodes documents on several threads, and passes each to its partition."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from quarry.engine.documents.document import Document
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.filtering.evaluation import Kinds, join_kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.batches.encode import DocumentEncoder, EncodedBatches, OnInvalid, column_bounds
from quarry.engine.indexer.batches.stored_type import (
    N_SAMPLED,
    choose_storage,
    column_sample,
    read_given_sample,
)
from quarry.engine.indexer.collected_changes import CollectedChanges
from quarry.engine.indexer.commits.committer import Compose
from quarry.engine.indexer.partition_writer import PartitionWriter
from quarry.engine.indexer.segments.adopted_segments import MAX_OPEN, StagedSegment
from quarry.engine.process.worker_pool import PoolClosed, WorkAhead, WorkerPool, result_of
from quarry.engine.progress import ProgressParts, Report, no_report
from quarry.engine.representation.base import Representation
from quarry.engine.scoring.metric import Metric
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexClosed
from quarry.formats.manifest import IndexSettings, Manifest
from quarry.formats.shard_set import (
    collect_shard_garbage,
    has_shard_set,
    load_newest_shard_set,
    shard_directory,
    shard_of,
)
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.quantizer import Quantizer
from quarry.formats.write_lock import WriteLock

__all__ = ["IndexWriter"]

R = TypeVar("R")


class IndexWriter:
    """Collects changes and commits them; the only writer of an index, whose lock it holds until `close`.

    Several threads may use it: a commit contains every document whose `add` had finished.

    An index without shards is one partition. Each shard is committed in one step, but not all of them together: if
    a commit fails, the shards before the one that failed are committed, and all others keep what was collected for
    them until the commit is tried again; see `quarry.engine.indexer.partition_writer.PartitionWriter`.

    Args:
        directory: the folder of the index.
        encoder: computes the vectors of documents without vectors; not used if the index was built without one.
        threads: for encoding, training and coding.
        representation: an object for the representation that the settings name; None: it is found by its name.
        fresh: settings of a new index; the first commit replaces an index that exists. None: the existing index
            is changed.
        thresholds: sizes from which on segments have inverted lists or are merged; None: the defaults.
        merges: whether segments are merged in the background after commits; otherwise only by `merge`.
        after_merge: called after each merge, in the background on another thread.
        lock: the lock of the folder, held by the caller, who releases it after `close`; None: this object takes
            the lock, and releases it in `close`.
        wait_s: seconds to wait for another writer to release the lock.

    Attributes:
        lock: the lock of the index, held until `close`.
        partitions: their writers.

    Raises:
        IndexLocked: there is another writer of the index, or of a shard.
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
    """

    def __init__(  # noqa: PLR0913  # keywords, each with a default
        self,
        directory: Directory,
        encoder: Encoder,
        threads: int,
        *,
        representation: Representation | None = None,
        fresh: IndexSettings | None = None,
        thresholds: Thresholds | None = None,
        merges: bool = False,
        after_merge: Callable[[], object] = lambda: None,
        lock: WriteLock | None = None,
        wait_s: float = 0,
    ) -> None:
        self._pid = os.getpid()
        self._directory = directory
        self._pool = WorkerPool(threads, "quarry-encode")
        self._folders: tuple[str, ...] | None = None
        self._own_lock: WriteLock | None = None
        self.partitions: list[PartitionWriter] = []
        self._open_partition = partial(
            PartitionWriter,
            encoder=encoder,
            threads=threads,
            pool=self._pool,
            representation=representation,
            fresh=fresh,
            thresholds=thresholds,
            merges=merges,
            after_merge=after_merge,
        )
        try:
            self.lock = self._open(lock, wait_s, is_new=fresh is not None)
        except BaseException:
            self.close(abandon=True)
            raise

    def _open(self, lock: WriteLock | None, wait_s: float, *, is_new: bool) -> WriteLock:
        """Open the writers of all partitions; return the lock of the index."""
        directory = self._directory
        if is_new or not has_shard_set(directory):
            self.partitions.append(self._open_partition(directory, lock=lock, wait_s=wait_s))
            return self.partitions[0].lock
        self._own_lock = WriteLock(directory.path, wait_s)
        shard_set = load_newest_shard_set(directory)
        shard_set.check_writable(directory)
        collect_shard_garbage(directory, self._own_lock)
        self._open_shards(shard_set.folders)
        return self._own_lock

    def _open_shards(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        for name in folders:
            shard = shard_directory(self._directory, name, len(folders))
            self.partitions.append(self._open_partition(shard))
        known = [each for each in self.partitions if not each.chooses_storage]
        if known:  # shards without documents store their first ones as the others do
            self._fix_storage(known[0].metric)

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None: the index has no shards."""
        return None if self._folders is None else len(self._folders)

    @property
    def n_tokens(self) -> int:
        """Tokens encoded so far."""
        return sum(each.n_tokens for each in self.partitions)

    @property
    def n_rows(self) -> int:
        """Centroids made so far."""
        return sum(each.n_rows for each in self.partitions)

    @property
    def metric(self) -> Metric:
        """The metric of the index."""
        return self.partitions[0].metric

    @property
    def document_encoder(self) -> DocumentEncoder:
        """The encoder of the documents of the index."""
        return self.partitions[0].document_encoder

    def snapshots(self) -> list[Snapshot]:
        """Return a snapshot of each partition that shares the files its writer has open."""
        return [each.snapshot() for each in self.partitions]

    def add(self, documents: Iterable[Document], on_invalid: OnInvalid | None = None) -> int:
        """Encode and collect documents, and return their number; a document replaces one with the same id.

        Args:
            documents: what to add.
            on_invalid: called for each document that cannot be encoded, which is then left out; None: raise.

        Raises:
            InvalidDocument: a document cannot be indexed; those before it are collected.
            IndexClosed: this writer is closed, or another thread closed it meanwhile.
            CommitFailed: an I/O error occurred; the documents until then are collected.
        """
        self.check_open()
        documents, n_added = self.choose_storage(documents), 0
        how = self.document_encoder
        with self._closed_error(), EncodedBatches(documents, how, self._pool, on_invalid) as batches:
            for batch in batches:
                if self.chooses_storage and not isinstance(how.encoder, NoEncoder):
                    chosen = choose_storage(self.metric, self.metric.vectors(batch.vectors[:N_SAMPLED]))
                    self._fix_storage(replace(chosen, mean=None))  # no mean was subtracted from this batch
                self.add_batch(batch, how.encoder)
                n_added += len(batch)
        return n_added

    def add_columns(self, columns: DocumentColumns) -> int:
        """Collect documents with vectors, given as columns, and return their number; see `add`."""
        self.check_open()
        if self.chooses_storage:
            self._fix_storage(choose_storage(self.metric, column_sample(columns, self.metric.dim)))
        bounds, encode = column_bounds(columns), partial(self.document_encoder.encode_columns, columns)
        with self._closed_error(), WorkAhead(self._pool, bounds, encode, 2 * self._pool.threads) as futures:
            for future in futures:
                self.add_batch(result_of(future))
        return len(columns)

    @property
    def settings(self) -> IndexSettings:
        """The settings of the index."""
        return self.partitions[0].settings

    @property
    def chooses_storage(self) -> bool:
        """Whether the first documents decide how vectors are stored; false once a partition has some."""
        return all(each.chooses_storage for each in self.partitions)

    def choose_storage(self, documents: Iterable[Document]) -> Iterable[Document]:
        """Fix how a new index stores vectors, by those that documents came with; return all documents."""
        if not (self.chooses_storage and isinstance(self.document_encoder.encoder, NoEncoder)):
            return documents
        vectors, documents = read_given_sample(documents, self.metric.dim)
        self._fix_storage(choose_storage(self.metric, vectors))
        return documents

    def _fix_storage(self, metric: Metric) -> None:
        for each in self.partitions:
            each.fix_storage(metric)

    def add_batch(self, batch: Batch, encoder: Encoder | None = None) -> None:
        """Collect documents that are encoded already, each in the partition that it belongs to; see `add`.

        Args:
            batch: the documents.
            encoder: what their vectors were made with, in case the index was encoded again meanwhile, as those
                without shards may be; None: they came with vectors.
        """
        if len(self.partitions) == 1:
            self.partitions[0].add_batch(batch, encoder)
            return
        owners = [shard_of(doc_id, len(self.partitions)) for doc_id in batch.ids]
        for number, part in batch.divide(owners).items():
            self.partitions[number].add_batch(part)

    def adopt(self, batches: Sequence[Mapping[int, StagedSegment]], n_tokens: int = 0) -> int:
        """Collect the documents of segments that other processes wrote; see `PartitionWriter.adopt`.

        Args:
            batches: in the order of their documents, segments by the number of their partition.
            n_tokens: encoded for them.
        """
        max_open = max(2, MAX_OPEN // len(self.partitions))
        n_documents = 0
        for number, each in enumerate(self.partitions):
            own = [batch[number] for batch in batches if number in batch]
            n_documents += each.adopt(own, n_tokens if number == 0 else 0, max_open)
        return n_documents

    def use_quantizer(self, quantizer: Quantizer) -> None:
        """Use a quantizer when the index has none yet and has inverted lists, instead of training one."""
        for each in self.partitions:
            each.apply(CollectedChanges.use_quantizer, quantizer)

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete the documents with these ids, and return how many there were."""
        return sum(owner.apply(CollectedChanges.delete, own) for owner, own in self._owners(doc_ids))

    def check_updates(
        self, doc_ids: Iterable[str], changes: Mapping[str, object], *, is_skipping: bool
    ) -> dict[str, Mapping[str, object]]:
        """Return what `update` needs to change the metadata of the documents with these ids that are committed.

        Args:
            doc_ids: ids; those that no document has are ignored.
            changes: new values of fields; None removes a field.
            is_skipping: whether documents that are not committed yet are ignored.

        Raises:
            InvalidSetting: a document is not committed yet, and not `is_skipping`.
            InvalidDocument: metadata would become too large; the message names the document.
            FormatError: a document is damaged.
        """
        together: dict[str, Mapping[str, object]] = {}
        for owner, own in self._owners(doc_ids):
            together |= owner.apply(CollectedChanges.check_updates, own, changes, is_skipping=is_skipping)
        return together

    def update(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Change metadata at the next commit; see `check_updates`."""
        for owner, own in self._owners(changes):
            owner.apply(CollectedChanges.update, {doc_id: changes[doc_id] for doc_id in own})

    def find_kinds(self, condition: Condition) -> Kinds | None:
        """Return the kinds of the values that a condition compares; None if there is no document.

        Documents that were collected and not committed are read too; deleted ones are ignored.
        """
        return join_kinds(each.apply(CollectedChanges.find_kinds, condition) for each in self.partitions)

    def delete_matching(self, condition: Condition) -> int:
        """Delete the documents that satisfy a condition, and return how many there were."""
        return sum(each.apply(CollectedChanges.delete_matching, condition) for each in self.partitions)

    def has_changes(self) -> bool:
        """Return whether something was collected since the last commit."""
        return any(each.has_changes() for each in self.partitions)

    def commit(self) -> tuple[int, int]:
        """Commit every partition that has changes, one after the other.

        Returns:
            The generations of all partitions added up, and how many documents were replaced by later ones of the
            same id within this commit.

        Raises:
            QuarryError: as `PartitionWriter.commit` raises it; a note says which shards are committed.
        """
        committed = self._each(lambda each: each.commit(), "committed")
        return sum(generation for generation, _ in committed), sum(n_replaced for _, n_replaced in committed)

    def merge(self, retrain: bool = False, report: Report = no_report) -> int:
        """Merge the segments of every partition; return the generations added up.

        Args:
            retrain: whether each partition trains a new quantizer.
            report: called with how many documents are merged; the total grows with each partition.

        Raises:
            QuarryError: as `PartitionWriter.merge` raises it; a note says which shards are merged.
        """
        parts = ProgressParts(report)
        return sum(self._each(lambda each: each.merge(retrain, parts.part()), "merged"))

    def rewrite(self, compose: Compose, encoder: Encoder | None = None) -> int:
        """Make a generation of an index without shards; see `PartitionWriter.rewrite`."""
        (only,) = self.partitions
        return only.rewrite(compose, encoder)

    def change_manifests(self, change: Callable[[Manifest], Manifest]) -> int:
        """Store settings of no segment in every partition; return their generations added up."""
        return sum(self._each(lambda each: each.change_manifest(change), "changed"))

    def rollback(self) -> None:
        """Discard everything collected since the last commit.

        Raises:
            QuarryError: the first error of a partition; the others have discarded what they collected.
        """
        _of_all(self.partitions, lambda each: each.rollback())

    def raise_merge_failure(self) -> None:
        """Raise the first error of a background merge that was not raised yet."""
        for each in self.partitions:
            each.raise_merge_failure()

    def close(self, *, abandon: bool = False) -> None:
        """Discard what was not committed and release the lock; closing twice is harmless.

        In a forked child this leaves the parent's files and locks alone.

        Args:
            abandon: whether merges in the background are given up instead of waited for.

        Raises:
            Exception: the first error of a background merge that was not raised yet; all is closed.
        """
        if os.getpid() != self._pid:
            return
        try:
            _of_all(self.partitions, lambda each: each.close(abandon=abandon))
        finally:
            self._pool.close()
            if self._own_lock is not None:
                self._own_lock.release()

    def check_open(self) -> None:
        """Raise IndexClosed if this writer is closed, or cannot go on after an error."""
        for each in self.partitions:
            each.check_open()

    def _owners(self, doc_ids: Iterable[str]) -> list[tuple[PartitionWriter, Iterable[str]]]:
        """Divide ids among the partitions that they belong to."""
        if len(self.partitions) == 1:
            return [(self.partitions[0], doc_ids)]
        owned: dict[int, list[str]] = {}
        for doc_id in doc_ids:
            owned.setdefault(shard_of(doc_id, len(self.partitions)), []).append(doc_id)
        return [(self.partitions[number], own) for number, own in owned.items()]

    def _each(self, change: Callable[[PartitionWriter], R], participle: str) -> list[R]:
        done: list[R] = []
        for number, each in enumerate(self.partitions):
            try:
                done.append(change(each))
            except BaseException as error:
                if self._folders is not None:
                    error.add_note(
                        f"This is an error of the shard {self._folders[number]}; "
                        f"{len(done)} of {len(self._folders)} shards were {participle} before."
                    )
                raise
        return done

    @contextmanager
    def _closed_error(self) -> Iterator[None]:
        """Raise IndexClosed if `close` on another thread ended the threads."""
        try:
            yield
        except PoolClosed:
            self.check_open()
            raise IndexClosed("this writer is closed") from None


def _of_all(partitions: Iterable[PartitionWriter], change: Callable[[PartitionWriter], object]) -> None:
    """Make a change in every partition, also after an error; then raise the first one."""
    failure: BaseException | None = None
    for each in partitions:
        try:
            change(each)
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
