"""Files taken over into another folder: as hard links if the file system supports them, or else as copies.

Files of an index never change, so that two folders can share one. A file that is open here can be copied even if
it is deleted from its folder in the meantime.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Self

from quarry.formats.container.directory import Directory, open_to_read, read_all, regular_size
from quarry.formats.system_errors import system_errors

__all__ = ["SourceFile"]

_BATCH_BYTES = 1 << 20


class SourceFile:
    """A file that is open to be taken over; a context manager.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptFile: it is not a regular file.
        AccessFailed: it cannot be opened.
    """

    _descriptor = -1

    def __init__(self, directory: Directory, name: str) -> None:
        self.path: Path = directory.path_of(name)
        with system_errors("opened", self.path):
            self._descriptor = open_to_read(self.path)
            try:
                self.n_bytes = regular_size(self._descriptor, self.path)
            except BaseException:
                self.close()
                raise

    def put(self, directory: Directory, name: str) -> bool:
        """Take the file over as `name`, which must not exist; return whether it is a hard link.

        The name is durable after `Directory.sync`.

        Raises:
            TruncatedFile, AccessFailed: as `copy` raises them.
        """
        if self._is_linked(directory.path_of(name)):
            return True
        self.copy(directory, name)
        return False

    def copy(self, directory: Directory, name: str) -> None:
        """Copy the file to `name`, which must not exist; unlike a link, a copy can be renamed on every system.

        The content is durable afterwards, the name after `Directory.sync`.

        Raises:
            TruncatedFile: the file became shorter; nothing is left.
            AccessFailed: it cannot be read, or the copy cannot be written; nothing is left.
        """
        output = directory.create(name)
        try:
            for offset in range(0, self.n_bytes, _BATCH_BYTES):
                output.write(self._read(offset))
            output.sync()
            output.close()
        except BaseException:
            output.discard()
            raise

    def _is_linked(self, target: Path) -> bool:
        """Make a hard link if that is possible; return whether it was made."""
        try:
            os.link(self.path, target, follow_symlinks=False)
        except (
            OSError,
            NotImplementedError,
        ):  # another file system, or one without links; a deleted file, and so on
            return False
        with contextlib.suppress(OSError):
            ours, theirs = os.fstat(self._descriptor), os.lstat(target)
            if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino):
                return True
        with contextlib.suppress(OSError):  # another file has taken its place
            os.unlink(target)  # noqa: PTH108
        return False

    def _read(self, offset: int) -> bytes:
        n_bytes = min(_BATCH_BYTES, self.n_bytes - offset)
        with system_errors("read", self.path):
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return read_all(self._descriptor, n_bytes, self.path)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):  # nothing was written
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
