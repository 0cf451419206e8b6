"""Converts errors of the operating system to errors of Quarry, which name the file and a remedy."""

from __future__ import annotations

import contextlib
import errno
import ntpath
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quarry.formats.errors import AccessFailed, InvalidSetting, QuarryError

__all__ = ["NOT_REGULAR", "access_failed", "checked_path", "long_path", "mode_at", "system_errors"]

NOT_REGULAR: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR})
"""The errors of opening a link (ELOOP, EMLINK on BSD), a socket, or a folder for writing."""
_LONG_FOLDER: Final = 150
"""Characters of a folder; paths of what Quarry writes in a shorter one have less than 260."""
_PERMISSION: Final = "permission for this user on it and on the folders above it"
_SPACE: Final = "free space on its file system"
_REMEDIES: Final = {
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "a file system that can be written to",
    errno.EMFILE: "fewer open files: close indexes that are not needed, or raise the limit (ulimit -n)",
    errno.ENFILE: "fewer open files in the whole system",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "a higher limit of the size of files (ulimit -f)",
    errno.ENAMETOOLONG: "a shorter path",
    errno.ELOOP: "a path without links that lead to themselves",
    errno.ENOTDIR: "folders at every step of the path",
    errno.ENOLCK: "a file system that can lock files",
    errno.EOPNOTSUPP: "a file system that can lock, map and sync files",
    errno.ENOMEM: "more free memory",
    errno.EIO: "a sound device; the system's log may say more",
}


def access_failed(error: OSError, what: str, path: str | os.PathLike[str], hint: str = "") -> AccessFailed:
    """Make the error to raise for an error of the operating system.

    Args:
        error: the original error.
        what: the operation that failed, as a participle: "opened", "written" and so on.
        path: the file or folder.
        hint: another remedy.
    """
    remedies = [_REMEDIES.get(error.errno or 0, ""), hint]
    expected = "; ".join(filter(None, remedies)) or None
    return AccessFailed(f"cannot be {what}", path=os.fspath(path), expected=expected, error=error)


@contextlib.contextmanager
def system_errors(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise AccessFailed for an error of the operating system within the block.

    Args:
        what: the operation of the block, as a participle: "opened", "written" and so on.
        path: the file or folder.

    Raises:
        AccessFailed: for every OSError except those below.
        FileNotFoundError: the file is missing; the caller decides what that means.
        FileExistsError: the file exists; the same.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, QuarryError):
        raise
    except OSError as error:
        raise access_failed(error, what, path) from error


def mode_at(path: Path) -> int:
    """Return the `st_mode` of the file or folder at a path, links followed; 0 if there is none.

    Raises:
        AccessFailed: it cannot be looked up.
    """
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise access_failed(error, "looked up", path) from error


def checked_path(value: str | os.PathLike[str], name: str) -> Path:
    """Convert an argument of a public function to a path.

    Raises:
        InvalidSetting: it is not a path, or an empty one, it cannot be encoded, or it is relative to a folder that
            was deleted.
    """
    given: object = value
    with contextlib.suppress(TypeError):  # not a path
        given = os.fspath(value)
    if not isinstance(given, str):
        raise InvalidSetting(
            f"{name} is not a path", expected="a str or an os.PathLike of str", actual=type(given).__name__
        )
    if not given:
        raise InvalidSetting(f"{name} is empty", expected="a path; '.' is the working directory")
    if "\0" in given or not _is_encodable(given):
        raise InvalidSetting(f"{name} has a character that is not allowed in paths", actual=ascii(given))
    path = Path(long_path(given) if sys.platform == "win32" else given)
    if not path.is_absolute():
        try:
            Path.cwd()
        except OSError as error:
            raise InvalidSetting(
                f"{name} is relative, and the working directory of this process was deleted or cannot be read",
                expected="an absolute path",
                actual=repr(given),
            ) from error
    return path


def long_path(path: str) -> str:
    r"""Return a path of Windows that, if it is long, has no limit of 260 characters: one with ``\\?\``."""
    full = ntpath.abspath(path)
    if len(full) <= _LONG_FOLDER or full.startswith("\\\\?\\"):
        return path
    return "\\\\?\\UNC" + full[1:] if full.startswith("\\\\") else "\\\\?\\" + full


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeError:
        return False
    return True
