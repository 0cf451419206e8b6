"""Items of JSON files: an array, read item by item in bounded memory, or lines."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.inflated import READ_ERRORS, InflatedFile
from quarry.engine.documents.lines import MAX_LINE_BYTES
from quarry.formats.errors import InvalidDocument

__all__ = ["JsonArray", "begins_with_array"]

_STEP_CHARACTERS = 1 << 16
_MAX_ITEM_CHARACTERS = MAX_LINE_BYTES
_SPACE = re.compile(r"[ \t\r\n]*")
_UTF8 = "utf-8-sig"  # with or without a byte order mark


class JsonArray:
    """Reads the items of a JSON array, in order, once.

    Args:
        path: a file in UTF-8; ``.gz`` and ``.zst`` are inflated.

    Raises:
        AccessFailed: while iterating: the system does not let the file be opened or read.
        InvalidDocument: while iterating: the file is damaged or is no array of JSON; what follows is not read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = InflatedFile(path)
        self._n_items = 0

    def __iter__(self) -> Iterator[tuple[int, object]]:
        """Yield (number from 1, item)."""
        with self._file as stream:
            yield from self._items(_Characters(stream, self._file))

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

    def fraction_read(self) -> float:
        """How much of the file, compressed as it is, has been read: 0 to 1."""
        return self._file.fraction_read()

    def _items(self, characters: _Characters) -> Iterator[tuple[int, object]]:
        if characters.next_one() != "[":
            raise self._error("is not there", "a JSON array")
        characters.position += 1
        is_empty = characters.next_one() == "]"
        while not is_empty:
            yield self._n_items + 1, self._item(characters)
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
        decoder, wanted = json.JSONDecoder(), _STEP_CHARACTERS
        while True:
            try:
                item, end = decoder.raw_decode(characters.buffer, characters.position)
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
            found = _SPACE.match(self.buffer, self.position)
            self.position = found.end() if found else self.position
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


def begins_with_array(path: Path) -> bool:
    """Whether the first character of a file that is no white space is "[".

    Raises:
        AccessFailed: the system does not let it be read.
        InvalidDocument: it is damaged, or not UTF-8.
    """
    file = InflatedFile(path)
    with file as stream:
        return _Characters(stream, file).next_one() == "["
