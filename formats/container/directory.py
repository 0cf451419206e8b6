"""The folder of an index; only this module makes system calls for its files.

Files are created and never overwritten, file names never come from user data, links are not followed, maps are
read-only, and a file becomes part of the index only by the rename of a manifest. Errors of the operating system
are raised as AccessFailed, except FileNotFoundError and FileExistsError of a file that is opened.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from quarry.formats.errors import CorruptFile, IndexNotFound, TruncatedFile
from quarry.formats.system_errors import NOT_REGULAR, access_failed, mode_at, system_errors

__all__ = [
    "Directory",
    "LoadedFile",
    "MappedFile",
    "OutputFile",
    "WriterLimits",
    "is_folder",
    "is_safe_name",
    "open_to_read",
    "read_all",
    "regular_size",
    "retry_busy",
    "sync_folder",
    "sync_tree",
]

T = TypeVar("T")

_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.[a-z0-9]{1,8})?")
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # reserved on Windows
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
# errors of F_FULLFSYNC if the file system does not support it
_NO_FULL_SYNC = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}
_PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, *[0.064] * 4)  # before Windows is asked again


@lru_cache(1024)
def is_safe_name(name: str) -> bool:
    """Return whether `name` can be the name of a file of an index: no separators, leading dots or device names."""
    return _SAFE_NAME.fullmatch(name) is not None and _DEVICE.fullmatch(name) is None


@dataclass(frozen=True, kw_only=True)
class WriterLimits:
    """Limits of the memory that writers use, and of unsynced data.

    Attributes:
        section_bytes: buffer of a section of unknown size (`quarry.formats.container.spool.Spool`).
        posting_bytes: buffer of unsorted terms and metadata values (`quarry.formats.postings.inversion`).
        sample_bytes: buffer of documents to train a compression dictionary on (`quarry.formats.documents.store`).
        page_postings: postings in a page of a sorted run; a merge of runs reads one page of each.
        batch_postings: postings that are encoded at a time.
        sorted_hashes: about so many hashes of ids are sorted at a time, which takes 24 bytes for each.
        sync_bytes: from this size on, a merged file is synced a first time while postings are still merged.
    """

    section_bytes: int = 4 << 20
    posting_bytes: int = 64 << 20
    sample_bytes: int = 4 << 20
    page_postings: int = 1 << 12
    batch_postings: int = 1 << 15
    sorted_hashes: int = 1 << 19
    sync_bytes: int = 8 << 20


class Directory:
    """The files of one index.

    Args:
        path: the folder; it must exist. A relative path is resolved once, here.
        before_write: called before each write to a file; if it raises an error, nothing is written.
        limits: memory limits of the writers of files in this folder; None: the defaults.

    Raises:
        IndexNotFound: there is no folder at the path.
        AccessFailed: the path cannot be looked up.
    """

    def __init__(
        self, path: Path, before_write: Callable[[], None] | None = None, limits: WriterLimits | None = None
    ) -> None:
        if not is_folder(path):
            raise IndexNotFound("no index here", path=path, expected="a folder")
        self.path = path.absolute()
        self.limits = limits or WriterLimits()
        self._before_write = before_write

    def names(self) -> list[str]:
        """Return the sorted names of all files that could belong to an index.

        Raises:
            IndexNotFound: the folder was deleted.
            AccessFailed: it cannot be listed.
        """
        try:
            names = os.listdir(self.path)  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError) as error:
            raise IndexNotFound("the folder of the index was deleted", path=self.path) from error
        except OSError as error:
            raise access_failed(error, "listed", self.path) from error
        return sorted(name for name in names if is_safe_name(name))

    def create(self, name: str) -> OutputFile:
        """Create the file `name`, which must not exist."""
        return OutputFile(self.path_of(name), self._before_write)

    def map(self, name: str) -> MappedFile:
        """Map the file `name` for reading."""
        return MappedFile(self.path_of(name))

    def load(self, name: str, max_bytes: int) -> LoadedFile:
        """Read all of the file `name` into memory, as `read` does."""
        return LoadedFile(self.path_of(name), self.read(name, max_bytes))

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the content of a small file; it is not mapped, so that it can be replaced on every system."""
        path = self.path_of(name)
        with system_errors("read", path):
            descriptor = open_to_read(path)
            try:
                size = regular_size(descriptor, path)
                if size > max_bytes:
                    raise CorruptFile(
                        "file too large", path=path, expected=f"at most {max_bytes} bytes", actual=size
                    )
                return read_all(descriptor, size, path)
            finally:
                os.close(descriptor)

    def head(self, name: str, n_bytes: int) -> bytes:
        """Return the first `n_bytes` of a file, or all of them if it is shorter."""
        path = self.path_of(name)
        with system_errors("read", path):
            descriptor = open_to_read(path)
            try:
                return os.read(descriptor, n_bytes)
            finally:
                os.close(descriptor)

    def may_hold(self, name: str) -> bool:
        """Return whether there is a file of that name; True too if it cannot be looked up."""
        try:
            os.lstat(self.path_of(name))
        except OSError as error:
            return not isinstance(error, FileNotFoundError)
        return True

    def size_bytes(self, name: str) -> int:
        """Return the size of a file."""
        path = self.path_of(name)
        with system_errors("looked up", path):
            return os.stat(path).st_size  # noqa: PTH116

    def rename(self, source: str, target: str) -> None:
        """Rename a file to its final name; `target` must not exist, which the writer's lock guarantees."""
        if os.path.lexists(self.path_of(target)):
            raise FileExistsError(errno.EEXIST, "file exists", str(self.path_of(target)))
        try:
            retry_busy(lambda: os.rename(self.path_of(source), self.path_of(target)))  # noqa: PTH104
        except OSError as error:
            # a network file system may rename and lose the reply; then only the durability is unknown
            if os.path.lexists(self.path_of(source)) or not os.path.lexists(self.path_of(target)):
                raise access_failed(error, f"renamed to {target}", self.path_of(source)) from error

    def delete(self, name: str) -> None:
        """Delete a file; errors are ignored, because the next writer deletes orphan files."""
        with contextlib.suppress(OSError):
            os.unlink(self.path_of(name))  # noqa: PTH108

    def sync(self) -> None:
        """Make renames and new names durable; does nothing on Windows, which cannot sync a folder."""
        sync_folder(self.path)

    def path_of(self, name: str) -> Path:
        """Return the path of the file `name`.

        Raises:
            CorruptFile: no file of an index can have that name.
        """
        if not is_safe_name(name):
            raise CorruptFile("unsafe file name", path=self.path, actual=repr(name))
        return self.path / name


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at the path, or a link to one.

    Raises:
        AccessFailed: the path cannot be looked up.
    """
    return stat.S_ISDIR(mode_at(path))


def sync_folder(path: Path) -> None:
    """Sync a folder, if the system supports it."""
    if sys.platform == "win32":
        return
    with system_errors("synced", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _full_sync(descriptor)
        finally:
            os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Sync all files in a folder and in the folders within it, and the folders themselves."""
    for each in sorted(path.rglob("*"), reverse=True):  # what lies in a folder before it
        if each.is_dir():
            sync_folder(each)
        else:
            with system_errors("synced", each), each.open("rb+") as file:
                _full_sync(file.fileno())
    sync_folder(path)


