"""Files that are tables, known by their endings, and what reads their rows."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

from quarry.engine.documents.entries import Entries
from quarry.engine.documents.tables.arrow import ArrowRows
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.delimited import DelimitedRows
from quarry.engine.documents.tables.json_documents import JsonArrayDocuments, JsonLinesDocuments, begins_with_array

__all__ = ["TABLE_ENDINGS", "is_plain_table", "open_table"]

_JSON_LINES = (".jsonl", ".ndjson")
_JSON = (".json",)
_DELIMITED = (".csv", ".tsv")
_COMPRESSED = ("", ".gz", ".zst")
_ARROW = (".parquet", ".arrow", ".feather", ".ipc")

TABLE_ENDINGS: Final = (
    *(ending + more for ending in (*_JSON_LINES, *_JSON, *_DELIMITED) for more in _COMPRESSED),
    *_ARROW,
)
"""The endings of tables in lower case; text files may be compressed."""


def is_plain_table(name: str) -> bool:
    """Return whether a file is a table by its name, in capitals or not, and not compressed."""
    return PurePath(name.lower()).suffix in TABLE_ENDINGS


def open_table(path: Path, columns: Columns, content: bytes | None = None) -> Entries | None:
    """Return the rows of a file; None if it is not a table by its name.

    Args:
        path: the path of the file.
        columns: what its columns are; given, objects of JSON are rows too.
        content: the content of the file, if it was read already; it is then not opened again.

    Raises:
        InvalidSetting: the table lacks a column, or a library is missing that reads it.
        InvalidDocument: it is damaged.
        AccessFailed: the system does not let it be opened.
    """
    name = path.name.lower()
    ending = next((each for each in sorted(TABLE_ENDINGS, key=len, reverse=True) if name.endswith(each)), "")
    kind = ending.removesuffix(".gz").removesuffix(".zst")
    if kind in _JSON and begins_with_array(path, content):
        return JsonArrayDocuments(path, columns, content)
    if kind in (*_JSON, *_JSON_LINES):
        return JsonLinesDocuments(path, columns, content)
    if kind in _DELIMITED:
        return DelimitedRows(path, columns, content)
    return ArrowRows(path, columns, content) if kind in _ARROW else None
