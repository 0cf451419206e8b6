"""The folders of shards: named when they are made, deleted when no shard set names them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.errors import FormatError, IndexNotFound
from quarry.formats.shard_set import load_newest_shard_set
from quarry.formats.system_errors import system_errors
from quarry.formats.write_lock import WriteLock

__all__ = [
    "collect_shard_garbage",
    "delete_folders",
    "is_own_entry",
    "make_folders",
    "shard_directory",
    "shard_folder_names",
]

_FOLDER = re.compile(r"shard-[0-9a-f]{32}-\d{4}")
_LEAST_BYTES = 1 << 20
_FILE = re.compile(r"SHARDS-\d{20}|shards-[0-9a-f]{32}\.tmp")


def shard_folder_names(set_id: bytes, n_shards: int) -> tuple[str, ...]:
    """Return the names of the folders of a shard set."""
    return tuple(f"shard-{set_id.hex()}-{number:04d}" for number in range(n_shards))


def shard_directory(directory: Directory, name: str, n_shards: int) -> Directory:
    """Return the folder of a shard, whose writers have their share of the buffers of one index.

    Raises:
        IndexNotFound: there is no such folder.
    """
    limits = directory.limits

    def share(n_bytes: int) -> int:
        return min(n_bytes, max(_LEAST_BYTES, n_bytes // n_shards))

    shared = WriterLimits(
        section_bytes=share(limits.section_bytes),
        posting_bytes=share(limits.posting_bytes),
        sample_bytes=share(limits.sample_bytes),
        page_postings=limits.page_postings,
        batch_postings=limits.batch_postings,
        sync_bytes=limits.sync_bytes,
    )
    return Directory(directory.path / name, limits=shared)


def make_folders(directory: Directory, names: tuple[str, ...]) -> None:
    """Make the folders of new shards, and make their names durable.

    Raises:
        AccessFailed: the operating system refuses.
    """
    for name in names:
        path = directory.path / name
        with system_errors("made", path):
            os.mkdir(path)  # noqa: PTH102
    directory.sync()


def delete_folders(directory: Directory, names: tuple[str, ...]) -> None:
    """Delete folders of shards and all that is in them; what cannot be deleted stays for the next collection."""
    for name in names:
        path = directory.path / name
        if path.is_symlink():
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def collect_shard_garbage(directory: Directory, lock: WriteLock) -> None:
    """Delete shard sets, and folders of shards, that are not of the current generation.

    Only for the holder of the lock that is not building new shards. Nothing is deleted if the current shard set
    cannot be read.
    """
    with contextlib.suppress(FormatError, IndexNotFound, OSError):
        directory.sync()
        names = directory.names()
        current = load_newest_shard_set(directory)
        needed = {current.name, *current.folders}
        if lock.is_in_place():
            for name in names:
                if name not in needed and _FILE.fullmatch(name):
                    directory.delete(name)
            delete_folders(directory, tuple(name for name in names if name not in needed and _is_shard(name)))


def is_own_entry(name: str) -> bool:
    """Return whether a file or folder is named like one of a sharded index."""
    return _is_shard(name) or _FILE.fullmatch(name) is not None


def _is_shard(name: str) -> bool:
    return _FOLDER.fullmatch(name) is not None