class OutputFile:
    """A new file that is written from front to back and is not part of the index yet."""

    _descriptor = -1

    def __init__(self, path: Path, before_write: Callable[[], None] | None = None) -> None:
        self.path = path
        self.position = 0
        self._before_write = before_write
        try:
            self._descriptor = os.open(path, _CREATE, 0o644)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise access_failed(error, "created", path) from error

    def write(self, data: bytes | memoryview) -> None:
        """Append all of `data`, with several system calls if necessary."""
        if self._before_write:
            self._before_write()
        view = memoryview(data).cast("B")
        with system_errors("written", self.path):
            while view:
                os.lseek(
                    self._descriptor, self.position, os.SEEK_SET
                )  # the position may have been moved by reading or an interrupt
                written = os.write(self._descriptor, view)
                self.position += written
                view = view[written:]

    def read_back(self, offset: int, n_bytes: int) -> bytes:
        """Read what was written, while the file is open."""
        with system_errors("read", self.path):
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return read_all(self._descriptor, n_bytes, self.path)

    def sync(self) -> None:
        """Make the content durable; after an error the file must be discarded."""
        with system_errors("synced", self.path):
            _full_sync(self._descriptor)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with system_errors("closed", self.path):
                os.close(descriptor)

    def discard(self) -> None:
        """Close and delete the file; errors are ignored."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108

    def __del__(self) -> None:
        """Close the descriptor, if an interrupt prevented that."""
        with contextlib.suppress(OSError):
            self.close()


class MappedFile:
    """A file mapped for reading; it holds one descriptor.

    Attributes:
        data: all bytes of the file, read-only. Views of it stay valid after `close`; the map is closed with the
            last of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with system_errors("mapped", path):
            descriptor = open_to_read(path)
            try:
                size = regular_size(descriptor, path)
                if size == 0:
                    raise TruncatedFile("empty file", path=path)
                self._map: mmap.mmap | None = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
            except ValueError as error:  # it was truncated after its size was read
                raise TruncatedFile("the file was truncated", path=path, expected=f"{size} bytes") from error
            finally:
                os.close(descriptor)
        self.data = memoryview(self._map)
        self.n_bytes = size

    def close(self) -> None:
        """Close the map, now or with its last view."""
        if self._map is None:
            return
        with contextlib.suppress(BufferError):  # views of the map are still in use
            self.data.release()
            self._map.close()
        self._map = None


