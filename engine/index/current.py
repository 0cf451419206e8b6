"""The view that an open index reads, replaced in one step by a newer one."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexClosed

__all__ = ["Current"]

V = TypeVar("V")


class Current(ABC, Generic[V]):
    """The current view of an index; safe to use from several threads of one process."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._view: V | None = None

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy in a forked child, where threads of the parent may hold locks forever."""
        return os.getpid() != self._pid

    def get(self) -> V:
        """Return the current view.

        Raises:
            IndexClosed: the index is closed, or was opened by another process.
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

    def close(self) -> None:
        """Close all files; closing twice is harmless. A forked child drops them without taking the lock."""
        if self.is_forked:
            self._view = None
            return
        with self._lock:
            view, self._view = self._view, None
        if view is not None:
            self._close_view(view)

    @abstractmethod
    def refresh(self) -> bool:
        """Open the newest generation; return whether it was not open yet."""

    def refresh_to_search(self) -> None:
        """Open the newest generation for a search, which itself reports what cannot be read."""
        self.refresh()

    @abstractmethod
    def _close_view(self, view: V) -> None:
        """Close the files of a view, the last one."""
