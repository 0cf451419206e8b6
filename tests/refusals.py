"""Real failures of system calls: missing permissions and exhausted file descriptors."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import resource

NOBODY = 65534


@contextlib.contextmanager
def folder_of_anybody() -> Iterator[Path]:
    """Create a temporary folder that every user may enter; pytest's folders are private."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o777)
        yield folder
    finally:
        shutil.rmtree(folder)


def become_nobody() -> None:
    """Give up the rights of root, which cannot be undone: call this in a child process."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@contextlib.contextmanager
def mode_of(path: Path, mode: int) -> Iterator[None]:
    """Change the permissions of a file or folder within the block; a merge may delete it at any time."""
    before = 0
    with contextlib.suppress(FileNotFoundError):
        before = path.stat().st_mode
        path.chmod(mode)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.chmod(before)


def descriptors() -> set[int]:
    """Return all open file descriptors."""
    own = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        return {int(name) for name in os.listdir(own)} - {own}  # noqa: PTH208
    finally:
        os.close(own)


@contextlib.contextmanager
def only(n: int) -> Iterator[None]:
    """Limit the process to `n` more open files within the block."""
    used, limit, n_free = descriptors(), 0, 0
    while n_free < n or limit in used:
        n_free += limit not in used
        limit += 1
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
