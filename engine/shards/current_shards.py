"""The view of the generations of shards that an open index reads, replaced in one step."""

from __future__ import annotations

import contextlib
import copy
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from quarry.engine.index.base_view import ViewResources
from quarry.engine.index.current import Current
from quarry.engine.indexer.segments.graphs import drop_graphs, write_graphs
from quarry.engine.options import OpenOptions
from quarry.engine.progress import ProgressParts, Report, no_report
from quarry.engine.shards.gathering import ShardThreads
from quarry.engine.shards.shard import Shard
from quarry.engine.shards.shard_folders import shard_directory
from quarry.engine.shards.view import ShardedView
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, IndexClosed, IndexNotFound, QuarryError, ShardNotFound
from quarry.formats.manifest import IndexSettings, with_documents
from quarry.formats.shard_set import ShardSet, load_newest_shard_set
from quarry.formats.snapshot import Snapshot

__all__ = ["CurrentShards"]

_NO_FAILURES: Mapping[int, QuarryError] = {}
_ATTEMPTS = 100  # a build may delete the folders after the shard set was read


class CurrentShards(Current[ShardedView]):
    """The view of the shards of an index, until a newer one takes its place; for several threads, in one process.

    Args:
        directory: of the index; the newest generation of each of its shards is opened.
        resources: resources of all views; memory and threads are divided equally among the shards.

    Raises:
        IndexNotFound: there is no sharded index.
        FormatError: a file of the index is damaged, or a shard is missing.
    """

    def __init__(self, directory: Directory, resources: ViewResources) -> None:
        super().__init__(directory)
        self._resources = resources
        self._options = resources.options
        self._threads: ShardThreads | None = None
        self._view = self._open_all()

    def refresh(self) -> bool:
        """Open the newest generation of every shard; return whether one of them was newer.

        Raises:
            QuarryError: that of a shard that cannot be opened; the others are at their newest generations.
        """
        is_newer = self._refresh()
        failures = self.get().failures
        if failures:
            raise copy.copy(next(iter(failures.values())))
        return is_newer

    def refresh_to_search(self) -> None:
        """Open the newest generation of every shard that has one; a search that asks another one reports it."""
        self._refresh()

    def _refresh(self) -> bool:
        self.get()
        with self._lock:
            view = self.get()
            if not view.shard_set.is_newest(self._directory):
                self._view = self._open_all()
                return True
            snapshots, failures = _refresh_all(view.shards)
            if failures and self._is_replaced(view.shard_set, snapshots, view.shards):
                self._view = self._open_all()
                return True
            is_newer = any(new is not shard.snapshot for new, shard in zip(snapshots, view.shards, strict=True))
            if is_newer or failures.keys() != view.failures.keys():
                self._view = self._make(view.shard_set, snapshots, view.shards, failures)
        return is_newer

    def _is_replaced(self, shard_set: ShardSet, snapshots: Sequence[Snapshot], shards: Sequence[Shard]) -> bool:
        """Return whether a build has replaced the index, and deleted folders, while its shards were refreshed.

        The snapshots that are not those of shards are then closed.

        Raises:
            IndexNotFound: there is no index any more; they are closed, too.
        """
        is_newest = False
        try:
            is_newest = shard_set.is_newest(self._directory)
        finally:
            if not is_newest:
                _close_others(snapshots, shards)
        return not is_newest

    def follow(self) -> None:
        """Open the newest generation of every shard, after a writer of this process; nothing after `close`."""
        with contextlib.suppress(IndexClosed):
            self.refresh()

    def optimize(self, report: Report = no_report) -> int:
        """Write HNSW graphs for large segments that have none; return how many were written.

        The write locks of the shards must be held.
        """
        before = [shard.snapshot for shard in self.get().shards]
        graph_rows, threads = self._options.thresholds.graph_rows, self._options.n_threads
        parts = ProgressParts(report)
        n_written = sum(write_graphs(snapshot, graph_rows, threads, parts.part()) for snapshot in before)
        with self._lock:
            view = self.get()
            snapshots = [Snapshot(each.snapshot.directory, each.snapshot.segments) for each in view.shards]
            self._view = self._make(view.shard_set, snapshots, ())
        for old, new in zip(before, snapshots, strict=True):
            drop_graphs(old, new)
        return n_written

    def _close_view(self, view: ShardedView) -> None:
        if self._threads is not None:
            self._threads.close()
        for shard in view.shards:
            shard.snapshot.close()

    def _open_all(self) -> ShardedView:
        for _ in range(_ATTEMPTS):
            shard_set = load_newest_shard_set(self._directory)
            try:
                snapshots = _open_shards(self._directory, shard_set)
            except IndexNotFound as error:
                shard_set.check_replaced(self._directory, error)
            else:
                return self._make(shard_set, snapshots, ())
        raise CorruptFile("the shards of the index cannot be opened", path=self._directory.path)

    def _make(
        self,
        shard_set: ShardSet,
        snapshots: Sequence[Snapshot],
        before: Sequence[Shard],
        failures: Mapping[int, QuarryError] = _NO_FAILURES,
    ) -> ShardedView:
        """Make a view; if that fails, close the snapshots that are not those of shards `before`."""
        try:
            _check_settings(snapshots)
            shards = self._shards(shard_set, snapshots, before)
        except BaseException:
            _close_others(snapshots, before)
            raise
        if self._threads is None or self._threads.n_shards != len(shards):
            self._threads = ShardThreads(
                len(shards), self._options.n_threads
            )  # searches under way keep the old ones
        return ShardedView(self._directory.path, shard_set, shards, self._threads, self._resources, failures)

    def _shards(self, shard_set: ShardSet, snapshots: Sequence[Snapshot], before: Sequence[Shard]) -> list[Shard]:
        options = _share_of(self._options, len(snapshots))
        known: Sequence[Shard | None] = list(before) or [None] * len(snapshots)
        return [
            old
            if old is not None and old.snapshot is snapshot
            else Shard(name, snapshot, options, self._resources.device, old)
            for name, snapshot, old in zip(shard_set.folders, snapshots, known, strict=True)
        ]


