"""Replacements of `os` in the modules that access index files: they record calls, or kill or fail at one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.indexes.inside import held_locks

import quarry.engine.indexer.build_folder
import quarry.formats.container.directory
import quarry.formats.container.file_copies
import quarry.formats.write_lock

CHANGES = frozenset({"create", "write", "fsync", "rename", "unlink", "ftruncate", "link"})
FALLIBLE = CHANGES | {"open", "read", "fstat", "listdir", "close", "mkdir", "rmdir"}


class Killed(BaseException):
    """The simulated end of the process: no later call reaches the disk."""


class SystemCalls:
    """Passes all calls to the system, except syncs."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}

    @contextmanager
    def installed(self) -> Iterator[SystemCalls]:
        """Replace `os` for the files of an index, its lock, and the folders that builds make."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quarry.engine.indexer.build_folder, "os", self)
            patch.setattr(quarry.formats.container.directory, "os", self)
            patch.setattr(quarry.formats.container.file_copies, "os", self)
            patch.setattr(quarry.formats.write_lock, "os", self)
            yield self

    def call(self, kind: str, name: str, perform: Callable[[], Any]) -> Any:
        """Make a system call for the file `name` ("" for the folder); to be overridden."""
        return perform()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        name = "" if flags & getattr(os, "O_DIRECTORY", 0) else Path(path).name
        kind = "create" if flags & os.O_CREAT else "open"
        descriptor: int = self.call(kind, name, lambda: os.open(path, flags, mode))
        self.names[descriptor] = name
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        n_bytes: int = self.call("write", self.names.get(descriptor, ""), lambda: self.take(descriptor, data))
        return n_bytes

    def take(self, descriptor: int, data: memoryview) -> int:
        """Write all of the data or a part; to be overridden."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self.call("fsync", self.names.get(descriptor, ""), lambda: None)

    def ftruncate(self, descriptor: int, n_bytes: int) -> None:
        self.call("ftruncate", self.names.get(descriptor, ""), lambda: os.ftruncate(descriptor, n_bytes))

    def rename(self, source: Path, target: Path) -> None:
        names = f"{Path(source).name} {Path(target).name}"
        self.call("rename", names, lambda: os.rename(source, target))  # noqa: PTH104

    def link(self, source: Path, target: Path, *, follow_symlinks: bool = True) -> None:
        name = Path(target).name
        self.call("link", name, lambda: os.link(source, target, follow_symlinks=follow_symlinks))

    def mkdir(self, path: Path) -> None:
        self.call("mkdir", Path(path).name, lambda: os.mkdir(path))  # noqa: PTH102

    def rmdir(self, path: Path) -> None:
        self.call("rmdir", Path(path).name, lambda: os.rmdir(path))  # noqa: PTH106

    def unlink(self, path: Path) -> None:
        self.call("unlink", Path(path).name, lambda: os.unlink(path))  # noqa: PTH108

    def read(self, descriptor: int, n_bytes: int) -> bytes:
        data: bytes = self.call("read", self.names.get(descriptor, ""), lambda: os.read(descriptor, n_bytes))
        return data

    def fstat(self, descriptor: int) -> os.stat_result:
        found: os.stat_result = self.call("fstat", self.names.get(descriptor, ""), lambda: os.fstat(descriptor))
        return found

    def listdir(self, path: Path) -> list[str]:
        names: list[str] = self.call("listdir", "", lambda: os.listdir(path))  # noqa: PTH208
        return names

    def close(self, descriptor: int) -> None:
        """Close the descriptor; an error is raised after that, as by the system."""
        os.close(descriptor)
        self.call("close", self.names.pop(descriptor, ""), lambda: None)


class KilledAt(SystemCalls):
    """Ends the process before the n-th change of the disk; every other write is split into two changes.

    Attributes:
        kinds: of the changes up to then.
    """

    def __init__(self, moment: int) -> None:
        super().__init__()
        self._left = moment
        self._halved = False
        self.kinds: list[str] = []

    @property
    def struck(self) -> bool:
        """Whether the process has ended."""
        return self._left <= 0

    def call(self, kind: str, name: str, perform: Callable[[], Any]) -> Any:
        if kind in CHANGES:
            self.kinds.append(kind)
            self._left -= 1
            if self._left <= 0:
                raise Killed
        return perform()

    def take(self, descriptor: int, data: memoryview) -> int:
        self._halved = not self._halved
        return os.write(descriptor, data[: -(-len(data) // 2)] if self._halved else data)


def release_locks() -> None:
    """Release all locks, as the system does when a process ends."""
    for lock in held_locks():
        lock.release()


class FailsAt(SystemCalls):
    """The n-th call fails with an error of the system.

    Args:
        moment: which call, from 1 on, of those that can fail.
        number: the error, of `errno`.
        kinds: the calls that count.
        lasting: whether all later calls of these kinds fail too, until `mend`.

    Attributes:
        kinds: of the calls that counted.
        failed: the first call that failed.
    """

    def __init__(self, moment: int, number: int, kinds: frozenset[str] = FALLIBLE, lasting: bool = False) -> None:
        super().__init__()
        self._left = moment
        self._number = number
        self._kinds = kinds
        self._lasting = lasting
        self.failed = ""
        self.kinds: list[str] = []

    def mend(self) -> None:
        """Let all calls succeed from now on."""
        self._kinds = frozenset()

    def call(self, kind: str, name: str, perform: Callable[[], Any]) -> Any:
        if kind in self._kinds:
            self.kinds.append(kind)
            self._left -= 1
            if self._left == 0 or (self._lasting and self._left < 0):
                self.failed = self.failed or f"{kind} {name}"
                raise OSError(self._number, os.strerror(self._number), name)
        return perform()


class ReadOnlyMedium(SystemCalls):
    """Refuses and records all calls that would change the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    def call(self, kind: str, name: str, perform: Callable[[], Any]) -> Any:
        if kind in CHANGES:
            self.refused.append(f"{kind} {name}")
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        return perform()


@dataclass(frozen=True)
class Event:
    """A requested change of the disk.

    Attributes:
        kind: one of CHANGES, or "mark" for a remark of the test.
        name: of the file, "" for the folder; of a rename both names.
        data: what was written.
    """

    kind: str
    name: str
    data: bytes = b""


class Recorder(SystemCalls):
    """Records the requested changes of the disk in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._lock = threading.RLock()  # so that the order of events is that of the changes

    def mark(self, remark: str) -> None:
        """Note a remark between the events."""
        self.events.append(Event("mark", remark))

    def call(self, kind: str, name: str, perform: Callable[[], Any]) -> Any:
        with self._lock:
            done = perform()
            if kind in CHANGES - {"write"}:
                self.events.append(Event(kind, name))
        return done

    def take(self, descriptor: int, data: memoryview) -> int:
        n_bytes = os.write(descriptor, data)
        self.events.append(Event("write", self.names[descriptor], bytes(data[:n_bytes])))
        return n_bytes
