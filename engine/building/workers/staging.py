"""The folders of attempts to build an index: beside it, not in it, until everything in them is in the index."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path

import xxhash

from quarry.formats.system_errors import system_errors
from quarry.formats.write_lock import WriteLock

__all__ = ["collect_staging", "delete_staging", "make_staging"]

_SUFFIX = re.compile(r"[0-9a-f]{32}")


def make_staging(index: Path) -> Path:
    """Make a folder for the files of one attempt, on the file system of the index, under a name of its own.

    Raises:
        AccessFailed: the operating system refuses.
    """
    folder, prefix = _place_and_prefix(index)
    path = folder / f"{prefix}{secrets.token_hex(16)}"
    with system_errors("made", path):
        os.mkdir(path)  # noqa: PTH102
    return path


def delete_staging(path: Path) -> None:
    """Delete the folder of an attempt; what cannot be deleted stays for `collect_staging`."""
    shutil.rmtree(path, ignore_errors=True)


def collect_staging(index: Path, lock: WriteLock) -> None:
    """Delete the folders of attempts for this index that ended without a commit, for example because of a crash.

    Only for a writer that has no attempt under way; those of others would hold the lock of the index, too.

    Args:
        index: folder of the index.
        lock: of the index, held.
    """
    folder, prefix = _place_and_prefix(index)
    with contextlib.suppress(OSError):  # others may not be allowed to list the folder
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix)]
        for name in names:
            if _SUFFIX.fullmatch(name.removeprefix(prefix)) and lock.is_in_place():
                delete_staging(folder / name)


def _place_and_prefix(index: Path) -> tuple[Path, str]:
    """The folder that the attempts for an index are in, and how their names begin there.

    Indexes may have names as long as the system allows, so that of an attempt has a hash of it.
    """
    path = Path(os.path.realpath(index))
    return path.parent, f".quarry-{xxhash.xxh3_64_hexdigest(os.fsencode(path.name))}-"
