"""The shards of a build: complete indexes in new folders, which become the index by one rename."""

from __future__ import annotations

import secrets

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.commits.publication import sync_visible
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segments.new_quantizer import ListPlan, join_rows
from quarry.engine.representation.base import Representation
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, IndexNotFound
from quarry.formats.manifest import IndexSettings
from quarry.formats.shard_set import (
    ShardSet,
    collect_shard_garbage,
    delete_folders,
    find_latest_shard_set,
    make_folders,
    shard_folder_names,
)
from quarry.formats.vectors.quantizer import Quantizer
from quarry.formats.write_lock import WriteLock

__all__ = ["NewShards"]


class NewShards(IndexWriter):
    """Writes new shards; the index that is replaced, if there is one, stays unchanged until `commit`.

    Args:
        directory: this and the following but `n_shards` are as for `IndexWriter`.
        encoder: see there.
        threads: see there.
        n_shards: number of shards.
        representation: see there.
        fresh: see there.
        thresholds: see there.
        lock: the lock of the folder, held by the caller.
    """

    def __init__(
        self,
        directory: Directory,
        encoder: Encoder,
        threads: int,
        *,
        n_shards: int,
        representation: Representation | None,
        fresh: IndexSettings,
        thresholds: Thresholds,
        lock: WriteLock,
    ) -> None:
        self._plan = ListPlan(fresh, threads, thresholds, encoder)
        self._set_id = secrets.token_bytes(16)
        self._new_folders = shard_folder_names(self._set_id, n_shards)
        self._is_committed = self._has_quantizer = False
        super().__init__(
            directory,
            encoder,
            threads,
            representation=representation,
            fresh=fresh,
            thresholds=thresholds,
            lock=lock,
        )

    def _open(self, lock: WriteLock | None, wait_s: float, *, is_new: bool) -> WriteLock:
        del wait_s, is_new
        assert lock is not None
        make_folders(self._directory, self._new_folders)
        self._open_shards(self._new_folders)
        return lock

    def use_quantizer(self, quantizer: Quantizer) -> None:
        """Use a quantizer for all shards, instead of training one."""
        self._has_quantizer = True
        super().use_quantizer(quantizer)

    def commit(self) -> tuple[int, int]:
        """Commit every shard, and then the shard set that names them; delete what it replaces.

        If a shard needs a quantizer, one for all shards is trained on a sample of all documents, and calibrated on
        all of them.

        Returns:
            The generation of the shard set, and how many documents were replaced by later ones of the same id.

        Raises:
            QuarryError: nothing was committed, unless it is DurabilityUnknown.
        """
        if not self._has_quantizer:
            self._share_quantizer()
        _, n_replaced = super().commit()
        generation, parent_id = _replaced(self._directory)
        shard_set = ShardSet(
            generation=generation + 1, set_id=self._set_id, parent_id=parent_id, folders=self._new_folders
        )
        self.lock.check()
        shard_set.commit(self._directory)
        self._is_committed = True
        sync_visible(self._directory, shard_set.generation)
        collect_shard_garbage(self._directory, self.lock)
        return shard_set.generation, n_replaced

    def _share_quantizer(self) -> None:
        """Train a quantizer for the documents of all shards together, if a shard is to have inverted lists."""
        plan = self._plan
        parts = [rows for writer in self.partitions if (rows := writer.pending_rows) is not None]
        rows = join_rows(parts)
        if not plan.has_lists(rows.n_rows, plan.trained is not None):
            return
        if any(plan.has_lists(part.n_rows, has_quantizer=True) for part in parts):
            self.use_quantizer(plan.make_quantizer(rows))

    def close(self, *, abandon: bool = False) -> None:
        """Close the writers; delete the new folders if they were not committed."""
        try:
            super().close(abandon=abandon)
        finally:
            if not self._is_committed:
                delete_folders(self._directory, self._new_folders)


def _replaced(directory: Directory) -> tuple[int, bytes]:
    """Generation and id of the shard set that is replaced; (0, zeros) if there is none."""
    try:
        generation = find_latest_shard_set(directory)
    except IndexNotFound:
        return 0, bytes(16)
    try:
        return generation, ShardSet.load(directory, generation).set_id
    except FormatError:  # a damaged index may be replaced too
        return generation, bytes(16)
