"""Changes to the shards of an index: every document goes to the shard that its id belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.filtering.evaluation import Kinds, join_kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.indexer.batches.batch_writer import BatchWriter
from quarry.engine.indexer.batches.document_encoder import DocumentEncoder
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.progress import ProgressParts, Report, no_report
from quarry.engine.scoring.metric import Metric
from quarry.formats.manifest import IndexSettings
from quarry.formats.shard_set import shard_of

__all__ = ["ShardWriters"]

R = TypeVar("R")


class ShardWriters(BatchWriter):
    """The writers of all shards, used as one; see `quarry.engine.indexer.index_writer.IndexWriter`.

    Each shard is committed in one step, but not all of them together: if a commit fails, the shards before the one
    that failed are committed, and all others keep what was collected for them until the commit is tried again.

    Args:
        names: of the shards, for messages.
        writers: of the shards, in the same order; closed by `close`.
        threads: for encoding.
    """

    def __init__(self, names: Sequence[str], writers: Sequence[IndexWriter], threads: int) -> None:
        super().__init__(threads)
        self._names = names
        self.writers = writers
        known = [writer for writer in writers if not writer.chooses_storage]
        if known:  # shards without documents store their first ones as the others do
            self.fix_storage(known[0].metric)

    @property
    def n_tokens(self) -> int:
        """Tokens encoded so far."""
        return sum(writer.n_tokens for writer in self.writers)

    @property
    def n_rows(self) -> int:
        """Centroids made so far."""
        return sum(writer.n_rows for writer in self.writers)

    @property
    def metric(self) -> Metric:
        """The metric of the index."""
        return self.writers[0].metric

    @property
    def document_encoder(self) -> DocumentEncoder:
        """The encoder of the documents of the index."""
        return self.writers[0].document_encoder

    @property
    def chooses_storage(self) -> bool:
        """Whether the first documents decide how vectors are stored; false once a shard has some."""
        return all(writer.chooses_storage for writer in self.writers)

    def fix_storage(self, metric: Metric) -> None:
        """Fix the type of stored vectors, and what is subtracted from them, in every shard."""
        for writer in self.writers:
            writer.fix_storage(metric)

    @property
    def settings(self) -> IndexSettings:
        """The settings of the index."""
        return self.writers[0].settings

    def add_batch(self, batch: EncodedBatch, encoder: Encoder | None = None) -> None:
        """Collect each document of a batch in the shard that it belongs to.

        Args:
            batch: the documents.
            encoder: not needed, because sharded indexes are not encoded again.
        """
        del encoder
        owners = [shard_of(doc_id, len(self.writers)) for doc_id in batch.ids]
        for number, part in batch.divide(owners).items():
            self.writers[number].add_batch(part)

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete the documents of these ids; return how many there were."""
        return sum(self._owner(doc_id).delete([doc_id]) for doc_id in doc_ids)

    def check_updates(
        self, doc_ids: Iterable[str], changes: Mapping[str, object], *, is_skipping: bool
    ) -> dict[str, Mapping[str, object]]:
        """Return what `update` needs; see `quarry.engine.indexer.index_writer.IndexWriter.check_updates`."""
        together: dict[str, Mapping[str, object]] = {}
        for doc_id in doc_ids:
            together |= self._owner(doc_id).check_updates([doc_id], changes, is_skipping=is_skipping)
        return together

    def update(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Change metadata when its shard is committed next; see `check_updates`."""
        for doc_id, each in changes.items():
            self._owner(doc_id).update({doc_id: each})

    def find_kinds(self, condition: Condition) -> Kinds | None:
        """Return the kinds of the values that a condition compares; None if no shard has a document."""
        return join_kinds(writer.find_kinds(condition) for writer in self.writers)

    def delete_matching(self, condition: Condition) -> int:
        """Delete the documents that satisfy a condition; return how many there were."""
        return sum(writer.delete_matching(condition) for writer in self.writers)

    def has_changes(self) -> bool:
        """Return whether something was collected since the last commit."""
        return any(writer.has_changes() for writer in self.writers)

    def commit(self) -> tuple[int, int]:
        """Commit every shard that has changes, one after the other.

        Returns:
            The generations of all shards added up, and how many documents were replaced by later ones of the same
            id within this commit.

        Raises:
            QuarryError: as `IndexWriter.commit` raises it for one of the shards; a note says which are committed.
        """
        committed = self._each(lambda writer: writer.commit(), "committed")
        return sum(generation for generation, _ in committed), sum(n_replaced for _, n_replaced in committed)

    def merge(self, retrain: bool = False, report: Report = no_report) -> int:
        """Merge the segments of every shard; return the generations of all shards added up.

        Args:
            retrain: whether each shard trains a new quantizer.
            report: called with how many documents are merged; the total grows with each shard.

        Raises:
            QuarryError: as `IndexWriter.merge` raises it for one of the shards; a note says which are merged.
        """
        parts = ProgressParts(report)
        return sum(self._each(lambda writer: writer.merge(retrain, parts.part()), "merged"))

    def set_dense_weight(self, weight: float | None) -> int:
        """Store the default weight of dense scores in every shard; return their generations added up."""
        return sum(self._each(lambda writer: writer.set_dense_weight(weight), "changed"))

    def rollback(self) -> None:
        """Discard everything collected since the last commit.

        Raises:
            QuarryError: the first error of a shard; the others have discarded what they collected.
        """
        _of_all(self.writers, lambda writer: writer.rollback())

    def raise_merge_failure(self) -> None:
        """Raise the first error of a background merge that was not raised yet."""
        for writer in self.writers:
            writer.raise_merge_failure()

    def close(self, *, abandon: bool = False) -> None:
        """Discard what was not committed and release the locks; closing twice is harmless.

        Args:
            abandon: whether merges in the background are given up instead of waited for.

        Raises:
            Exception: the first error of a background merge that was not raised yet; all is closed.
        """
        self._pool.close()
        _of_all(self.writers, lambda writer: writer.close(abandon=abandon))

    def check_open(self) -> None:
        """Raise IndexClosed if a writer is closed, or cannot go on after an error."""
        for writer in self.writers:
            writer.check_open()

    def _owner(self, doc_id: str) -> IndexWriter:
        return self.writers[shard_of(doc_id, len(self.writers))]

    def _each(self, change: Callable[[IndexWriter], R], participle: str) -> list[R]:
        done: list[R] = []
        for name, writer in zip(self._names, self.writers, strict=True):
            try:
                done.append(change(writer))
            except BaseException as error:
                error.add_note(
                    f"This is an error of the shard {name}; "
                    f"{len(done)} of {len(self._names)} shards were {participle} before."
                )
                raise
        return done


def _of_all(writers: Iterable[IndexWriter], change: Callable[[IndexWriter], object]) -> None:
    """Make a change in every writer, also after an error; then raise the first one."""
    failure: BaseException | None = None
    for writer in writers:
        try:
            change(writer)
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
