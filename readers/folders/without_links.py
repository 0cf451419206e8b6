"""Folders and files below a folder, reached without following a symbolic link, whatever another process does.

A folder is read by names that were listed before. Until a file is opened, another process may have made a link of
it, or of a folder above it, that leads to a file outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from quarry.formats.errors import InvalidDocument
from quarry.formats.system_errors import access_failed
from quarry.readers.files.file_documents import FileContent

__all__ = ["check_without_links", "has_descriptors", "opened_folder"]

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = _FOLDER | getattr(os, "O_NOFOLLOW", 0)


@cache
def has_descriptors() -> bool:
    """Return whether the system has descriptors of folders; Windows has none."""
    # by name: a program may have put functions of its own in place of these
    of_folders, of_descriptors = (
        {each.__name__ for each in every} for every in (os.supports_dir_fd, os.supports_fd)
    )
    return "open" in of_folders and "scandir" in of_descriptors


@contextlib.contextmanager
def opened_folder(top: Path, name: str) -> Iterator[int | Path]:
    """Open a folder; the value is its descriptor, or where the system has none its path.

    Args:
        top: may be a link, as its path may have links.
        name: the path of the folder relative to it, with slashes; "" for the folder itself.

    Raises:
        OSError: it cannot be opened, or it or a folder between is a link.
    """
    parts = [part for part in name.split("/") if part]
    if not has_descriptors():
        path = top
        for part in parts:
            path /= part
            if path.is_symlink():
                raise NotADirectoryError(f"{path} is a symbolic link")
        yield path
        return
    folder = os.open(top, _FOLDER)
    try:
        for part in parts:
            below = os.open(part, _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def check_without_links(top: Path, name: str, content: FileContent) -> None:
    """Check that what was read of a file is of the one that has this name without links.

    Args:
        top: the folder that is read.
        name: the path of the file relative to it, with slashes.
        content: what was read.

    Raises:
        InvalidDocument: it is of another file.
        AccessFailed: there is no such file any more, or a folder above it is a link.
    """
    above, _, last = name.rpartition("/")
    try:
        with opened_folder(top, above) as folder:
            if isinstance(folder, int):
                status = os.stat(last, dir_fd=folder, follow_symlinks=False)
                is_same = (status.st_dev, status.st_ino) == content.identity
            else:
                is_same = not stat.S_ISLNK(os.lstat(folder / last).st_mode)
    except OSError as error:
        raise access_failed(error, "read", top / name) from error
    if not is_same:
        raise InvalidDocument(
            "was replaced while the folder was read",
            path=top / name,
            expected="a file that is not a symbolic link",
        )
