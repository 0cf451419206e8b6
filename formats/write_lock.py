"""The writer's lock: an operating system lock on a file that is never deleted.

The kernel releases it when its holder ends, however it ends, so there is no stale lock to clean up. What
the file says about its holder serves messages only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import weakref
from pathlib import Path

from quarry.formats.errors import IndexLocked

__all__ = ["WriteLock"]

LOCK_NAME = "write.lock"
_ATTEMPTS = 10
_held: weakref.WeakSet[WriteLock] = weakref.WeakSet()


class WriteLock:
    """Held from construction to `release`, or until the object or the process is gone.

    Raises:
        IndexLocked: another writer holds it, in this process or another.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        self._path = folder / LOCK_NAME
        for _ in range(_ATTEMPTS):
            self._acquire()
            if self.is_in_place():
                break
            self._close()  # it was deleted between our opening and locking it
        else:
            raise IndexLocked("the lock file is deleted again and again", path=self._path)
        _held.add(self)
        try:
            with contextlib.suppress(OSError):  # a full disk keeps nobody from the lock
                self._say_who()
        except BaseException:  # an interrupt: nobody else could release it
            self.release()
            raise

    def is_in_place(self) -> bool:
        """Whether this still keeps others out: its file was not deleted or replaced, as far as can be seen."""
        try:
            ours, theirs = os.fstat(self._descriptor), os.lstat(self._path)
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)

    def check(self) -> None:
        """Raise IndexLocked if others are no longer kept out."""
        if not self.is_in_place():
            raise IndexLocked("the lock file was deleted or moved; another writer may be at work", path=self._path)

    def release(self) -> None:
        """Let the next writer in; releasing twice is harmless, and a forked child has nothing to release."""
        if self._descriptor >= 0:
            _unlock(self._descriptor)
        self._close()

    def _acquire(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        self._descriptor = os.open(self._path, flags, 0o644)
        try:
            _lock(self._descriptor)
        except (BlockingIOError, PermissionError) as error:
            holder = self._holder()
            self._close()
            raise IndexLocked("another writer holds the index", path=self._path.parent, actual=holder) from error
        except OSError:  # no locks on this file system
            self._close()
            raise

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        """Without unlocking: a child that was forked shares the lock with its parent, who keeps it."""
        _held.discard(self)
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _say_who(self) -> None:
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = json.dumps({"pid": os.getpid(), "since": started}).encode()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, _INFO_AT, os.SEEK_SET)
        os.write(self._descriptor, text)

    def _holder(self) -> str:
        try:
            os.lseek(self._descriptor, _INFO_AT, os.SEEK_SET)
            said = json.loads(os.read(self._descriptor, 200))
            return f"process {int(said['pid'])}, since {str(said['since'])[:40]}"
        except (OSError, ValueError, KeyError, TypeError):
            return "a writer that has not said who it is"


def _forget_in_child() -> None:
    """A child that keeps the descriptor would hold the lock on after its parent has died."""
    for lock in list(_held):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


if sys.platform == "win32":
    import msvcrt

    _INFO_AT = 1  # the locked byte cannot be read by others, so the text starts behind it

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    _INFO_AT = 0

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
