"""The writer's lock: an operating system lock on a file that is never deleted.

The kernel releases it when the process that holds it ends, so there are no stale locks. The content of the file is
used in error messages only.
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
    """A lock that is held from construction to `release`, or until the object or the process ends.

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
            self._close()  # it was deleted between opening and locking
        else:
            raise IndexLocked("the lock file was deleted repeatedly", path=self._path)
        _held.add(self)
        try:
            with contextlib.suppress(OSError):  # the lock works on a full disk too
                self._write_holder()
        except BaseException:  # such as an interrupt
            self.release()
            raise

    def is_in_place(self) -> bool:
        """Return whether the lock file is still in place: neither deleted nor replaced."""
        try:
            ours, theirs = os.fstat(self._descriptor), os.lstat(self._path)
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)

    def check(self) -> None:
        """Raise IndexLocked if the lock file was deleted or replaced."""
        if not self.is_in_place():
            raise IndexLocked("the lock file was deleted or moved; another writer may be active", path=self._path)

    def release(self) -> None:
        """Release the lock; further calls, and calls in a forked child, do nothing."""
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
        """Close the file without unlocking it: a forked child shares the lock with its parent."""
        _held.discard(self)
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _write_holder(self) -> None:
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = json.dumps({"pid": os.getpid(), "since": started}).encode()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, _INFO_AT, os.SEEK_SET)
        os.write(self._descriptor, text)

    def _holder(self) -> str:
        try:
            os.lseek(self._descriptor, _INFO_AT, os.SEEK_SET)
            holder = json.loads(os.read(self._descriptor, 200))
            return f"process {int(holder['pid'])}, since {str(holder['since'])[:40]}"
        except (OSError, ValueError, KeyError, TypeError):
            return "an unknown writer"


def _forget_in_child() -> None:
    """Close the descriptors in a forked child, which would otherwise keep the lock after its parent has ended."""
    for lock in list(_held):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


if sys.platform == "win32":
    import msvcrt

    _INFO_AT = 1  # the locked byte cannot be read by others, so the text starts after it

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
