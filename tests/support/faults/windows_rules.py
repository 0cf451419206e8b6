"""The rules of Windows for files that are open, on Linux.

The kernel lists what this process has open (/proc/self/fd) or mapped (/proc/self/maps), so no function that opens
files is replaced. Files are compared by inode: no hard link of an open file can be renamed or deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import quarry.formats.container.directory

_FILE_CALLS = ("open", "unlink", "remove", "rename", "replace")


class WindowsRules:
    """Calls of `os` that are refused as on Windows; every module, pathlib and shutil included, makes them.

    A file that is open or mapped cannot be renamed, replaced or deleted, nor can a folder that has one in it. A
    rename replaces nothing. A file that is being deleted or renamed cannot be opened. There is no fork.

    Args:
        root: the rules hold for what is in this folder.

    Attributes:
        refused: "call name" of each call that was refused.
        changing: names of files that are being deleted or renamed, and cannot be opened.
        when_refused: called when a call is refused, once.
    """

    def __init__(self, root: Path) -> None:
        self.refused: list[str] = []
        self.changing: set[str] = set()
        self.when_refused: Callable[[], object] = bool
        self._root = os.path.realpath(root) + os.sep
        self._real: dict[str, Any] = {name: getattr(os, name) for name in _FILE_CALLS}

    @contextmanager
    def installed(self) -> Iterator[WindowsRules]:
        """Apply the rules."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _FILE_CALLS:
                patch.setattr(os, name, getattr(self, name))
            patch.delattr(os, "fork")
            patch.setattr(quarry.formats.container.directory, "sys", SimpleNamespace(platform="win32"))
            yield self

    def open_files(self) -> dict[tuple[int, int], str]:
        """Return the path of each file in the folder that is open or mapped, by device and inode."""
        paths = {line.split(maxsplit=5)[5] for line in _mappings() if line.count(self._root)}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with suppress(OSError):  # the one of this list
                paths.add(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        found = {}
        for path in sorted(each for each in paths if each.startswith(self._root)):
            with suppress(FileNotFoundError):
                if not os.path.isdir(path):  # noqa: PTH112
                    status = os.stat(path)  # noqa: PTH116
                    found[status.st_dev, status.st_ino] = path
        return found

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if Path(os.fsdecode(path)).name in self.changing:
            self._refuse("open", path)
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        return descriptor

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._check("unlink", path, dir_fd)
        self._real["unlink"](path, dir_fd=dir_fd)

    remove = unlink

    def rename(self, source: Any, target: Any) -> None:
        self._check("rename", source, None)
        if os.path.lexists(target) and not Path(source).samefile(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        self._real["rename"](source, target)

    def replace(self, source: Any, target: Any) -> None:
        self._check("replace", source, None)
        if os.path.lexists(target):
            self._check("replace", target, None)
        self._real["replace"](source, target)

    def _check(self, call: str, path: Any, dir_fd: int | None) -> None:
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        opened = self.open_files()
        within = os.path.realpath(path) + os.sep if dir_fd is None else "\0"
        if (status.st_dev, status.st_ino) in opened or any(each.startswith(within) for each in opened.values()):
            self._refuse(call, path)

    def _refuse(self, call: str, path: Any) -> NoReturn:
        self.refused.append(f"{call} {Path(os.fsdecode(path)).name}")
        then, self.when_refused = self.when_refused, bool
        then()
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _mappings() -> list[str]:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
