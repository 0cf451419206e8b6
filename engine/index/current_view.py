"""The view of the generation that an open index reads, replaced in one step by a newer one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.index.base_view import ViewResources
from quarry.engine.index.current import Current
from quarry.engine.index.view import IndexView
from quarry.engine.indexer.segments.graphs import drop_graphs, write_graphs
from quarry.engine.progress import Report, no_report
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["CurrentView"]

_log = logging.getLogger(__name__)


class CurrentView(Current[IndexView]):
    """The view of the current generation; safe to use from several threads of one process.

    Args:
        directory: folder of the index, whose newest generation is opened.
        resources: resources of all views.

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file of the index is damaged.
    """

    def __init__(self, directory: Directory, resources: ViewResources) -> None:
        super().__init__(directory)
        self._options = resources.options
        snapshot = Snapshot(directory)
        self._view = _open_view(snapshot, lambda: IndexView(snapshot, resources))

    def refresh(self) -> bool:
        """Open the newest generation, or an index that replaced this one; return False if it is open already."""
        self.get()
        with self._lock:
            view = self.get()
            if view.snapshot.manifest.is_newest(self._directory):
                return False
            self._replace(view, Snapshot(self._directory, view.snapshot.segments))
        return True

    def optimize(self, report: Report = no_report) -> int:
        """Write HNSW graphs for large segments that have none; return how many were written.

        The writer's lock must be held.
        """
        before = self.get().snapshot
        n_written = write_graphs(before, self._options.thresholds.graph_rows, self._options.n_threads, report)
        drop_graphs(before, self.reopen())
        return n_written

    def reopen(self) -> Snapshot:
        """Open the newest generation, and choose a backend for each segment again."""
        with self._lock:
            view = self.get()
            snapshot = Snapshot(self._directory, view.snapshot.segments)
            self._replace(view, snapshot, is_reusing=False)
        return snapshot

    def follow(self, take_snapshot: Callable[[], Snapshot | None]) -> None:
        """Use the generation that a writer of this process made, without reading files.

        Args:
            take_snapshot: returns the generation, or None if the writer is closed; called under the lock.
        """
        with self._lock:
            view = self._view
            snapshot = take_snapshot() if view else None
            if view is not None and snapshot is not None:  # a snapshot without documents is false
                self._replace(view, snapshot)

    def use_encoder(self, encoder: Encoder, take_snapshot: Callable[[], Snapshot | None]) -> None:
        """Use the generation that a writer of this process made with another encoder; see `follow`."""
        with self._lock:
            view = self._view
            snapshot = take_snapshot() if view else None
            if view is not None and snapshot is not None:
                self._view = _open_view(snapshot, lambda: view.with_encoder(snapshot, encoder))

    def _replace(self, view: IndexView, snapshot: Snapshot, *, is_reusing: bool = True) -> None:
        self._view = _open_view(snapshot, lambda: view.next_view(snapshot, is_reusing=is_reusing))
        _log.debug("%s: answers from generation %d", self._directory.path, snapshot.manifest.generation)

    def _close_view(self, view: IndexView) -> None:
        view.snapshot.close()


def _open_view(snapshot: Snapshot, make: Callable[[], IndexView]) -> IndexView:
    """Make the view of a snapshot; close the snapshot if that fails."""
    try:
        return make()
    except BaseException:
        snapshot.close()
        raise
