"""Rows of CSV and TSV files.

The first row has the names of the columns. A file is read twice: first to find the columns that hold numbers
only, then for its rows. So a number is a number in every row, and "007" stays a text in a column of such codes. An
id is a text; if all ids are whole numbers that are written as floats, alike, it is the digits of the integer.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS
from quarry.engine.documents.entries import Entry, FileEntries, RefusedEntry
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.engine.documents.tables.columns import Columns, RowEntry
from quarry.formats.errors import InvalidDocument

__all__ = ["DelimitedRows"]

_EXPECTED_UTF8 = "UTF-8; a program for tables saves it so as 'CSV UTF-8'"
_COMMAS = ",;\t|"  # that may separate the columns of a CSV file
_QUOTED_NAME = r'"(?:[^"]++|"")*+"(?=[,;\t|\r\n])'  # it may have line breaks
_HEADER = re.compile(rf"(?:{_QUOTED_NAME}|[,;\t|]|[^,;\t|\r\n]++)*+")
_HEADER_CHARACTERS = 1 << 16  # that are looked at if it has several lines
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")  # as an integer of 64 bits is written
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,17})?(?:[eE][-+]?[0-9]{1,2})?")
_WHOLE = re.compile(r"(?:0|-?[1-9][0-9]{0,14})(\.0+)")  # exact as a float
_PATTERNS = {int: _INTEGER, float: _NUMBER, str: _WHOLE}
_NUMBERS = (int, float)


class DelimitedRows(FileEntries[LineReader]):
    """The rows of one file.

    Args:
        path: a file in UTF-8, perhaps compressed.
        columns: what its columns are.
        content: the content of the file, if it was read already.
    """

    def __init__(self, path: Path, columns: Columns, content: bytes | None = None) -> None:
        self._path = path
        self._columns = columns
        self._content = content
        self._file = self._lines()
        self._comma = ","  # between columns
        self._number = 0  # of the line that was read last

    def __iter__(self) -> Iterator[Entry]:
        """Yield the rows.

        Raises:
            InvalidDocument: the file is not a table in UTF-8 from some line on; what follows is not read.
            InvalidSetting: a column that is named is missing.
        """
        self._comma = self._found_comma()
        kinds = self._kinds()
        if kinds is None:
            return
        self._file = self._lines()
        rows = self._rows(self._file)
        names = _names(next(rows))
        n_required = self._columns.n_required(names)
        expected = n_required if n_required == len(names) else f"at least {n_required}, up to the id and the text"
        for row in rows:
            where = f"line {self._number}"
            if len(row) > len(names):
                yield RefusedEntry(
                    self._error("has too many values", f"{len(names)}, as there are columns", len(row))
                )
                continue
            if len(row) < n_required:
                yield RefusedEntry(self._error("has too few values", expected, len(row)))
                continue
            values = [_converted(value, kind) for value, kind in zip(row, kinds, strict=False)]
            yield RowEntry(dict(zip(names, values, strict=False)), self._columns, where, self._path)

    def _lines(self) -> LineReader:
        return LineReader(self._path, content=self._content)

    def _found_comma(self) -> str:
        """Tab in a TSV file; in a CSV file the character that most separates the names of the columns."""
        if ".tsv" in [suffix.lower() for suffix in self._path.suffixes[-2:]]:
            return "\t"
        lines = self._lines()
        beginning = ""
        try:
            for text in self._texts(lines):
                beginning += text
                if len(beginning) > _HEADER_CHARACTERS:
                    break
        finally:
            lines.close()
        header = _HEADER.match(beginning)
        assert header is not None  # it may be empty
        outside = re.sub(r'"[^"]*"', "", header[0])
        return max(_COMMAS, key=outside.count)

    def _kinds(self) -> list[type | None] | None:
        """Find what each column holds: int, float, str for whole floats as ids, or None for other texts.

        The value is None for a file without a header.
        """
        lines = self._lines()
        try:
            rows = self._rows(lines)
            header = next(rows, None)
            if header is None:
                return None
            names = _names(header)
            self._columns.check(names, self._path)
            ids = {self._columns.id or "id", "_id"}
            fields = {*ids, self._columns.title or "title", *(self._columns.text or ["text"])}
            endings: dict[int, set[str]] = {column: set() for column, name in enumerate(names) if name in ids}
            possible = [0 if name not in fields else len(_NUMBERS) for name in names]
            seen = [False] * len(names)
            for row in rows:
                for column, value in enumerate(row[: len(names)]):
                    if value:
                        seen[column] = True
                        if column in endings:
                            endings[column].add(_ending(value))
                        while possible[column] < len(_NUMBERS) and not _is(value, _NUMBERS[possible[column]]):
                            possible[column] += 1
            kinds: list[type | None] = [
                _NUMBERS[kind] if is_seen and kind < len(_NUMBERS) else None
                for kind, is_seen in zip(possible, seen, strict=True)
            ]
            for column, several in endings.items():
                kinds[column] = str if len(several) == 1 and "" not in several else None
            return kinds
        finally:
            lines.close()

    def _rows(self, lines: LineReader) -> Iterator[list[str]]:
        """Yield the rows that are not blank, the header first."""
        _allow_long_fields()
        reader = csv.reader(self._texts(lines), delimiter=self._comma, strict=True)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise self._error(f"is not a row of a table: {error}") from error
            if row is None:
                return
            if row:
                yield row
            else:
                lines.skip_empty_lines()

    def _texts(self, lines: LineReader) -> Iterator[str]:
        """Yield lines with their ends, which may be carriage returns alone, as of old programs."""
        n_returns = 0
        for number, line in lines:
            self._number = number + n_returns
            if line is None:
                raise self._error("is too long", f"at most {MAX_LINE_BYTES} bytes")
            try:
                *ended, text = line.decode().split("\r")
            except UnicodeDecodeError as error:
                raise self._error(f"is not UTF-8 at byte {error.start}", _EXPECTED_UTF8) from error
            for each in ended:
                yield each + "\r"
                self._number += 1
            n_returns += len(ended)
            yield text + "\n"

    def _error(self, problem: str, expected: object = None, actual: object = None) -> InvalidDocument:
        message = f"line {self._number} {problem}"
        return InvalidDocument(message, path=self._path, expected=expected, actual=actual)


def _allow_long_fields() -> None:
    """Let fields be as long as a text may be: the library's limit, of the whole process, is only ever raised."""
    if csv.field_size_limit() < MAX_TEXT_CHARACTERS:
        csv.field_size_limit(MAX_TEXT_CHARACTERS)


def _names(header: Sequence[str]) -> list[str]:
    """The names of the columns; one without a name gets its number."""
    return [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]


def _is(value: str, kind: type) -> bool:
    return _PATTERNS[kind].fullmatch(value) is not None


def _ending(value: str) -> str:
    """What follows the digits of an id that is a whole float; "" for other ids."""
    match = _WHOLE.fullmatch(value)
    return match[1] if match else ""


def _converted(value: str, kind: type | None) -> object:
    """A value of a column; an empty one is missing. One that changed since the first pass stays a text."""
    if not value:
        return None
    if kind is None or not _is(value, kind):
        return value
    return value.partition(".")[0] if kind is str else kind(value)
