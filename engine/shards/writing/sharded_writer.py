"""The writer of an open sharded index: it holds the lock of the index and of every shard."""

from __future__ import annotations

import os
from collections.abc import Callable

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.shards.shard_folders import collect_shard_garbage, shard_directory
from quarry.engine.shards.writing.shard_writers import ShardWriters
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import load_newest_shard_set
from quarry.formats.write_lock import WriteLock

__all__ = ["ShardedWriter"]


class ShardedWriter(ShardWriters):
    """Changes the shards of an index; segments of each are merged in the background.

    Args:
        directory: of the index.
        encoder: makes the vectors.
        threads: for encoding, training and coding.
        thresholds: sizes from which on segments have inverted lists or are merged.
        after_merge: called after each merge, in the background on another thread.
        wait_s: seconds to wait for another writer to release the lock of the index.

    Attributes:
        lock: of the index, held until `close`.

    Raises:
        IndexNotFound: there is no sharded index.
        IndexLocked: another writer holds the lock of the index, or of a shard.
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
    """

    def __init__(
        self,
        directory: Directory,
        encoder: Encoder,
        threads: int,
        thresholds: Thresholds,
        after_merge: Callable[[], object],
        wait_s: float = 0,
    ) -> None:
        self._pid = os.getpid()
        self.lock = WriteLock(directory.path, wait_s)
        writers: list[IndexWriter] = []
        try:
            shard_set = load_newest_shard_set(directory)
            shard_set.check_writable(directory)
            collect_shard_garbage(directory, self.lock)
            for name in shard_set.folders:
                shard = shard_directory(directory, name, len(shard_set.folders))
                writers.append(
                    IndexWriter(
                        shard, encoder, threads, thresholds=thresholds, merges=True, after_merge=after_merge
                    )
                )
        except BaseException:
            for writer in writers:
                writer.close(abandon=True)
            self.lock.release()
            raise
        super().__init__(shard_set.folders, writers, threads)

    def close(self, *, abandon: bool = False) -> None:
        """Close the writers of all shards and release the lock; see `ShardWriters.close`."""
        if os.getpid() != self._pid:  # a forked child leaves files and locks of the parent alone
            return
        try:
            super().close(abandon=abandon)
        finally:
            self.lock.release()
