"""The documents of one file, with what it takes to see later whether the file has changed."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarry.engine.documents.document import Document, document_from
from quarry.formats.errors import InvalidDocument
from quarry.formats.system_errors import access_failed
from quarry.readers.files.file_text import FileText, UnreadableError
from quarry.readers.files.kinds import FileKind

__all__ = ["FileContent", "composed", "documents_of_file", "file_metadata", "read_content", "resolved_name"]

MAX_FILE_BYTES: Final = 256 << 20
"""The largest file that is read as a document."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of a file and its state when they were read.

    Attributes:
        content: all of it.
        size: bytes, as the system said before reading.
        modified: nanoseconds since 1970, likewise.
        read: nanoseconds since 1970, when reading began.
        hash: BLAKE2b of the content, 16 bytes in hexadecimal digits.
        identity: device and number by which the system knows the file that was read.
    """

    content: bytes
    size: int
    modified: int
    read: int
    hash: str
    identity: tuple[int, int]


def read_content(path: Path, max_bytes: int = MAX_FILE_BYTES) -> FileContent:
    """Read a file of at most so many bytes.

    Raises:
        AccessFailed: the system does not let it be opened or read, or it is gone.
        InvalidDocument: it is not a regular file, or too large.
    """
    now = time.time_ns()
    try:
        with open(path, "rb", opener=_open_at_once) as file:  # Path.open takes no opener
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidDocument("is not a regular file", path=path)
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise access_failed(error, "read", path) from error
    if len(content) > max_bytes:
        expected = f"at most {max_bytes} bytes"
        raise InvalidDocument("is too large", path=path, expected=expected, actual=status.st_size)
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    identity = (status.st_dev, status.st_ino)
    return FileContent(content, status.st_size, status.st_mtime_ns, now, digest, identity)


def resolved_name(folder: Path) -> str:
    """Return the absolute path of a folder without links, by which its documents say where they were read."""
    try:
        resolved = folder.resolve()
    except (OSError, RuntimeError):  # a loop of links
        resolved = folder.absolute()
    return os.fsencode(resolved).decode(errors="backslashreplace")


def composed(name: str) -> str:
    """Return a name in NFC: file systems of macOS and programs there may write the same name in NFD."""
    return unicodedata.normalize("NFC", name)


def documents_of_file(file: FileContent, kind: FileKind, name: str, path: Path, folder: str) -> list[Document]:
    """Make the documents of a file: one, or one for each message of a mailbox, without those that are blank.

    Args:
        file: what was read.
        kind: the kind of the file, no table.
        name: the path of the file relative to the folder that is read, with slashes. Its `composed` form is the id
            of the document; of several, with "#" and their number after it.
        path: the path of the file, for errors.
        folder: the `resolved_name` of the folder that is read.

    Raises:
        InvalidDocument: it is not of its kind, damaged, or exceeds a limit.
    """
    try:
        assert kind.read is not None
        read = kind.read(file.content)
        texts = [read] if isinstance(read, FileText) else list(read)
    except UnreadableError as error:
        raise InvalidDocument(f"the file {error}", path=path) from error
    except (MemoryError, InvalidDocument):
        raise
    except Exception as error:
        # Files are anybody's, and parsers of the standard library raise all kinds of errors for what they
        # did not foresee: one such file must not end the reading of all others.
        problem = f"the file cannot be read as {kind.name}: {type(error).__name__}: {error}"
        raise InvalidDocument(problem, path=path) from error
    return [_document(text, file, kind, name, path, folder) for text in texts if text.text.strip() or text.title]


def file_metadata(file: FileContent, kind: FileKind, name: str, folder: str) -> dict[str, object]:
    """Return what the metadata of a document says of its file; see `documents_of_file`."""
    return {
        "path": name,
        "folder": folder,
        "type": kind.name,
        "size": file.size,
        "modified": file.modified,
        "read": file.read,
        "hash": file.hash,
    }


def _document(text: FileText, file: FileContent, kind: FileKind, name: str, path: Path, folder: str) -> Document:
    source = file_metadata(file, kind, name, folder)
    places = text.outline.packed()
    source |= {"part": text.part} if text.part else {}
    source |= {"places": places} if places else {}
    fields = {
        "id": composed(name) + (f"#{text.part.rpartition(' ')[2]}" if text.part else ""),
        "text": text.text,
        "title": text.title,
        "metadata": {**text.metadata, "file": source},
    }
    return document_from(fields, text.part or "the document", path)


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for a pipe without a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
