"""Tables in folders: each row is a document, named by the path of the table and by its own id or number.

Folders have tables that hold no documents, such as settings in JSON or measurements in CSV. So a table counts only
if its first row is a document by the names of its columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from quarry.engine.documents.document import Document, document_from, has_given_id
from quarry.engine.documents.entries import Entry
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.table_files import open_table
from quarry.formats.errors import InvalidDocument, InvalidSetting, QuarryError
from quarry.readers.files.file_documents import FileContent, composed, file_metadata
from quarry.readers.folders.folder_files import FolderFile

__all__ = ["NotDocumentsError", "documents_of_table", "iterate_rows"]

_MAX_BYTES = 256 << 20  # of characters and metadata together


class NotDocumentsError(Exception):
    """The first row of a table is not a document, or its columns are others; `error` says why."""

    def __init__(self, error: InvalidDocument) -> None:
        super().__init__(str(error))
        self.error = error


def iterate_rows(file: FolderFile, content: FileContent, columns: Columns, folder: str) -> Iterator[Entry]:
    """Yield the rows of a table.

    Args:
        file: the table.
        content: what was read of it.
        columns: what its columns are.
        folder: the `resolved_name` of the folder that is read.

    Raises:
        NotDocumentsError: it has no documents; before anything is yielded.
        InvalidDocument: it is damaged.
        AccessFailed: the system does not let it be read.
    """
    source = file_metadata(content, file.kind, file.name, folder)
    rows = None
    try:
        rows = open_table(file.path, columns, content.content)
        assert rows is not None
        entries: Iterator[Entry] = (_Row(entry, number, file, source) for number, entry in enumerate(rows, 1))
        first = next(entries, None)
        if first is not None:
            _check_first(first, file)
    except BaseException as error:
        if rows is not None:
            rows.close()
        if isinstance(error, InvalidSetting):
            raise _no_documents(error, file) from error
        raise
    with contextlib.closing(rows):
        yield from entries if first is None else chain([first], entries)


def _check_first(row: Entry, file: FolderFile) -> None:
    try:
        row.document()
    except InvalidDocument as error:
        raise _no_documents(error, file) from error


def _no_documents(error: QuarryError, file: FolderFile) -> NotDocumentsError:
    return NotDocumentsError(InvalidDocument(error.message, path=file.path, expected=error.expected))


def documents_of_table(file: FolderFile, content: FileContent, columns: Columns, folder: str) -> list[Document]:
    """Return the documents of a table, all of which must be valid; see `iterate_rows`.

    Raises:
        InvalidDocument: a row is not valid, or the table is too large for memory.
    """
    documents: list[Document] = []
    n_bytes = 0
    for row in iterate_rows(file, content, columns, folder):
        document = row.document()
        n_bytes += len(document.full_text) + len(str(document.metadata))
        if n_bytes > _MAX_BYTES:
            expected = f"at most {_MAX_BYTES} characters of texts and metadata, or that table on its own"
            raise InvalidDocument("is too large for a table in a folder", path=file.path, expected=expected)
        documents.append(document)
    return documents


@dataclass(frozen=True, slots=True)
class _Row:
    """A row.

    Attributes:
        entry: the row as one of a table on its own.
        number: the number of the row, from 1.
        file: the table.
        source: its metadata.
    """

    entry: Entry
    number: int
    file: FolderFile
    source: Mapping[str, object]

    def document(self) -> Document:
        """Make the document."""
        row = self.entry.document()
        where = f"row {self.number}"
        if "file" in row.metadata:
            raise InvalidDocument(
                f"{where}: metadata has the field 'file', which says where a document of a folder was read",
                path=self.file.path,
                expected="another name of that column, or the table on its own",
            )
        fields: dict[str, object] = {
            "id": f"{composed(self.file.name)}#{row.id if has_given_id(row) else self.number}",
            "text": row.text,
            "title": row.title,
            "metadata": {**row.metadata, "file": {**self.source, "part": where}},
        }
        if row.vectors is not None:
            fields |= {"vectors": row.vectors, "spans": row.spans or None}
        return document_from(fields, where, self.file.path)
