"""The shard set: the folders that an index is divided into, and the rule that assigns documents to them.

``SHARDS-<generation>`` is the root of a sharded index. A build writes complete indexes into new folders and then
renames a finished shard set to its name; the highest generation is the index. Each folder is an ordinary index
with manifests of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.container.directory import Directory, is_safe_name
from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import FILE_ID, PREAMBLE_BYTES, FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import TEMPORARY_SUFFIX
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.ids import hash_id
from quarry.formats.errors import CorruptFile, FormatTooNew, IndexNotFound

__all__ = [
    "MAX_SHARDS",
    "ShardSet",
    "find_latest_shard_set",
    "has_shard_set",
    "load_newest_shard_set",
    "shard_of",
]

MAX_SHARDS = 4096
_ROUTING = "xxh3-64"  # the only rule so far, see `shard_of`
_NAME = re.compile(r"SHARDS-(\d{20})")
_MAX_GENERATION = (1 << 64) - 1
_ATTEMPTS = 100  # a build may delete the file after the folder was listed


@dataclass(frozen=True, kw_only=True)
class ShardSet:
    """The shards of one generation of a sharded index.

    Attributes:
        generation: number of the build, from 1.
        set_id: 16 random bytes.
        parent_id: set_id of the generation before, or zeros.
        folders: name of each shard's folder; shard i holds the documents that `shard_of` assigns to i.
        unknown_features: bits of the features that a writer must know and this version does not.
    """

    generation: int
    set_id: bytes
    parent_id: bytes
    folders: tuple[str, ...]
    unknown_features: int = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return f"SHARDS-{self.generation:020d}"

    def check_writable(self, directory: Directory) -> None:
        """Raise FormatTooNew if the index has a feature that a writer of this version does not know."""
        if self.unknown_features:
            raise FormatTooNew(
                "the index can be read but not changed: it has a feature that this version does not support",
                path=directory.path / self.name,
                actual=f"features {self.unknown_features:#x}",
            )

    def is_newest(self, directory: Directory) -> bool:
        """Return whether this is still the current shard set; lists the folder and reads the start of one file.

        Raises:
            IndexNotFound: the index was deleted.
        """
        if find_latest_shard_set(directory) != self.generation:
            return False
        try:
            return directory.head(self.name, PREAMBLE_BYTES)[FILE_ID] == self.set_id
        except FileNotFoundError:
            return False

    def commit(self, directory: Directory) -> None:
        """Write this shard set, sync it, and rename it to its name.

        The indexes in all folders must be durable already. Whether this returns or raises, either the old or the
        new shard set is visible, never a mixture.

        Raises:
            CorruptFile: the file was not read back as it was written; nothing was committed.
        """
        temporary = f"shards-{self.set_id.hex()}{TEMPORARY_SUFFIX}"
        writer = ContainerWriter(directory, temporary, FileKind.SHARDS, self.set_id)
        writer.finish(
            {
                "generation": self.generation,
                "parent_id": self.parent_id,
                "routing": _ROUTING,
                "folders": [{"name": folder} for folder in self.folders],
            }
        )
        try:
            self._put_in_place(directory, temporary)
        except BaseException:
            directory.delete(temporary)
            raise

    def _put_in_place(self, directory: Directory, temporary: str) -> None:
        if _read(directory, temporary) != self:
            raise CorruptFile("the shard set was not read back as it was written", path=directory.path)
        directory.rename(temporary, self.name)

    @classmethod
    def load(cls, directory: Directory, generation: int) -> ShardSet:
        """Read one generation.

        Raises:
            FileNotFoundError: there is no such generation, or it was deleted.
            FormatError: it is damaged.
        """
        name = f"SHARDS-{generation:020d}"
        found = _read(directory, name)
        if found.generation != generation:
            raise CorruptFile(
                "wrong generation in a shard set", path=directory.path / name, actual=found.generation
            )
        return found


def shard_of(doc_id: str, n_shards: int) -> int:
    """Return the number of the shard that an id belongs to: the XXH3-64 of its UTF-8, modulo `n_shards`."""
    return hash_id(doc_id) % n_shards


def find_latest_shard_set(directory: Directory) -> int:
    """Return the highest generation of a shard set in the folder.

    Raises:
        IndexNotFound: there is none.
    """
    found = [int(match[1]) for match in map(_NAME.fullmatch, directory.names()) if match]
    found = [generation for generation in found if generation <= _MAX_GENERATION]
    if not found:
        raise IndexNotFound("no sharded index here", path=directory.path, expected="a file SHARDS-<generation>")
    return max(found)


def has_shard_set(directory: Directory) -> bool:
    """Return whether the folder has a sharded index."""
    try:
        find_latest_shard_set(directory)
    except IndexNotFound:
        return False
    return True


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


def _read(directory: Directory, name: str) -> ShardSet:
    container = ContainerReader(directory, name, FileKind.SHARDS)
    try:
        found = _from_fields(
            container.fields,
            container.record.file_id,
            container.unknown_writer_features,
            container.path,
        )
        container.refuse_unknown()
    finally:
        container.close()
    return found


def _from_fields(fields: Fields, set_id: bytes, unknown_features: int, path: Path) -> ShardSet:
    generation = fields.integer("generation", 1, _MAX_GENERATION)
    parent_id = fields.binary("parent_id", 16)
    fields.choice("routing", (_ROUTING,))
    folders = tuple(map(_folder, fields.children("folders", MAX_SHARDS)))
    if not folders or len(set(folders)) != len(folders):
        raise CorruptFile(
            "a shard set without folders, or with one twice", path=path, actual=f"{len(folders)} folders"
        )
    return ShardSet(
        generation=generation,
        set_id=set_id,
        parent_id=parent_id,
        folders=folders,
        unknown_features=unknown_features,
    )


def _folder(fields: Fields) -> str:
    name = fields.text("name", 96)
    if not is_safe_name(name):
        raise CorruptFile("unsafe folder name", path=fields.path, actual=repr(name))
    fields.refuse_unknown()
    return name
