"""What a source of documents is made of: entries, each of which becomes a document or says why it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quarry.engine.documents.document import Document
from quarry.engine.documents.inflated import InflatedFile
from quarry.engine.documents.lines import LineReader
from quarry.formats.errors import InvalidDocument

__all__ = ["Entries", "Entry", "FileEntries", "LeftOutEntry", "ReadyEntry", "RefusedEntry"]


File = TypeVar("File", InflatedFile, LineReader)


class Entry(Protocol):
    """One item, line, row or file of a source."""

    def document(self) -> Document:
        """Make the document.

        Raises:
            InvalidDocument: it is not valid.
        """


class Entries(ABC):
    """The entries of a source, read once, in order."""

    @abstractmethod
    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries; raises what nothing after it can be read for."""

    def close(self) -> None:  # noqa: B027  # most sources have nothing to close
        """Close what is open; to be called when reading ends early."""

    @abstractmethod
    def fraction_read(self) -> float | None:
        """How much of the source has been read, 0 to 1; None when its size is not known."""


class FileEntries(Entries, Generic[File]):
    """The entries of a file that is read from its beginning to its end."""

    _file: File

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

    def fraction_read(self) -> float:
        """How much of the file, compressed as it is, has been read, 0 to 1."""
        return self._file.fraction_read()


@dataclass(frozen=True, slots=True)
class ReadyEntry:
    """An entry whose document is made already."""

    made: Document

    def document(self) -> Document:
        """The document."""
        return self.made


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that is not valid."""

    error: InvalidDocument

    def document(self) -> Document:
        """Raise the error."""
        raise self.error


class LeftOutEntry(RefusedEntry):
    """A file without text, or documents; it is left out whether or not invalid documents are skipped."""
