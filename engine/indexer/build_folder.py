"""The folder that a build writes to: created if it is missing, locked, and restored if the build fails."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from quarry.formats.container.directory import Directory, is_folder, sync_folder
from quarry.formats.errors import IndexExists, IndexLocked, IndexNotFound, QuarryError
from quarry.formats.manifest import find_latest_generation
from quarry.formats.shard_set import find_latest_shard_set
from quarry.formats.system_errors import access_failed
from quarry.formats.write_lock import WriteLock

__all__ = ["BuildFolder"]

_ADVICE = "; overwrite=True (--overwrite) replaces it"
_ATTEMPTS = 100  # each fails only if another build has deleted the folder in between


class BuildFolder:
    """Holds the write lock of a folder while a build runs; a context manager.

    Several processes may enter it at once: one of them gets the lock, the others change nothing. A build
    that fails deletes the folder only if it made it, holds the lock and there is no index; one that does not get
    the lock deletes at most an empty folder that it made. Folders above that were made stay.

    Args:
        path: absolute path of the folder.
        overwrite: whether an index that is there may be replaced.
        wait_s: seconds to wait for another writer that holds the lock.
        can_replace: whether the caller has an argument `overwrite`, which the error then names.

    Attributes:
        path: the path of the folder.
        lock: the write lock, held between `__enter__` and `__exit__`.

    Raises:
        IndexExists: from `__enter__`: there is an index, or a file is in the way.
        IndexLocked: from `__enter__`: another writer holds the lock.
        AccessFailed: from `__enter__`: the folder cannot be created, or the lock not be opened.
    """

    lock: WriteLock

    def __init__(self, path: Path, overwrite: bool, wait_s: float = 0, *, can_replace: bool = True) -> None:
        self.path = path
        self._overwrite = overwrite
        self._can_replace = can_replace
        self._wait_s = wait_s
        self._is_made = False
        self._before = 0

    def check_free(self) -> None:
        """Check that a build may begin; without the lock the answer is valid at this moment only.

        Raises:
            IndexExists: there is an index that is not to be replaced, or a file is in the way.
        """
        if not is_folder(self.path):
            in_the_way = next((each for each in (self.path, *self.path.parents) if _is_there(each)), None)
            if in_the_way is not None and not is_folder(in_the_way):
                raise IndexExists("a file is in the way", path=in_the_way, expected="a folder, or nothing")
        elif not self._overwrite and (generation := _generation(self.path)):
            raise IndexExists(
                "there is an index already" + _ADVICE * self._can_replace,
                path=self.path,
                expected=None if self._can_replace else "a folder that does not exist, or is empty",
                actual=f"generation {generation}",
            )

    def __enter__(self) -> Self:
        """Make the folder and take the lock."""
        self.check_free()
        try:
            self._make_and_lock()
        except BaseException as error:
            self._remove_empty()
            error.add_note(f"The build was not started; {self._describe_index()}.")
            raise
        try:
            self.check_free()  # again: another build may have been quicker
            self._before = _generation(self.path)
            if not self._before:
                self._sync_entry()
        except BaseException as error:
            self._restore(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; if the build failed, say what is left and delete a folder that was made for it."""
        if error is None:
            self.lock.release()
        else:
            self._restore(error)

    def _make_and_lock(self) -> None:
        for _ in range(_ATTEMPTS):
            self._is_made = False
            self._make(self.path)
            try:
                self.lock = WriteLock(self.path, self._wait_s)
            except IndexNotFound:
                continue
            return
        raise IndexLocked("other builds make and delete the folder again and again", path=self.path)

    def _make(self, path: Path) -> None:
        """Make a folder and those above it that are missing, each durable before the next is made in it."""
        for attempt in range(_ATTEMPTS):
            try:
                os.mkdir(path)  # noqa: PTH102
            except OSError as error:
                if is_folder(path):
                    return
                if attempt + 1 == _ATTEMPTS or not isinstance(error, FileNotFoundError | FileExistsError):
                    raise access_failed(error, "made", path) from error
            else:
                self._is_made = path == self.path
                sync_folder(_folder_above(path))
                return
            if path.parent != path:
                self._make(path.parent)

    def _sync_entry(self) -> None:
        """Sync the folder above: another build may have created this one a moment ago, and not synced it yet."""
        if not self._is_made:
            with contextlib.suppress(OSError):  # whoever made the folder may have had more permissions
                sync_folder(_folder_above(self.path))

    def _restore(self, error: BaseException) -> None:
        """Delete the folder if this build created it, release the lock, and note in the error what is left."""
        try:
            if self._is_made and self.lock.is_in_place() and self._find_generation() == 0:
                self.lock.delete()
                self._remove_empty()
            error.add_note(self._describe_result())
        finally:
            self.lock.release()

    def _remove_empty(self) -> None:
        """Delete the folder if this build created it and it is empty; a build about to lock it tries again."""
        if self._is_made:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)  # noqa: PTH106

    def _describe_result(self) -> str:
        generation = self._find_generation()
        if generation and generation > self._before:
            return f"{self.path} was changed nevertheless: it is at generation {generation}."
        if generation:
            return f"The build was not completed; {self.path} is as it was, at generation {generation}."
        return f"The build was not completed; {self._describe_index()}."

    def _describe_index(self) -> str:
        generation = self._find_generation()
        if generation is None:
            return f"what is at {self.path} cannot be looked up"
        return f"{self.path} is at generation {generation}" if generation else f"there is no index at {self.path}"

    def _find_generation(self) -> int | None:
        """Return the current generation, 0 if there is none; None if it cannot be looked up."""
        try:
            return _generation(self.path)
        except (QuarryError, OSError):
            return None


def _generation(folder: Path) -> int:
    """The generation of the index in a folder, sharded or not; 0 if there is none."""
    for find in (find_latest_generation, find_latest_shard_set):
        with contextlib.suppress(IndexNotFound):
            return find(Directory(folder))
    return 0


def _is_there(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise access_failed(error, "looked up", path) from error
    return True


def _folder_above(path: Path) -> Path:
    """Return the folder with the entry of `path`, links resolved."""
    return Path(os.path.realpath(path)).parent
