"""Which generation an open index answers from: one at a time, replaced in one step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.engine.gpu.device import Device
from quarry.engine.index.view import IndexView
from quarry.engine.indexer.graphs import drop_graphs, write_graphs
from quarry.engine.options import OpenOptions
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexClosed
from quarry.formats.snapshot import Snapshot

__all__ = ["CurrentView"]


class CurrentView:
    """The view of one generation, until a newer one takes its place; for several threads, in one process.

    Args:
        directory: of the index; its newest generation is opened.
        options: resources to use.
        device: of backend "gpu".

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file of the index is damaged.
    """

    def __init__(self, directory: Directory, options: OpenOptions, device: Device) -> None:
        self._directory = directory
        self._options = options
        self._device = device
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._unknown = UnknownFields()
        self._view: IndexView | None = self._made(Snapshot(directory), None)

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy of a forked child, where threads of the parent may hold locks for ever."""
        return os.getpid() != self._pid

    def get(self) -> IndexView:
        """What is open.

        Raises:
            IndexClosed: nothing any more, or it was opened by another process.
        """
        view = self._view
        if view is None:
            raise IndexClosed("the index is closed", path=self._directory.path)
        if self.is_forked:
            raise IndexClosed(
                "the index was opened by another process; open it again after a fork",
                path=self._directory.path,
            )
        return view

    def refresh(self) -> bool:
        """Open the newest generation, or one that was copied into the place of this; False where it is open."""
        self.get()
        with self._lock:
            before = self.get()
            if before.snapshot.manifest.is_newest(self._directory):
                return False
            snapshot = Snapshot(self._directory, before.snapshot.segments)
            self._view = self._made(snapshot, before)
        return True

    def optimize(self, threads: int) -> int:
        """Write HNSW graphs for large segments that have none; return how many were written.

        The writer's lock must be held.
        """
        before = self.get().snapshot
        n_written = write_graphs(before, threads)
        drop_graphs(before, self.reopen())
        return n_written

    def reopen(self) -> Snapshot:
        """Open the newest generation, and choose anew what searches each segment."""
        with self._lock:
            snapshot = Snapshot(self._directory, self.get().snapshot.segments)
            self._view = self._made(snapshot, None)
        return snapshot

    def follow(self, made: Callable[[], Snapshot | None]) -> None:
        """Take over the generation that a writer of this process made; no file is read for it.

        Args:
            made: gives it, or None where there is none any more; no other thread opens one meanwhile.
        """
        with self._lock:
            before = self._view
            snapshot = made() if before else None
            if snapshot is not None:  # one without documents is false
                self._view = self._made(snapshot, before)

    def _made(self, snapshot: Snapshot, before: IndexView | None) -> IndexView:
        try:
            return IndexView(snapshot, self._options, self._unknown, before, self._device)
        except BaseException:
            snapshot.close()
            raise

    def close(self) -> None:
        """Close all files; nothing where that was done. A forked child lets go of them without a lock."""
        if self.is_forked:
            self._view = None
            return
        with self._lock:
            view, self._view = self._view, None
        if view:
            view.snapshot.close()
