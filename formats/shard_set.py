"""The shard set: the folders that an index is divided into, and the rule that assigns documents to them.

Folders are named when they are made, and deleted when no shard set names them.

``SHARDS-<generation>`` is the root of a sharded index. A build writes complete indexes into new folders and then
renames a finished shard set to its name; the highest generation is the index. Each folder is an ordinary index
with manifests of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from quarry.formats.container.directory import Directory, WriterLimits, is_safe_name
from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.ids import hash_id
from quarry.formats.errors import CorruptFile, FormatError, IndexNotFound, ShardNotFound
from quarry.formats.root_file import MAX_GENERATION, RootFile
from quarry.formats.system_errors import system_errors
from quarry.formats.write_lock import WriteLock

__all__ = [
    "MAX_SHARDS",
    "ShardSet",
    "collect_shard_garbage",
    "delete_folders",
    "find_latest_shard_set",
    "has_shard_set",
    "is_own_entry",
    "load_newest_shard_set",
    "make_folders",
    "shard_directory",
    "shard_folder_names",
    "shard_of",
    "use_newest_shard_set",
]

T = TypeVar("T")

MAX_SHARDS = 4096
_ROUTING = "xxh3-64"  # the only rule so far, see `shard_of`
_ATTEMPTS = 100  # a build may delete the file after the folder was listed


@dataclass(frozen=True, kw_only=True)
class ShardSet(RootFile):
    """The shards of one generation of a sharded index.

    Attributes:
        generation: number of the build, from 1.
        set_id: 16 random bytes.
        parent_id: set_id of the generation before, or zeros.
        folders: name of each shard's folder; shard i holds the documents that `shard_of` assigns to i.
        unknown_features: bits of the features that a writer must know and this version does not.
    """

    prefix: ClassVar[str] = "SHARDS"
    kind: ClassVar[FileKind] = FileKind.SHARDS
    title: ClassVar[str] = "shard set"
    generation: int
    set_id: bytes
    parent_id: bytes
    folders: tuple[str, ...]
    unknown_features: int = 0

    @property
    def file_id(self) -> bytes:
        """The id of the shard set."""
        return self.set_id

    def is_newest(self, directory: Directory) -> bool:
        """Return whether this is still the current shard set; lists the folder and reads the start of one file.

        Raises:
            IndexNotFound: the index was deleted.
        """
        return find_latest_shard_set(directory) == self.generation and self.has_id_in(directory)

    def check_replaced(self, directory: Directory, missing: IndexNotFound) -> None:
        """Check that a folder of a shard is missing because a newer shard set has replaced this one.

        Args:
            directory: the folder of the index.
            missing: error of opening the shard.

        Raises:
            ShardNotFound: this is still the current shard set.
            IndexNotFound: the index was deleted.
        """
        if self.is_newest(directory):
            raise ShardNotFound(path=missing.path) from missing

    def to_fields(self) -> dict[str, object]:
        """Return the fields of the file."""
        return {
            "generation": self.generation,
            "parent_id": self.parent_id,
            "routing": _ROUTING,
            "folders": [{"name": folder} for folder in self.folders],
        }

    @classmethod
    def from_container(cls, container: ContainerReader) -> ShardSet:
        """Parse the fields of a file."""
        fields = container.fields
        shard_set = ShardSet(
            generation=fields.integer("generation", 1, MAX_GENERATION),
            set_id=container.record.file_id,
            parent_id=fields.binary("parent_id", 16),
            folders=tuple(map(_parse_folder, fields.children("folders", MAX_SHARDS))),
            unknown_features=container.unknown_writer_features,
        )
        fields.choice("routing", (_ROUTING,))
        if not shard_set.folders or len(set(shard_set.folders)) != len(shard_set.folders):
            raise CorruptFile(
                "a shard set without folders, or with one twice",
                path=container.path,
                actual=f"{len(shard_set.folders)} folders",
            )
        return shard_set


def shard_of(doc_id: str, n_shards: int) -> int:
    """Return the number of the shard that an id belongs to: the XXH3-64 of its UTF-8, modulo `n_shards`."""
    return hash_id(doc_id) % n_shards


def find_latest_shard_set(directory: Directory) -> int:
    """Return the highest generation of a shard set in the folder.

    Raises:
        IndexNotFound: there is none.
    """
    latest = ShardSet.find_latest(directory)
    if latest is None:
        raise IndexNotFound("no sharded index here", path=directory.path, expected="a file SHARDS-<generation>")
    return latest


def has_shard_set(directory: Directory) -> bool:
    """Return whether the folder has a sharded index."""
    try:
        return ShardSet.find_latest(directory) is not None
    except IndexNotFound:  # nor is there a folder
        return False


def load_newest_shard_set(directory: Directory) -> ShardSet:
    """Read the current shard set.

    Raises:
        IndexNotFound: there is none.
        FormatError: it is damaged.
    """
    for _ in range(_ATTEMPTS):
        generation = find_latest_shard_set(directory)
        try:
            return ShardSet.load(directory, generation)
        except FileNotFoundError:
            continue  # a build has replaced it
    raise CorruptFile("the shard set cannot be read", path=directory.path)


def use_newest_shard_set(directory: Directory, use: Callable[[ShardSet], T]) -> T:
    """Call a function with the current shard set; again if a build has replaced that and deleted its folders.

    Args:
        directory: the folder of the index.
        use: raises IndexNotFound if a folder is missing.

    Raises:
        IndexNotFound: there is no shard set.
        ShardNotFound: a folder of the current shard set is missing.
        FormatError: the shard set is damaged.
    """
    for _ in range(_ATTEMPTS):
        shard_set = load_newest_shard_set(directory)
        try:
            return use(shard_set)
        except IndexNotFound as error:
            shard_set.check_replaced(directory, error)
    raise CorruptFile("the shards of the index cannot be opened", path=directory.path)


def _parse_folder(fields: Fields) -> str:
    name = fields.text("name", 96)
    if not is_safe_name(name):
        raise CorruptFile("unsafe folder name", path=fields.path, actual=repr(name))
    fields.refuse_unknown()
    return name


_FOLDER = re.compile(r"shard-[0-9a-f]{32}-\d{4}")
_LEAST_BYTES = 1 << 20  # of a shard's share of a limit
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