class LoadedFile:
    """A small file read into memory, so that it can be deleted or renamed on every system.

    Attributes:
        data: all bytes of the file, read-only.
        n_bytes: size of the file.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self.data = memoryview(content)
        self.n_bytes = len(content)

    def close(self) -> None:
        """Do nothing: the file is closed already."""


def open_to_read(path: Path) -> int:
    """Open a file, not a link, and return its descriptor.

    Raises:
        FileNotFoundError: there is none.
        CorruptFile: it is not a regular file.
        AccessFailed: it cannot be opened.
    """
    try:
        return retry_busy(lambda: os.open(path, _READ))
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in NOT_REGULAR:
            raise CorruptFile("not a regular file", path=path, actual=error.strerror) from error
        raise access_failed(error, "opened", path) from error


def regular_size(descriptor: int, path: Path) -> int:
    """Return the size of an open file.

    Raises:
        CorruptFile: it is not a regular file.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFile("not a regular file", path=path)
    return status.st_size


def read_all(descriptor: int, n_bytes: int, path: Path) -> bytes:
    """Read so many bytes from the position of a file.

    Raises:
        TruncatedFile: the file ends before.
    """
    parts: list[bytes] = []
    left = n_bytes
    while left:
        part = os.read(descriptor, left)
        if not part:
            raise TruncatedFile("file ends early", path=path, expected=f"{n_bytes} bytes", actual=n_bytes - left)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _full_sync(descriptor: int) -> None:
    if sys.platform == "darwin":  # fsync does not flush the drive's cache
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
            os.fsync(descriptor)
        return
    os.fsync(descriptor)


def retry_busy(action: Callable[[], T]) -> T:
    """Call a function, on Windows again while it is refused: others may be deleting or scanning a file."""
    for pause in _PAUSES_S if sys.platform == "win32" else ():
        try:
            return action()
        except PermissionError:
            time.sleep(pause)
    return action()
