"""Files that the index no longer needs."""

from __future__ import annotations

import contextlib
import re

from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, IndexNotFound
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.vectors.hnsw_graph import graph_name
from quarry.formats.write_lock import WriteLock

__all__ = ["collect_garbage", "files_of"]

_OWN_FILES = re.compile(r"MANIFEST-\d{20}|[0-9a-f]{32}\.(seg|quant|del|hnsw)|(spool|manifest)-[0-9a-f]+\.tmp")


def collect_garbage(directory: Directory, lock: WriteLock) -> None:
    """Delete files of our own making that the current generation does not name.

    Only for a writer that has nothing in the making. Not before that generation is certain to outlive a power
    loss: the files may be those of the one before it. Not either where the lock file was deleted: they may be
    another writer's.
    """
    with contextlib.suppress(FormatError, IndexNotFound, OSError):  # then what the index needs cannot be known now
        directory.sync()
        names, needed = directory.names(), _needed(directory)
        if lock.is_in_place():  # and was until now: what another writer makes later is not among the names
            for name in names:
                if _OWN_FILES.fullmatch(name) and name not in needed:
                    directory.delete(name)


def _needed(directory: Directory) -> set[str]:
    try:
        return files_of(Manifest.load(directory, find_latest_generation(directory)))
    except IndexNotFound:
        return set()


def files_of(manifest: Manifest) -> set[str]:
    """The names of all files of a generation, and of those that may have been derived from them."""
    return manifest.file_names() | {graph_name(segment.file.file_id) for segment in manifest.segments}
