"""Root files of an index: one for each generation, of which the highest is current.

A root file names all other files. It is written under a temporary name, read back, and renamed to its name, so
that either the old or the new generation is visible, never a mixture.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar, Self

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FILE_ID, PREAMBLE_BYTES, FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import TEMPORARY_SUFFIX
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatTooNew

__all__ = ["MAX_GENERATION", "RootFile"]

MAX_GENERATION = (1 << 64) - 1


class RootFile(ABC):
    """A root file; subclasses are frozen dataclasses of its contents.

    Attributes:
        prefix: the prefix of the file name, before the generation.
        kind: the kind of the file.
        title: for messages.
        generation: number of the commit or build, from 1.
        unknown_features: bits of the features that a writer must support and this version does not.
    """

    prefix: ClassVar[str]
    kind: ClassVar[FileKind]
    title: ClassVar[str]
    generation: int
    unknown_features: int

    @property
    @abstractmethod
    def file_id(self) -> bytes:
        """16 random bytes, different for every file."""

    @property
    def required_features(self) -> int:
        """The features of the file that readers must support."""
        return 0

    @property
    def writer_features(self) -> int:
        """The features of the file that writers must support."""
        return 0

    @property
    def optional_features(self) -> int:
        """The features of the file that readers may ignore."""
        return 0

    @abstractmethod
    def to_fields(self) -> dict[str, object]:
        """Return the fields of the file."""

    @classmethod
    @abstractmethod
    def from_container(cls, container: ContainerReader) -> Self:
        """Parse the fields of a file."""

    @classmethod
    def name_of(cls, generation: int) -> str:
        """Return the file name of a generation."""
        return f"{cls.prefix}-{generation:020d}"

    @property
    def name(self) -> str:
        """The file's name."""
        return self.name_of(self.generation)

    @classmethod
    def find_latest(cls, directory: Directory) -> int | None:
        """Return the highest generation in the folder; None if there is none."""
        pattern = re.compile(rf"{cls.prefix}-(\d{{20}})")
        generations = (int(match[1]) for match in map(pattern.fullmatch, directory.names()) if match)
        return max((generation for generation in generations if generation <= MAX_GENERATION), default=None)

    def check_writable(self, directory: Directory) -> None:
        """Raise FormatTooNew if the index has a feature that writers of this version do not support."""
        if self.unknown_features:
            raise FormatTooNew(
                "the index can be read but not changed: it has a feature that this version does not support",
                path=directory.path / self.name,
                actual=f"features {self.unknown_features:#x}",
            )

    def has_id_in(self, directory: Directory) -> bool:
        """Return whether the file of this generation is still this one; reads the start of it."""
        try:
            return directory.head(self.name, PREAMBLE_BYTES)[FILE_ID] == self.file_id
        except FileNotFoundError:
            return False

    def commit(self, directory: Directory) -> None:
        """Write this file, sync it, and rename it to its name; all files that it names must be durable already.

        Raises:
            CorruptFile: it was not read back as it was written; nothing was committed.
        """
        temporary = f"{self.prefix.lower()}-{self.file_id.hex()}{TEMPORARY_SUFFIX}"
        container = ContainerWriter(
            directory,
            temporary,
            self.kind,
            self.file_id,
            required_features=self.required_features,
            optional_features=self.optional_features,
            writer_features=self.writer_features,
        )
        container.finish(self.to_fields())
        try:
            self._rename_verified(directory, temporary)
        except BaseException:
            directory.delete(temporary)
            raise

    def _rename_verified(self, directory: Directory, temporary: str) -> None:
        if self._read(directory, temporary) != self:
            raise CorruptFile(f"the new {self.title} was not read back as it was written", path=directory.path)
        directory.rename(temporary, self.name)

    @classmethod
    def load(cls, directory: Directory, generation: int) -> Self:
        """Read one generation.

        Raises:
            FileNotFoundError: there is no such generation, or it was deleted.
            FormatError: it is damaged.
        """
        name = cls.name_of(generation)
        loaded = cls._read(directory, name)
        if loaded.generation != generation:
            message = f"wrong generation in a {cls.title}"
            raise CorruptFile(message, path=directory.path / name, actual=loaded.generation)
        return loaded

    @classmethod
    def _read(cls, directory: Directory, name: str) -> Self:
        container = ContainerReader(directory, name, cls.kind)
        try:
            root = cls.from_container(container)
            container.refuse_unknown()
        finally:
            container.close()
        return root
