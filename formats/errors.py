"""Every error Quarry raises on purpose.

::

    QuarryError
    ├── IndexNotFound         no index at that path
    ├── IndexExists           an index is there already
    ├── IndexLocked           another writer holds the index
    ├── IndexClosed           the engine or the index was closed, or belongs to another process
    ├── ReadOnlyIndex         a writing call on an index opened for reading
    ├── EncoderMismatch       this encoder did not make the vectors of the index
    ├── InvalidDocument       a document cannot be indexed: which one, which field
    ├── InvalidQuery          a query cannot be answered: which one, which part
    │   └── InvalidFilter     its filter is malformed, or compares what cannot be compared
    ├── InvalidSetting        a setting has a value it cannot have
    ├── BackendUnavailable    a backend asked for by name is not installed here
    ├── CommitFailed          nothing was committed; the last commit stands
    ├── MergeFailed           segments could not be merged; what was committed stands
    ├── DurabilityUnknown     the commit is visible, but may not survive a power loss
    └── FormatError           a file does not hold what it should
        ├── CorruptFile       its content contradicts itself or the specification
        ├── TruncatedFile     it is shorter (or longer) than it says
        ├── ChecksumMismatch  its bytes changed since they were written
        ├── FormatTooOld      written by a version this one no longer reads
        └── FormatTooNew      written by a version this one does not know yet
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "BackendUnavailable",
    "ChecksumMismatch",
    "CommitFailed",
    "CorruptFile",
    "DurabilityUnknown",
    "EncoderMismatch",
    "FormatError",
    "FormatTooNew",
    "FormatTooOld",
    "IndexClosed",
    "IndexExists",
    "IndexLocked",
    "IndexNotFound",
    "InvalidDocument",
    "InvalidFilter",
    "InvalidQuery",
    "InvalidSetting",
    "MergeFailed",
    "QuarryError",
    "ReadOnlyIndex",
    "TruncatedFile",
]


class QuarryError(Exception):
    """Root of all errors of Quarry.

    Args:
        message: what is wrong, in one sentence.
        path: the file or folder concerned, where there is one.
        expected: what should have been there.
        actual: what was found instead.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        expected: object = None,
        actual: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else Path(path)
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        parts = [self.message]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.actual is not None:
            parts.append(f"found {self.actual}")
        text = "; ".join(parts)
        return text if self.path is None else f"{self.path}: {text}"


class IndexNotFound(QuarryError):
    """There is no index at the path."""


class IndexExists(QuarryError):
    """An index exists at the path and was not to be replaced."""


class IndexLocked(QuarryError):
    """Another writer holds the index; the message names its process where that is known."""


class IndexClosed(QuarryError):
    """The index was closed, or was opened by another process (reopen it after a fork)."""


class ReadOnlyIndex(QuarryError):
    """A writing call on an index that was opened for reading."""


class EncoderMismatch(QuarryError):
    """The encoder given is not the one whose vectors the index holds."""


class InvalidDocument(QuarryError):
    """A document cannot be indexed; the message names the document and the field."""


class InvalidQuery(QuarryError):
    """A query cannot be answered; the message names the query and what is wrong with it."""


class InvalidFilter(InvalidQuery):
    """A filter is malformed, or compares values of different types; the message names the field."""


class InvalidSetting(QuarryError):
    """A setting has a value that it cannot have."""


class BackendUnavailable(QuarryError):
    """A backend asked for by name cannot run here; the message names the extra to install."""


class CommitFailed(QuarryError):
    """The commit did not happen, or there is no room to collect more for one: the index is as it was.

    What was collected stays so; once the system is well, as when space was freed, the commit can be tried again.
    """


class MergeFailed(QuarryError):
    """The system failed while segments were merged, or a graph was written.

    All that was committed before stands, and what was collected stays collected.
    """


class DurabilityUnknown(QuarryError):
    """The commit is visible to readers, but whether it survives a power loss is not known.

    Or not even that it is visible, where the system gave no answer.
    """


class FormatError(QuarryError):
    """A file does not hold what the specification asks for.

    Attributes:
        findings: where a check reported several damages at once, the error for each of them.
    """

    findings: tuple[FormatError, ...] = ()


class CorruptFile(FormatError):
    """A file contradicts itself or the specification."""


class TruncatedFile(FormatError):
    """A file is shorter or longer than it says it is."""


class ChecksumMismatch(FormatError):
    """The bytes of a file are not the bytes that were written."""


class FormatTooOld(FormatError):
    """A file was written by a version that is no longer read."""


class FormatTooNew(FormatError):
    """A file was written by a later version, or needs a feature that this version lacks."""
