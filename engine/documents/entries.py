"""What a source of documents is made of: entries, each of which becomes a document or says why it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from quarry.engine.documents.document import Document
from quarry.formats.errors import InvalidDocument

__all__ = ["Entries", "Entry", "LeftOutEntry", "ReadyEntry", "RefusedEntry"]


class Entry(Protocol):
    """One item, line, row or file of a source."""

    def document(self) -> Document:
        """Make the document.

        Raises:
            InvalidDocument: it is not valid.
        """


class Entries(Protocol):
    """The entries of a source, read once, in order."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries; raises what nothing after it can be read for."""

    def close(self) -> None:
        """Close what is open; to be called when reading ends early."""

    def fraction_read(self) -> float | None:
        """How much of the source has been read, 0 to 1; None when its size is not known."""


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
    """A file of a folder that holds no documents; it is left out whether or not invalid documents are skipped."""
