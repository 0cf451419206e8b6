"""Documents of JSON files: one object a line, or the items of an array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.entries import Entry
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.engine.documents.tables.columns import Columns, RowEntry
from quarry.engine.documents.tables.json_array import JsonArray
from quarry.formats.errors import InvalidDocument

__all__ = ["JsonArrayDocuments", "JsonLinesDocuments"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonLinesDocuments:
    """The lines of a file that are not blank.

    Args:
        path: of the file.
        columns: given, each object is a row of a table.
    """

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._columns = columns
        self._lines = LineReader(path)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them; see `LineReader` for what is raised."""
        for number, line in self._lines:
            content = line
            if number == 1 and content is not None:
                content = content.removeprefix(_BYTE_ORDER_MARK)
            if content is None or content.strip():
                yield _Line(content, number, self._path, self._columns)
            else:
                self._lines.skip_empty_lines()

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self._lines.fraction_read()


class JsonArrayDocuments:
    """The items of an array.

    Args:
        path: of the file.
        columns: given, each object is a row of a table.
    """

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._columns = columns
        self._items = JsonArray(path)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them; see `JsonArray` for what is raised."""
        for number, item in self._items:
            yield _Value(item, f"item {number}", self._path, self._columns)

    def close(self) -> None:
        """Close the file."""
        self._items.close()

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self._items.fraction_read()


class _Value:
    """A value of JSON."""

    def __init__(self, value: object, where: str, path: Path, columns: Columns) -> None:
        self._value = value
        self._where = where
        self._path = path
        self._columns = columns

    def document(self) -> Document:
        value = self._value
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InvalidDocument(
                f"{self._where} is not a JSON object", path=self._path, expected="an object", actual=kind
            )
        if self._columns.is_given:
            return RowEntry(value, self._columns, self._where, self._path).document()
        return document_from(value, self._where, self._path)


class _Line:
    """One line; its content is None when it is too long."""

    def __init__(self, content: bytes | None, number: int, path: Path, columns: Columns) -> None:
        self._content = content
        self._where = f"line {number}"
        self._path = path
        self._columns = columns

    def document(self) -> Document:
        return _Value(self._parsed(), self._where, self._path, self._columns).document()

    def _parsed(self) -> object:
        if self._content is None:
            raise self._error("is too long", f"at most {MAX_LINE_BYTES} bytes")
        try:
            return json.loads(self._content.decode())
        except UnicodeDecodeError as error:
            raise self._error(f"is not UTF-8 at byte {error.start}", "UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"is not JSON: {error}") from error

    def _error(self, problem: str, expected: object = None) -> InvalidDocument:
        return InvalidDocument(f"{self._where} {problem}", path=self._path, expected=expected)