def _open_shards(directory: Directory, shard_set: ShardSet) -> list[Snapshot]:
    snapshots: list[Snapshot] = []
    try:
        for folder in shard_set.folders:
            snapshots.append(Snapshot(shard_directory(directory, folder, len(shard_set.folders))))  # noqa: PERF401
    except BaseException:
        for snapshot in snapshots:
            snapshot.close()
        raise
    return snapshots


def _refresh_all(shards: Sequence[Shard]) -> tuple[list[Snapshot], dict[int, QuarryError]]:
    """Return the newest generation of each shard; if that cannot be opened, the one before, and the error."""
    snapshots, failures = [], {}
    for number, shard in enumerate(shards):
        try:
            snapshots.append(_refreshed(shard.snapshot))
        except QuarryError as error:
            snapshots.append(shard.snapshot)
            failures[number] = ShardNotFound(path=error.path) if isinstance(error, IndexNotFound) else error
    return snapshots, failures


def _close_others(snapshots: Sequence[Snapshot], shards: Sequence[Shard]) -> None:
    """Close the snapshots that are not those of shards."""
    kept = [shard.snapshot for shard in shards]
    for snapshot in snapshots:
        if snapshot not in kept:
            snapshot.close()


def _refreshed(snapshot: Snapshot) -> Snapshot:
    """The newest generation of a shard: the same snapshot if it is that."""
    if snapshot.manifest.is_newest(snapshot.directory):
        return snapshot
    return Snapshot(snapshot.directory, snapshot.segments)


def _check_settings(snapshots: Sequence[Snapshot]) -> None:
    """Check that all shards were built with the same settings and encoder."""
    first = with_documents(snapshot.manifest for snapshot in snapshots)
    for snapshot in snapshots:
        manifest = snapshot.manifest
        expected = first.settings if manifest.segments else _free_of_storage(first.settings)
        found = manifest.settings if manifest.segments else _free_of_storage(manifest.settings)
        if _without_norm(found) != _without_norm(expected) or manifest.encoder != first.encoder:
            raise CorruptFile(
                "a shard has other settings or another encoder than the first one",
                path=snapshot.directory.path,
                expected=f"{reprlib.repr(expected)}, {first.encoder}",
                actual=f"{reprlib.repr(found)}, {manifest.encoder}",
            )


def _without_norm(settings: IndexSettings) -> IndexSettings:
    """Return settings without the norm of the metric, which is that of older quantizers."""
    return settings if settings.metric is None else replace(settings, metric=replace(settings.metric, norm=0.0))


def _free_of_storage(settings: IndexSettings) -> IndexSettings:
    """Return settings without those that the first documents decide, and shards without any do not know."""
    return replace(settings, dim=1, centroids="", metric=None)


def _share_of(options: OpenOptions, n_shards: int) -> OpenOptions:
    """The resources of each shard."""
    memory_bytes = None if options.memory_bytes is None else max(1, options.memory_bytes // n_shards)
    return replace(options, memory_bytes=memory_bytes, threads=max(1, options.n_threads // n_shards))
