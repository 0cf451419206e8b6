"""Files and folders as sources of documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.entries import Entry, ReadyEntry, RefusedEntry
from quarry.engine.documents.files.file_documents import documents_of_file, read_content
from quarry.engine.documents.folders.folder_files import FolderFile, folder_files
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["FileDocuments", "FolderDocuments"]


class FileDocuments:
    """The documents of one file.

    Args:
        path: of the file.
        kind: see `quarry.engine.documents.files.kinds`.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self._file = FolderFile(path.name, kind, path)
        self._is_read = False

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            AccessFailed: the system does not let the file be read.
        """
        yield from _entries(self._file)
        self._is_read = True

    def close(self) -> None:
        """Do nothing: the file is read at once."""

    def fraction_read(self) -> float | None:
        """1 when it was read."""
        return float(self._is_read)


class FolderDocuments:
    """The documents of the files of a folder; see `folder_files`.

    Args:
        folder: an absolute path.

    Raises:
        InvalidSetting: no file in it is read.
    """

    def __init__(self, folder: Path) -> None:
        self._files = list(folder_files(folder))
        if not self._files:
            raise InvalidSetting(
                "docs is a folder without a file that is read",
                path=folder,
                expected="text, Markdown, HTML, PDF or other files that are documents, or a corpus file (BEIR)",
            )
        self._n_read = 0

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            AccessFailed: the system does not let a file or folder be read.
        """
        for file in self._files:
            if isinstance(file, FolderFile):
                yield from _entries(file)
            elif isinstance(file.error, InvalidDocument):
                yield RefusedEntry(file.error)
            else:
                raise file.error
            self._n_read += 1

    def close(self) -> None:
        """Do nothing: each file is read at once."""

    def fraction_read(self) -> float | None:
        """How many of the files have been read."""
        return self._n_read / (len(self._files) or 1)


def _entries(file: FolderFile) -> Iterator[Entry]:
    try:
        documents = documents_of_file(read_content(file.path), file.kind, file.name, file.path)
    except InvalidDocument as error:
        yield RefusedEntry(error)
    else:
        yield from map(ReadyEntry, documents)
