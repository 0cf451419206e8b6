"""Files that the index no longer needs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection

from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, IndexNotFound
from quarry.formats.manifest import IndexSettings, Manifest, find_latest_generation
from quarry.formats.vectors.hnsw_graph import graph_name
from quarry.formats.write_lock import LOCK_NAME, WriteLock

__all__ = ["WORK_FOLDER", "Garbage", "collect_garbage", "delete_finished_work", "files_of", "is_own_file"]

WORK_FOLDER = "reencoding"
"""Folder, in that of an index, of the index that collects its documents while they are written again."""

_OWN_FILES = re.compile(r"MANIFEST-\d{20}|[0-9a-f]{32}\.(seg|quant|del|hnsw)|(spool|manifest)-[0-9a-f]+\.tmp")


class Garbage:
    """Files of a writer's earlier generations, until they are deleted; one that cannot be is tried again.

    Attributes:
        held: names of files that are kept even if no generation names them, by the purpose they serve.
    """

    def __init__(self, directory: Directory) -> None:
        self.held: dict[str, str] = {}
        self._directory = directory
        self._names: set[str] = set()

    def add(self, names: Collection[str]) -> None:
        """Delete these files at the next `collect` whose generation does not name them."""
        self._names |= set(names)

    def collect(self, manifest: Manifest) -> None:
        """Delete the files that this generation does not name and that are not held."""
        self._names -= files_of(manifest)
        for name in self._names - set(self.held.values()):
            self._directory.delete(name)
        if self._names:
            with contextlib.suppress(OSError, IndexNotFound):
                self._names &= set(self._directory.names())


def collect_garbage(directory: Directory, lock: WriteLock) -> None:
    """Delete orphan files: those named like files of an index that the current generation does not name.

    Only for a writer without unfinished files, and only if the current generation is certain to survive a power
    loss: the files may be those of the generation before. Nothing is deleted if the lock file was deleted, because
    they may be another writer's, or if it cannot be known what the index needs.
    """
    with contextlib.suppress(FormatError, IndexNotFound, OSError):
        directory.sync()
        delete_finished_work(directory, lock)
        names, needed = directory.names(), _needed(directory)
        if lock.is_in_place():  # and was until now: files that another writer makes later are not among the names
            for name in names:
                if is_own_file(name) and name not in needed:
                    directory.delete(name)


def is_own_file(name: str) -> bool:
    """Return whether a file is named like one of an index."""
    return _OWN_FILES.fullmatch(name) is not None


def delete_finished_work(directory: Directory, lock: WriteLock) -> None:
    """Delete what was not deleted of a work index: it has no manifest, or became that of the index already."""
    path = directory.path / WORK_FOLDER
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FormatError, OSError):
            work = Directory(path)
            made, current = _newest(work), _newest(directory)
            is_left = made is None or (current is not None and _kind(made) == _kind(current))
            if is_left and lock.is_in_place():
                for name in work.names():  # the folder may be another one of this name
                    if is_own_file(name) or name == LOCK_NAME:
                        work.delete(name)
                path.rmdir()


def _kind(manifest: Manifest) -> tuple[str, IndexSettings]:
    return manifest.encoder.identity, manifest.settings


def _newest(directory: Directory) -> Manifest | None:
    try:
        return Manifest.load(directory, find_latest_generation(directory))
    except IndexNotFound:
        return None


def _needed(directory: Directory) -> set[str]:
    manifest = _newest(directory)
    return set() if manifest is None else files_of(manifest)


def files_of(manifest: Manifest) -> set[str]:
    """Return the names of all files of a generation, and of those that may have been derived from them."""
    return manifest.file_names() | {graph_name(segment.file.file_id) for segment in manifest.segments}
