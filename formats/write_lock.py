"""The writer's lock: an operating system lock on a file of the folder.

The kernel releases it when its holder ends, so there are no stale locks. Only its holder deletes the file,
together with the new folder of a failed build. The content of the file is used in error messages only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import time
import weakref
from pathlib import Path

from quarry.formats.errors import CorruptFile, IndexLocked, IndexNotFound
from quarry.formats.system_errors import NOT_REGULAR, access_failed

__all__ = ["LOCK_NAME", "WriteLock"]

LOCK_NAME = "write.lock"
_MAX_ATTEMPTS = 10  # to lock a file that others replace meanwhile
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05  # between attempts; an attempt takes about 20 microseconds
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
_READ_ONLY_HINT = "or writable=False: opening an index for reading takes no lock"
_held: weakref.WeakSet[WriteLock] = weakref.WeakSet()


class WriteLock:
    """A lock that is held from construction to `release`, or until the object or the process ends.

    Args:
        folder: the folder of the index.
        wait_s: seconds to wait for another writer to release it. Writers that wait get it in no particular order.

    Raises:
        IndexLocked: another writer holds it, in this process or another, and did so until the end of the wait.
        IndexNotFound: there is no such folder.
        CorruptFile: the lock file is not a regular file but a link, a folder and so on.
        AccessFailed: the lock file cannot be opened for writing, or the file system does not support locks.
    """

    def __init__(self, folder: Path, wait_s: float = 0) -> None:
        self._descriptor = -1
        self._path = folder / LOCK_NAME
        end = time.monotonic() + wait_s
        for _ in range(_MAX_ATTEMPTS):
            self._acquire_before(end, wait_s)
            if self.is_in_place():
                break
            self._close()  # it was deleted between opening and locking
        else:
            raise IndexLocked("the lock file was deleted repeatedly", path=self._path)
        _held.add(self)
        try:
            with contextlib.suppress(OSError):  # the lock also works on a full disk
                self._write_holder()
        except BaseException:  # such as an interrupt
            self.release()
            raise

    def is_in_place(self) -> bool:
        """Return whether the lock file is certain to be in place: neither deleted nor replaced."""
        try:
            return self._is_in_place()
        except OSError:
            return False

    def check(self) -> None:
        """Raise an error unless the lock file is in place.

        Raises:
            IndexLocked: the lock file was deleted or replaced.
            AccessFailed: the lock file cannot be looked up.
        """
        try:
            is_in_place = self._is_in_place()
        except OSError as error:
            raise access_failed(error, "looked up", self._path) from error
        if not is_in_place:
            raise IndexLocked("the lock file was deleted or moved; another writer may be active", path=self._path)

    def _is_in_place(self) -> bool:
        try:
            ours, theirs = os.fstat(self._descriptor), os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)

    def release(self) -> None:
        """Release the lock; further calls, and calls in a forked child, do nothing."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # closing the file releases it too
                _unlock(self._descriptor)
        self._close()

    def delete(self) -> None:
        """Delete the lock file and release the lock, to delete a folder that is otherwise empty.

        A writer that had opened the file before it was deleted notices that, and creates a new one. If the file
        was replaced, it belongs to another writer and is not deleted.
        """
        if not self.is_in_place():
            self.release()
            return
        try:
            os.unlink(self._path)  # noqa: PTH108
        except OSError:  # Windows deletes no open file
            self.release()
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108
        finally:
            self.release()

    def _acquire_before(self, end: float, wait_s: float) -> None:
        """Acquire the lock until `end` of `time.monotonic`; a blocking call would have no time limit."""
        pause = _SHORTEST_PAUSE_S
        while True:
            try:
                self._acquire()
            except IndexLocked as error:
                left = end - time.monotonic()
                if left <= 0:
                    if wait_s:
                        error.message += f", also after a wait of {wait_s:g} s"
                    raise
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return

    def _acquire(self) -> None:
        self._open()
        try:
            _lock(self._descriptor)
        except (BlockingIOError, PermissionError) as error:
            holder = self._read_holder()
            self._close()
            raise IndexLocked("another writer holds the index", path=self._path.parent, actual=holder) from error
        except OSError as error:  # no locks on this file system
            self._close()
            raise access_failed(error, "locked", self._path) from error

    def _open(self) -> None:
        """Open or create the lock file, which must be a regular file."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            self._descriptor = os.open(self._path, flags, 0o644)
            is_regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise IndexNotFound("the folder of the index is gone", path=self._path.parent) from error
        except OSError as error:
            self._close()
            if error.errno not in NOT_REGULAR:
                hint = _READ_ONLY_HINT if error.errno in _NO_PERMISSION else ""
                raise access_failed(error, "opened for writing", self._path, hint) from error
            is_regular = False
        if not is_regular:
            self._close()
            raise CorruptFile("the lock file is not a regular file; delete it", path=self._path)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        """Close the file without unlocking it: a forked child shares the lock with its parent."""
        _held.discard(self)
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):  # it is closed even then, and nothing was written
                os.close(descriptor)

    def _write_holder(self) -> None:
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = json.dumps({"pid": os.getpid(), "since": started}).encode()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, _INFO_AT, os.SEEK_SET)
        os.write(self._descriptor, text)

    def _read_holder(self) -> str:
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
