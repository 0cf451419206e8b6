"""A snapshot: a complete copy of an index at one generation, by hard links if the file system supports them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from quarry.engine.indexer.build_folder import BuildFolder
from quarry.engine.indexer.commits.garbage import collect_garbage, is_own_file
from quarry.engine.reuse.generation_files import GenerationFiles, open_shards
from quarry.formats.container.directory import Directory, is_folder
from quarry.formats.errors import InvalidSetting
from quarry.formats.shard_set import (
    ShardSet,
    collect_shard_garbage,
    delete_folders,
    has_shard_set,
    is_own_entry,
    load_newest_shard_set,
    make_folders,
    shard_directory,
    shard_folder_names,
)
from quarry.formats.system_errors import system_errors
from quarry.formats.write_lock import LOCK_NAME

__all__ = ["SnapshotReport", "write_snapshot"]


@dataclass(frozen=True, kw_only=True)
class SnapshotReport:
    """The result of `Engine.snapshot`.

    Attributes:
        generation: the generation of the index that was copied; for a sharded index the generations of all shards
            added up.
        n_documents: documents in the snapshot.
        n_files: its files.
        n_linked: how many of them are hard links, which take no space until the index deletes its own; the others
            were copied.
        n_bytes: size of all files.
    """

    generation: int
    n_documents: int
    n_files: int
    n_linked: int
    n_bytes: int


def write_snapshot(directory: Directory, path: Path) -> SnapshotReport:
    """Copy the newest generation of an index to another folder, which becomes an index in one step.

    Args:
        directory: the folder of the index, sharded or not.
        path: folder of the copy; created if it is missing.

    Raises:
        InvalidSetting: there are other files at `path`.
        IndexExists: there is an index at `path`.
        IndexLocked: another process is writing to `path`.
        IndexNotFound: the index was deleted.
        FormatError: a file of the index is damaged or missing.
        AccessFailed: a file cannot be read or written. After an error there is no new index at `path`.
    """
    folder = BuildFolder(path.absolute(), overwrite=False, can_replace=False)
    folder.check_free()
    _check_empty(path)
    with folder, ExitStack() as stack:
        target = Directory(folder.path)
        if has_shard_set(directory):
            shard_set, shards = open_shards(directory, stack)
            _copy_shards(shard_set, shards, target)
            collect_shard_garbage(target, folder.lock)
            return _report(shards, target)
        files = stack.enter_context(GenerationFiles(directory))
        collect_garbage(target, folder.lock)  # of an attempt that was killed
        try:
            files.put(target)
            files.publish(target)
        except BaseException:
            collect_garbage(target, folder.lock)
            raise
        return _report([files])


def _check_empty(path: Path) -> None:
    """Check that a folder holds nothing but an index, or files that an interrupted snapshot has left."""
    if is_folder(path):
        own = (is_own_file, is_own_entry, {LOCK_NAME}.__contains__)
        with system_errors("listed", path):
            names = os.listdir(path)  # noqa: PTH208
        others = [name for name in names if not any(is_own(name) for is_own in own)]
        if others:
            raise InvalidSetting(
                "the folder of the snapshot has other files",
                path=path,
                expected="a folder that does not exist, or is empty",
                actual=min(others),
            )


def _copy_shards(shard_set: ShardSet, shards: Sequence[GenerationFiles], target: Directory) -> None:
    """Copy shards into folders of new names, so that remains of an attempt that was killed are not in the way."""
    set_id = secrets.token_bytes(16)
    names = shard_folder_names(set_id, len(shards))
    new = ShardSet(generation=shard_set.generation, set_id=set_id, parent_id=shard_set.set_id, folders=names)
    is_visible = False
    try:
        make_folders(target, names)
        folders = [shard_directory(target, name, len(names)) for name in names]
        for shard, folder in zip(shards, folders, strict=True):
            shard.put(folder)
        for shard, folder in zip(shards, folders, strict=True):
            shard.publish(folder)
        target.sync()
        is_visible = True  # from here on perhaps
        new.commit(target)
        target.sync()
    except BaseException:
        if not is_visible or not has_shard_set(target):
            delete_folders(target, names)
        raise


def _report(parts: Sequence[GenerationFiles], root: Directory | None = None) -> SnapshotReport:
    """Return the numbers of all parts; with the directory of a sharded index, those of its shard set too."""
    root_bytes = 0 if root is None else root.size_bytes(load_newest_shard_set(root).name)
    return SnapshotReport(
        generation=sum(part.manifest.generation for part in parts),
        n_documents=sum(part.manifest.n_documents for part in parts),
        n_files=sum(part.n_files for part in parts) + (root is not None),
        n_linked=sum(part.n_linked for part in parts),
        n_bytes=sum(part.n_bytes for part in parts) + root_bytes,
    )
