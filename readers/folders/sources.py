"""Files and folders as sources of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from quarry.engine.documents.entries import Entries, Entry, LeftOutEntry, ReadyEntry, RefusedEntry
from quarry.engine.documents.place import shown
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.readers.files.file_documents import (
    FileContent,
    documents_of_file,
    read_content,
    resolved_name,
)
from quarry.readers.files.kinds import FileKind, FileKinds, FileReader
from quarry.readers.folders.folder_files import TABLE, FolderFile, Unlisted, folder_files
from quarry.readers.folders.table_rows import NotDocumentsError, iterate_rows
from quarry.readers.folders.without_links import check_without_links

__all__ = ["FileDocuments", "FolderDocuments", "open_file", "open_folder"]


class FileDocuments(Entries):
    """The documents of one file.

    Args:
        path: the path of the file.
        kind: the kind of the file.
        columns: the names of columns of tables; there are none.

    Raises:
        InvalidSetting: columns are named.
    """

    def __init__(self, path: Path, kind: FileKind, columns: Columns) -> None:
        columns.refuse("the file is not a table", path)
        self._file = FolderFile(path.name, kind, path)
        self._folder = resolved_name(path.parent)
        self._is_read = False

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            AccessFailed: the system does not let the file be read.
        """
        yield from _entries(self._file, self._folder, lambda: read_content(self._file.path))
        self._is_read = True

    def fraction_read(self) -> float | None:
        """1 when it was read."""
        return float(self._is_read)


class FolderDocuments(Entries):
    """The documents of the files of a folder; see `folder_files`.

    A document with the id of another one before it, such as a second row of a table with the same id, is not
    valid, as in `quarry.readers.sync`: one of the two would be lost.

    Args:
        folder: an absolute path.
        columns: the columns of the tables in it.
        kinds: the kinds of the files that are read.

    Raises:
        InvalidSetting: no file in it is read, or columns are named and there is no table.
    """

    def __init__(self, folder: Path, columns: Columns, kinds: FileKinds) -> None:
        self._files = list(folder_files(folder, kinds))
        self._path = folder
        self._folder = resolved_name(folder)
        if not self._files:
            raise InvalidSetting(
                "a folder without a file that is read",
                path=folder,
                expected="text, Markdown, HTML, PDF or other files that are documents, or a corpus file (BEIR)",
            )
        if not any(isinstance(file, FolderFile) and file.kind is TABLE for file in self._files):
            columns.refuse("no file in the folder is a table", folder)
        self._columns = columns
        self._n_read = 0
        self._owners: dict[str, str] = {}  # names of files, by the ids of their documents

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            AccessFailed: the system does not let a file or folder be read.
            InvalidSetting: there are only tables, none of which has the columns.
        """
        left_out: list[LeftOutEntry] = []  # tables
        for file in self._files:
            for entry in self._entries_of(file):
                if isinstance(entry, LeftOutEntry):
                    left_out += [entry] if isinstance(file, FolderFile) and file.kind is TABLE else []
                    yield entry
                else:
                    yield self._distinct(entry, file.name)
            self._n_read += 1
        if left_out and len(left_out) == len(self._files):
            raise InvalidSetting(
                "no file of the folder holds documents",
                path=self._path,
                expected="names of columns of its tables, as id=, text= and title=",
                actual=left_out[0].error,
            )

    def _entries_of(self, file: FolderFile | Unlisted) -> Iterator[Entry]:
        if isinstance(file, FolderFile) and file.kind is TABLE:
            yield from self._rows(file)
        elif isinstance(file, FolderFile):
            yield from _entries(file, self._folder, lambda: self._content(file))
        elif isinstance(file.error, InvalidDocument):
            yield RefusedEntry(file.error)
        else:
            raise file.error

    def _rows(self, file: FolderFile) -> Iterator[Entry]:
        try:
            yield from iterate_rows(file, self._content(file), self._columns, self._folder)
        except NotDocumentsError as problem:
            yield LeftOutEntry(problem.error)
        except InvalidDocument as error:
            yield RefusedEntry(error)

    def _content(self, file: FolderFile) -> FileContent:
        content = read_content(file.path)
        check_without_links(self._path, file.name, content)
        return content

    def _distinct(self, entry: Entry, file: str) -> Entry:
        """Return an entry with its document made, or refused if an earlier one has its id."""
        try:
            document = entry.document()
        except InvalidDocument as error:
            return RefusedEntry(error)
        if document.id not in self._owners:
            self._owners[document.id] = file
            return ReadyEntry(document)
        owner = shown(self._owners[document.id])
        problem = (
            f"{document.origin}: its id in the index is {shown(document.id)}, which a document of {owner} has too"
        )
        return RefusedEntry(InvalidDocument(problem, expected="another id, or another name of the file"))

    def fraction_read(self) -> float | None:
        """How many of the files have been read."""
        return self._n_read / (len(self._files) or 1)


def open_file(path: Path, columns: Columns, readers: Mapping[str, FileReader] | None) -> FileDocuments | None:
    """Return the documents of one file; None if its kind is not read. See `FileKinds` for `readers`."""
    kind = FileKinds(readers).of_name(path.name)
    return None if kind is None else FileDocuments(path, kind, columns)


def open_folder(folder: Path, columns: Columns, readers: Mapping[str, FileReader] | None) -> FolderDocuments:
    """Return the documents of the files of a folder. See `FileKinds` for `readers`."""
    return FolderDocuments(folder, columns, FileKinds(readers))


def _entries(file: FolderFile, folder: str, read: Callable[[], FileContent]) -> Iterator[Entry]:
    try:
        documents = documents_of_file(read(), file.kind, file.name, file.path, folder)
    except InvalidDocument as error:
        yield RefusedEntry(error)
    else:
        yield from map(ReadyEntry, documents)
        if not documents:
            yield LeftOutEntry(InvalidDocument("the file has no text", path=file.path))
