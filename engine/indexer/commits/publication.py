"""One attempt to make a generation: it becomes visible and durable, or is undone."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from quarry.engine.indexer.commits.failures import WriterState
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CommitFailed, DurabilityUnknown, IndexLocked, IndexNotFound
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.write_lock import WriteLock

__all__ = ["Publication", "sync_visible"]


class Publication:
    """Publishes a manifest, once; a context manager around everything that the next commit builds on.

    If the block fails and it is certain that nothing is visible, the attempt is undone: its files are deleted, and
    it can be repeated. Otherwise the writer has failed, which `state` records.

    Args:
        directory: the folder of the index.
        lock: the writer's, held.
        state: the state of the writer.
        generation: current until now.
        names: the names of files written for it.

    Attributes:
        names: the names of files written for it, which the block may extend.

    Raises:
        IndexClosed: from `__enter__`: the writer is closed or has failed.
        CommitFailed: from `__exit__`: an I/O error occurred, and the attempt is undone.
        DurabilityUnknown: from `__exit__`: an I/O error occurred, and whether the commit is visible is unknown.
    """

    def __init__(
        self, directory: Directory, lock: WriteLock, state: WriterState, generation: int, names: Iterable[str]
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._state = state
        self._generation = generation
        self.names = list(names)
        self._may_be_visible = False

    def __enter__(self) -> Self:
        self._state.check()
        return self

    def publish(self, manifest: Manifest) -> None:
        """Make a manifest visible by one rename, and durable.

        Raises:
            IndexLocked: the lock was lost to another writer.
            DurabilityUnknown: it is visible, but a power loss may undo it.
        """
        self._directory.sync()
        self._lock.check()
        self._may_be_visible = True
        manifest.commit(self._directory)
        sync_visible(self._directory, manifest.generation)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        is_undone, raised = False, error
        try:
            is_undone = not isinstance(error, IndexLocked) and self._undo()
        finally:  # an interrupt may come here too
            raised = self._translate(error, is_undone)
            if not is_undone:
                self._state.fail(raised)
        if raised is not error:
            raise raised from error

    def _undo(self) -> bool:
        """Delete the files of the attempt if it is certain that nothing of it is visible; return whether it is."""
        if self._may_be_visible and not self._is_current():
            return False
        for name in self.names:
            self._directory.delete(name)
        return True

    def _is_current(self) -> bool:
        """Whether the generation before is certain to be the newest one in the folder."""
        try:
            return find_latest_generation(self._directory) == self._generation
        except IndexNotFound:
            return self._generation == 0
        except OSError:  # no descriptor is left to list the folder; looking for one name takes none
            name = Manifest.name_of(self._generation + 1)
            return self._lock.is_in_place() and not self._directory.may_hold(name)

    def _translate(self, error: BaseException, is_undone: bool) -> BaseException:
        """Return what to raise for an error; a rename that reported one may have been done nevertheless."""
        if not isinstance(error, OSError):
            return error
        path, actual = self._directory.path, str(error)
        if is_undone:
            return CommitFailed("nothing was committed", path=path, actual=actual)
        message = "whether the commit is visible, and for good, is unknown"
        return DurabilityUnknown(message, path=path, actual=actual)


def sync_visible(directory: Directory, generation: int) -> None:
    """Make a generation durable that a rename has made visible.

    Raises:
        DurabilityUnknown: a power loss may undo it.
    """
    try:
        directory.sync()
    except OSError as error:
        message = f"generation {generation} is visible, but may not survive a power loss"
        raise DurabilityUnknown(message, path=directory.path, actual=str(error)) from error
