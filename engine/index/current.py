"""The view that an open index reads, replaced in one step by a newer one."""

from __future__ import annotations

import copy
import logging
import os
import reprlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.index.gathering import ShardThreads
from quarry.engine.index.partition import OpenPartition
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.view import View
from quarry.engine.options import OpenOptions
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, IndexClosed, IndexNotFound, QuarryError, ShardNotFound
from quarry.formats.manifest import IndexSettings, with_documents
from quarry.formats.shard_set import ShardSet, has_shard_set, shard_directory, use_newest_shard_set
from quarry.formats.snapshot import Snapshot

__all__ = ["Current"]

_log = logging.getLogger(__name__)

_NO_FAILURES: Mapping[int, QuarryError] = {}


class Current:
    """The view of the current generation of an index; safe to use from several threads of one process.

    Args:
        directory: the folder of the index, with or without shards; the newest generation is opened.
        resources: resources of all views; memory and threads are divided equally among the shards.
        is_refreshing: whether the newest generation is opened before each request.

    Attributes:
        is_locked: whether this process holds the lock of the index, which nothing replaces then.

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file of the index is damaged, or a shard is missing.
    """

    def __init__(self, directory: Directory, resources: ViewResources, *, is_refreshing: bool = False) -> None:
        self._directory = directory
        self._resources = resources
        self._is_refreshing = is_refreshing
        self.is_locked = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._threads: ShardThreads | None = None
        self._shard_set: ShardSet | None = None
        self._view: View[OpenPartition] | None = None
        self._open()

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy in a forked child, where threads of the parent may hold locks forever."""
        return os.getpid() != self._pid

    def get(self, *, to_read: bool = False) -> View[OpenPartition]:
        """Return the current view.

        Args:
            to_read: whether it is for a request, before which the index may be refreshed.

        Raises:
            IndexClosed: the index is closed, or was opened by another process.
        """
        if to_read and self._is_refreshing:
            self._refresh_to_read()
        view = self._view
        if view is None:
            raise IndexClosed("the index is closed", path=self._directory.path)
        if self.is_forked:
            raise IndexClosed(
                "the index was opened by another process; open it again after a fork",
                path=self._directory.path,
            )
        return view

    def close(self) -> None:
        """Close all files; closing twice is harmless. A forked child drops them without taking the lock."""
        if self.is_forked:
            self._view = None
            return
        with self._lock:
            view, self._view = self._view, None
            self._resources = replace(self._resources, chosen_encoder=None, reranker=None)  # releases all models
        if view is not None:
            if self._threads is not None:
                self._threads.close()
            for partition in view.partitions:
                partition.snapshot.close()

    def refresh(self) -> bool:
        """Open the newest generation, or an index that replaced this one; return whether it was not open yet.

        Raises:
            IndexNotFound: there is no index any more.
            QuarryError: that of a shard that cannot be opened; the others are at their newest generations.
        """
        is_newer = self._refresh_to_read()
        failures = self.get().failures
        if failures:
            raise copy.copy(next(iter(failures.values())))
        return is_newer

    def _refresh_to_read(self) -> bool:
        """As `refresh`, for a request, which itself reports a shard that cannot be opened."""
        self.get()
        with self._lock:
            try:
                return self._refresh(self.get())
            except IndexNotFound:
                if self.is_locked or has_shard_set(self._directory) == (self._shard_set is not None):
                    raise
                self._open()  # searches under way keep the files and threads of the index before
                return True

    def _refresh(self, view: View[OpenPartition]) -> bool:
        if self._shard_set is not None and not self._shard_set.is_newest(self._directory):
            self._open()
            return True
        snapshots, failures = self._newest_snapshots(view.partitions)
        if failures and self._is_replaced(snapshots, view.partitions):
            self._open()
            return True
        is_newer = any(new is not old.snapshot for new, old in zip(snapshots, view.partitions, strict=True))
        if is_newer or failures.keys() != view.failures.keys():
            self._make(self._shard_set, snapshots, view.partitions, failures)
        return is_newer

    def _newest_snapshots(
        self, partitions: Sequence[OpenPartition]
    ) -> tuple[list[Snapshot], dict[int, QuarryError]]:
        """Return the newest generation of each; of a shard that cannot be opened the one before, and the error."""
        snapshots, failures = [], {}
        for number, snapshot in enumerate(each.snapshot for each in partitions):
            try:
                is_newest = snapshot.manifest.is_newest(snapshot.directory)
                snapshots.append(snapshot if is_newest else snapshot.reopen())
            except QuarryError as error:
                if self._shard_set is None:
                    raise
                snapshots.append(snapshot)
                failures[number] = ShardNotFound(path=error.path) if isinstance(error, IndexNotFound) else error
        return snapshots, failures

    def _is_replaced(self, snapshots: Sequence[Snapshot], partitions: Sequence[OpenPartition]) -> bool:
        """Return whether a build has replaced the index, and deleted folders, while its shards were refreshed.

        The snapshots that are not those of partitions are then closed.

        Raises:
            IndexNotFound: there is no index any more; they are closed, too.
        """
        is_newest = False
        try:
            is_newest = self._shard_set is not None and self._shard_set.is_newest(self._directory)
        finally:
            if not is_newest:
                _close_others(snapshots, partitions)
        return not is_newest

    def reopen(self) -> list[Snapshot]:
        """Open the newest generation, and choose a backend for each segment again; return the snapshots."""
        with self._lock:
            before = [each.snapshot for each in self.get().partitions]
            snapshots = [each.reopen() for each in before]
            self._make(self._shard_set, snapshots, ())
        return snapshots

    def follow(self, take_snapshots: Callable[[], Sequence[Snapshot]], encoder: Encoder | None = None) -> None:
        """Use the generation that a writer of this process made, without reading files; nothing after `close`.

        Args:
            take_snapshots: returns the generation of each partition; none if the writer is closed. It is called
                under the lock.
            encoder: the encoder of the vectors of this generation; None: that of the generation before.
        """
        with self._lock:
            view = self._view
            snapshots = take_snapshots() if view is not None else ()
            if view is None or not snapshots:
                return
            if encoder is not None:
                self._resources = replace(self._resources, chosen_encoder=encoder)
                self._make(self._shard_set, snapshots, ())
                return
            pairs = zip(view.partitions, snapshots, strict=True)
            newest = [old.snapshot if old.has_same(snapshot) else snapshot for old, snapshot in pairs]
            self._make(self._shard_set, newest, view.partitions)
            _close_others(snapshots, self.get().partitions)

    def _open(self) -> None:
        def use(shard_set: ShardSet | None) -> None:
            self._make(shard_set, _open_snapshots(self._directory, shard_set), ())

        if has_shard_set(self._directory):
            use_newest_shard_set(self._directory, use)
        else:
            use(None)

    def _make(
        self,
        shard_set: ShardSet | None,
        snapshots: Sequence[Snapshot],
        before: Sequence[OpenPartition],
        failures: Mapping[int, QuarryError] = _NO_FAILURES,
    ) -> None:
        """Make the current view; if that fails, close the snapshots that are not those of partitions `before`."""
        path = self._directory.path
        names = [path.name] if shard_set is None else shard_set.folders
        options = _share_of(self._resources.options, len(snapshots))
        known: Sequence[OpenPartition | None] = before or [None] * len(snapshots)
        try:
            _check_settings(snapshots)
            partitions = [
                old
                if old is not None and old.snapshot is snapshot
                else OpenPartition(name, snapshot, options, self._resources.device, old)
                for name, snapshot, old in zip(names, snapshots, known, strict=True)
            ]
            threads = None if shard_set is None else self._threads
            if shard_set is not None and (threads is None or threads.n_shards != len(partitions)):
                n_threads = self._resources.options.n_threads
                threads = ShardThreads(len(partitions), n_threads)  # searches under way keep the old ones
            self._view = View(path, partitions, self._resources, threads, failures)
        except BaseException:
            _close_others(snapshots, before)
            raise
        self._shard_set, self._threads = shard_set, threads
        generation = sum(each.manifest.generation for each in snapshots)
        _log.debug("%s: answers from generation %d", path, generation)


def _open_snapshots(directory: Directory, shard_set: ShardSet | None) -> list[Snapshot]:
    if shard_set is None:
        return [Snapshot(directory)]
    snapshots: list[Snapshot] = []
    try:
        for folder in shard_set.folders:
            snapshots.append(Snapshot(shard_directory(directory, folder, len(shard_set.folders))))  # noqa: PERF401
    except BaseException:
        _close_others(snapshots, ())
        raise
    return snapshots


def _close_others(snapshots: Sequence[Snapshot], partitions: Sequence[OpenPartition]) -> None:
    """Close the snapshots that are not those of partitions."""
    kept = [partition.snapshot for partition in partitions]
    for snapshot in snapshots:
        if snapshot not in kept:
            snapshot.close()


def _check_settings(snapshots: Sequence[Snapshot]) -> None:
    """Check that all shards were built with the same settings and encoder."""
    first = with_documents(snapshot.manifest for snapshot in snapshots)
    for snapshot in snapshots:
        manifest = snapshot.manifest
        expected = first.settings if manifest.segments else _free_of_storage(first.settings)
        actual = manifest.settings if manifest.segments else _free_of_storage(manifest.settings)
        if _without_norm(actual) != _without_norm(expected) or manifest.encoder != first.encoder:
            raise CorruptFile(
                "a shard has other settings or another encoder than the first one",
                path=snapshot.directory.path,
                expected=f"{reprlib.repr(expected)}, {first.encoder}",
                actual=f"{reprlib.repr(actual)}, {manifest.encoder}",
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
