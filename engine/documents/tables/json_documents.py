"""Documents of JSON files: one object a line, or the items of an array."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.entries import Entry, FileEntries
from quarry.engine.documents.inflated import READ_ERRORS, InflatedFile
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.engine.documents.place import shown
from quarry.engine.documents.tables.columns import Columns, RowEntry
from quarry.formats.errors import InvalidDocument

__all__ = ["JsonArrayDocuments", "JsonLinesDocuments", "begins_with_array"]

_STEP_CHARACTERS = 1 << 16
_MAX_ITEM_CHARACTERS = MAX_LINE_BYTES
_SPACE = re.compile(r"[ \t\r\n]*")
_UTF8 = "utf-8-sig"  # with or without a byte order mark


class _RepeatedKeyError(Exception):
    """An object has a key twice, and readers of JSON differ in which value they take."""


def _parse_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _RepeatedKeyError(f"has the key {shown(twice)} twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_parse_object)


class JsonLinesDocuments(FileEntries[LineReader]):
    """The lines of a file that are not blank.

    Args:
        path: the path of the file.
        columns: given, each object is a row of a table.
        content: the content of the file, if it was read already.
    """

    def __init__(self, path: Path, columns: Columns, content: bytes | None = None) -> None:
        self._path = path
        self._columns = columns
        self._file = LineReader(path, content=content)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them; see `LineReader` for what is raised."""
        for number, content in self._file:
            if content is None or content.strip():
                yield _Line(content, number, self._path, self._columns)
            else:
                self._file.skip_empty_lines()


class JsonArrayDocuments(FileEntries[InflatedFile]):
    """The items of an array, read one after another in bounded memory.

    Args:
        path: a file in UTF-8; ``.gz`` and ``.zst`` are inflated.
        columns: given, each object is a row of a table.
        content: the content of the file, if it was read already.
    """

    def __init__(self, path: Path, columns: Columns, content: bytes | None = None) -> None:
        self._path = path
        self._columns = columns
        self._file = InflatedFile(path, content)
        self._n_items = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            AccessFailed: the system does not let the file be opened or read.
            InvalidDocument: the file is damaged or is not an array of JSON; what follows is not read.
        """
        with self._file as stream:
            for number, item in enumerate(self._items(_Characters(stream, self._file)), 1):
                yield _Value(item, f"item {number}", self._path, self._columns)

    def _items(self, characters: _Characters) -> Iterator[object]:
        if characters.next_one() != "[":
            raise self._error("is not there", "a JSON array")
        characters.position += 1
        is_empty = characters.next_one() == "]"
        while not is_empty:
            yield self._item(characters)
            self._n_items += 1
            separator = characters.next_one()
            if separator == "]":
                break
            if separator != ",":
                raise self._error(
                    "does not follow the one before it", "a comma or ]", separator or "the end of the file"
                )
            characters.position += 1
        characters.position += 1
        if extra := characters.next_one():
            raise self._error("follows the end of the array", "the end of the file", extra)

    def _item(self, characters: _Characters) -> object:
        characters.next_one()
        wanted = _STEP_CHARACTERS
        while True:
            try:
                item, end = _DECODER.raw_decode(characters.buffer, characters.position)
            except _RepeatedKeyError as error:
                raise self._error(str(error), "each key once") from error
            except (ValueError, RecursionError) as error:
                # The item may only be cut off by the end of the buffer; RecursionError is final.
                if isinstance(error, RecursionError) or not characters.extend(wanted):
                    raise self._error(f"is not JSON: {error}") from error
            else:
                if end < len(characters.buffer) or not characters.extend(wanted):  # a number may go on
                    characters.position = end
                    return item
            wanted = (
                len(characters.buffer) - characters.position
            )  # twice as much next time, so that decoding takes linear time
            if wanted > _MAX_ITEM_CHARACTERS:
                raise self._error("is too long", f"at most {_MAX_ITEM_CHARACTERS} characters")

    def _error(self, problem: str, expected: object = None, actual: object = None) -> InvalidDocument:
        message = f"item {self._n_items + 1} {problem}"
        return InvalidDocument(message, path=self._path, expected=expected, actual=actual)


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
            return _DECODER.decode(self._content.decode())
        except _RepeatedKeyError as error:
            raise self._error(str(error), "each key once") from error
        except UnicodeDecodeError as error:
            raise self._error(f"is not UTF-8 at byte {error.start}", "UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"is not JSON: {error}") from error

    def _error(self, problem: str, expected: object = None) -> InvalidDocument:
        return InvalidDocument(f"{self._where} {problem}", path=self._path, expected=expected)


class _Characters:
    """A window on the characters of a stream: what was read and not passed yet.

    Attributes:
        buffer: characters of the stream.
        position: how many of them were passed.
    """

    def __init__(self, stream: io.BufferedReader, file: InflatedFile) -> None:
        self.buffer = ""
        self.position = 0
        self._stream = stream
        self._file = file
        self._decoder = codecs.getincrementaldecoder(_UTF8)()

    def next_one(self) -> str:
        """Pass white space; return the next character, or "" at the end of the file."""
        while True:
            space = _SPACE.match(self.buffer, self.position)
            self.position = space.end() if space else self.position
            if self.position < len(self.buffer):
                return self.buffer[self.position]
            if not self.extend(_STEP_CHARACTERS):
                return ""

    def extend(self, n_bytes: int) -> bool:
        """Read more, if there is more; whether there was."""
        try:
            content = self._stream.read(n_bytes)
        except READ_ERRORS as error:
            raise self._file.read_failed(error) from error
        try:
            self.buffer = self.buffer[self.position :] + self._decoder.decode(content, final=not content)
        except UnicodeDecodeError as error:
            raise InvalidDocument(
                "is not UTF-8", path=self._file.path, expected="UTF-8", actual=str(error)
            ) from error
        self.position = 0
        return bool(content)


def begins_with_array(path: Path, content: bytes | None = None) -> bool:
    """Whether the first character of a file that is not white space is "[".

    Raises:
        AccessFailed: the system does not let it be read.
        InvalidDocument: it is damaged, or not UTF-8.
    """
    file = InflatedFile(path, content)
    with file as stream:
        return _Characters(stream, file).next_one() == "["
