"""The files of an index in memory, for tests that open thousands of damaged copies or need no disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, MutableMapping
from pathlib import Path

from quarry.formats.container.directory import Directory, LoadedFile, WriterLimits, is_safe_name
from quarry.formats.errors import CorruptFile, TruncatedFile
from quarry.formats.system_errors import access_failed

Files = MutableMapping[str, bytes | bytearray]


class MemoryDirectory(Directory):
    """Files in a mapping.

    A test that keeps a file as a bytearray may change it: readers that are opened afterwards see the new content.

    Args:
        path: of the folder in messages; nothing is read or written there.
        files: content by name; None: no files.
        before_write: see `Directory`.
    """

    def __init__(
        self, path: Path, files: Files | None = None, before_write: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self.files: Files = {} if files is None else files
        self.limits = WriterLimits()
        self._before_write = before_write

    def names(self) -> list[str]:
        return sorted(filter(is_safe_name, self.files))

    def create(self, name: str) -> MemoryFile:  # type: ignore[override]  # it is written the same way
        path = self.path_of(name)
        if name in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        return MemoryFile(path, self.files, self._before_write)

    def map(self, name: str) -> LoadedFile:  # type: ignore[override]  # it is read the same way
        content = self._content(name)
        if not content:
            raise TruncatedFile("empty file", path=self.path_of(name))
        return self._loaded(name, content)

    def load(self, name: str, max_bytes: int) -> LoadedFile:
        content = self._content(name)
        if len(content) > max_bytes:
            raise CorruptFile("file too large", path=self.path_of(name), expected=f"at most {max_bytes} bytes")
        return self._loaded(name, content)

    def read(self, name: str, max_bytes: int) -> bytes:
        return bytes(self.load(name, max_bytes).data)

    def head(self, name: str, n_bytes: int) -> bytes:
        return bytes(self._content(name)[:n_bytes])

    def may_hold(self, name: str) -> bool:
        return self.path_of(name).name in self.files

    def size_bytes(self, name: str) -> int:
        return len(self._content(name))

    def rename(self, source: str, target: str) -> None:
        if self.path_of(target).name in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path_of(target)))
        if self.path_of(source).name not in self.files:
            error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise access_failed(error, f"renamed to {target}", self.path_of(source))
        self.files[target] = self.files.pop(source)

    def delete(self, name: str) -> None:
        self.files.pop(self.path_of(name).name, None)

    def sync(self) -> None:
        """Do nothing: memory is as durable as the process."""

    def _content(self, name: str) -> bytes | bytearray:
        path = self.path_of(name)
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self.files[name]

    def _loaded(self, name: str, content: bytes | bytearray) -> LoadedFile:
        return LoadedFile(self.path_of(name), memoryview(content).toreadonly())


class MemoryFile:
    """A new file in memory; see `quarry.formats.container.directory.OutputFile`."""

    def __init__(self, path: Path, files: Files, before_write: Callable[[], None] | None) -> None:
        self.path = path
        self._files = files
        self._before_write = before_write
        self._content = bytearray()
        self._is_open = True
        files[path.name] = self._content

    @property
    def position(self) -> int:
        return len(self._content)

    def write(self, data: bytes | memoryview) -> None:
        if self._before_write:
            self._before_write()
        self._check_open("written")
        self._content += memoryview(data).cast("B")

    def read_back(self, offset: int, n_bytes: int) -> bytes:
        self._check_open("read")
        data = bytes(self._content[offset : offset + n_bytes])
        if len(data) < n_bytes:
            raise TruncatedFile("file ends early", path=self.path, expected=f"{n_bytes} bytes", actual=len(data))
        return data

    def sync(self) -> None:
        self._check_open("synced")

    def close(self) -> None:
        self._is_open = False

    def discard(self) -> None:
        self.close()
        if self._files.get(self.path.name) is self._content:
            del self._files[self.path.name]

    def _check_open(self, what: str) -> None:
        if not self._is_open:
            raise ValueError(f"{self.path}: a closed file cannot be {what}")
