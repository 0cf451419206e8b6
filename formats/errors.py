"""The errors of Quarry.

::

    QuarryError
    ├── IndexNotFound         no index at that path
    ├── IndexExists           an index exists at that path
    ├── IndexLocked           another writer holds the lock of the index
    ├── IndexClosed           the engine or the index was closed, or was opened by another process
    ├── ReadOnlyIndex         a write to an index that is open for reading
    ├── EncoderMismatch       the vectors of the index are of another encoder
    ├── InvalidDocument       a document is not valid; names document and field
    ├── InvalidQuery          a query is not valid; names query and part
    │   └── InvalidFilter     a filter is malformed, or compares different types
    ├── InvalidSetting        a setting has a value that is not valid
    ├── EncodingFailed        an embedding function failed, or returned something else than vectors
    ├── BackendUnavailable    a requested backend cannot be used here
    ├── ExtensionFailed       a part that another package has registered cannot be used
    ├── ShardTimeout          a shard of the index did not answer in time
    ├── AccessFailed          a system call failed for a file or folder (also an OSError)
    ├── CommitFailed          nothing was committed; the last commit is still current
    ├── MergeFailed           segments could not be merged; the last commit is still current
    ├── DurabilityUnknown     the commit is visible, but may not survive a power loss
    └── FormatError           a file is not valid
        ├── CorruptFile       its content contradicts itself or the specification
        │   └── ShardNotFound the folder of a shard is missing
        ├── TruncatedFile     it is shorter or longer than it states
        ├── ChecksumMismatch  its bytes changed since they were written
        ├── FormatTooOld      written by a version that is no longer supported
        └── FormatTooNew      written by a later version
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

__all__ = [
    "AccessFailed",
    "BackendUnavailable",
    "ChecksumMismatch",
    "CommitFailed",
    "CorruptFile",
    "DurabilityUnknown",
    "EncoderMismatch",
    "EncodingFailed",
    "ExtensionFailed",
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
    "ShardNotFound",
    "ShardTimeout",
    "TruncatedFile",
    "WorkerFailed",
]


class _Details(TypedDict, total=False):
    """The keyword arguments that all errors have; see `QuarryError`."""

    path: str | Path | None
    expected: object
    actual: object


class QuarryError(Exception):
    """Root of all errors of Quarry.

    Args:
        message: the error in one sentence.
        path: the path of the file or folder, if there is one.
        expected: the expected value.
        actual: the value that was found.
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
        return self.reason if self.path is None else f"{self.path}: {self.reason}"

    @property
    def reason(self) -> str:
        """The error, what was expected and what was found, without the path."""
        parts = [self.message]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.actual is not None:
            parts.append(f"found {self.actual}")
        return "; ".join(parts)


class IndexNotFound(QuarryError):
    """There is no index at the path."""


class IndexExists(QuarryError):
    """There is an index at the path, and replacing it was not requested."""


class IndexLocked(QuarryError):
    """Another writer holds the index; the message names its process if that is known."""


class IndexClosed(QuarryError):
    """The index was closed, or was opened by another process (reopen it after a fork)."""


class ReadOnlyIndex(QuarryError):
    """A write to an index that was opened for reading."""


class EncoderMismatch(QuarryError):
    """The vectors of the index were computed by another encoder."""


class InvalidDocument(QuarryError):
    """A document is not valid; the message names the document and the field.

    Attributes:
        field: the path of the field, such as "metadata.price", if there is one.
        document: of changes of several documents, the id of the one whose changes are not valid.
    """

    document: str | None = None

    def __init__(self, message: str, *, field: str | None = None, **details: Unpack[_Details]) -> None:
        super().__init__(message, **details)
        self.field = field


class InvalidQuery(QuarryError):
    """A query is not valid; the message names the query and the problem."""


class InvalidFilter(InvalidQuery):
    """A filter is malformed, or compares values of different types; the message names the field."""


class InvalidSetting(QuarryError):
    """A setting has a value that is not valid.

    Attributes:
        setting: the name of the argument, if there is one; "changes.price" is a part of an argument.
        document: of changes of several documents, the id of the one whose changes are not valid.
    """

    document: str | None = None

    def __init__(self, message: str, *, setting: str | None = None, **details: Unpack[_Details]) -> None:
        super().__init__(message, **details)
        self.setting = setting


class EncodingFailed(QuarryError):
    """An embedding function of the application failed, or returned something else than vectors.

    The exception that the function raised is the cause. Documents that were added before are kept.

    Args:
        message: the call that failed; `actual` is the error of the function, or the value that it returned.
        documents: documents that were read and not added, in their order; `Engine.add` takes them as they are.
            Those that follow them were not read yet.
    """

    def __init__(self, message: str, *, documents: Sequence[Any] = (), **details: Unpack[_Details]) -> None:
        super().__init__(message, **details)
        self.documents = tuple(documents)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of `documents`."""
        return tuple(document.id for document in self.documents)


class BackendUnavailable(QuarryError):
    """A requested backend cannot be used here; the message names the extra to install."""


class ExtensionFailed(QuarryError):
    """A part that another package has registered cannot be loaded, or is not what it must be.

    The message names the distribution.
    """


class ShardTimeout(QuarryError):
    """A shard of the index did not answer in time; the message names it."""


class WorkerFailed(QuarryError):
    """A process that encoded documents ended again and again; the message names the documents."""


class AccessFailed(QuarryError, OSError):
    """A system call failed for a file or folder: a permission is missing, too many files are open, and so on.

    The message names the path and a remedy. This is an OSError too, with the `errno` and `strerror` of the
    original error, which is its cause.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        expected: object = None,
        error: OSError | None = None,
    ) -> None:
        super().__init__(message, path=path, expected=expected, actual=_describe_error(error))
        if error is not None:
            self.errno, self.strerror = error.errno, error.strerror
        self.filename = None if path is None else str(path)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the attributes of OSError too."""
        own = {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return type(self), (self.message,), {**vars(self), **own}


class CommitFailed(QuarryError):
    """Nothing was committed, or documents could not be added for lack of space; the index is unchanged.

    Documents that were added are kept: the commit can be called again, for example after space was freed.
    """


class MergeFailed(QuarryError):
    """An I/O error occurred while segments were merged or a graph was written.

    The last commit is still current, and documents that were added are kept.
    """


class DurabilityUnknown(QuarryError):
    """The commit is visible to readers, but may not survive a power loss.

    If the file system can no longer be read, it is also unknown whether the commit is visible.
    """


class FormatError(QuarryError):
    """A file violates the specification.

    Attributes:
        findings: all errors, if a check has found several.
    """

    findings: tuple[FormatError, ...] = ()


class CorruptFile(FormatError):
    """A file contradicts itself or the specification."""


class ShardNotFound(CorruptFile):
    """The folder of a shard is missing, although the index names it; it may come back with the disk that it is on.

    Args:
        message: the error in one sentence.
        path: folder of the shard.
    """

    def __init__(
        self, message: str = "a shard of the index is missing", *, path: str | Path | None = None
    ) -> None:
        super().__init__(message, path=path)


class TruncatedFile(FormatError):
    """A file is shorter or longer than it states."""


class ChecksumMismatch(FormatError):
    """The bytes of a file have changed since they were written."""


class FormatTooOld(FormatError):
    """A file was written by a version that is no longer supported."""


class FormatTooNew(FormatError):
    """A file was written by a later version, or needs a feature that this version does not support."""


def _describe_error(error: OSError | None) -> str | None:
    return None if error is None else error.strerror or str(error) or type(error).__name__
