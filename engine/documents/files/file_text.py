"""What a reader makes of a file, and how bytes become characters."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from quarry.engine.documents.outline import Outline

__all__ = ["FileText", "UnreadableError", "decoded", "decoded_as", "printable"]

_MARKS = (  # the longer ones first: one of UTF-32 begins with one of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_BYTES = 8 << 10  # of the beginning, searched for zeros
_SLOW_CODECS = frozenset({"idna", "punycode"})  # which take quadratic time, and no text is written in
_LINE_BREAK = re.compile("\r\n?")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ufffe]")


class UnreadableError(Exception):
    """A file is not of its kind, is damaged or exceeds a limit; the message says what was expected and found."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A document of a file.

    Attributes:
        text: its characters.
        title: or "".
        outline: what divides the text.
        part: names it among several of one file, or "".
        metadata: what else is known about it.
    """

    text: str
    title: str = ""
    outline: Outline = field(default_factory=Outline)
    part: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


def decoded(content: bytes) -> str:
    """Decode the bytes of a text file; every line ends with a line feed.

    UTF-8, or what a byte order mark says; bytes that are not valid UTF-8 are read as Windows-1252, which a file of
    unknown origin most often is then.

    Raises:
        UnreadableError: the file has zero bytes, as only binary files have.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _with_line_feeds(content[len(mark) :].decode(encoding, "replace"))
    if b"\0" in content[:_BINARY_BYTES]:
        raise UnreadableError("is a binary file, and was expected to hold text")
    try:
        return _with_line_feeds(content.decode())
    except UnicodeDecodeError:
        return _with_line_feeds(content.decode("cp1252", "replace"))


def decoded_as(content: bytes, charset: str) -> str | None:
    """Decode bytes in an encoding that a file names; None if it is unknown, or the bytes are not valid in it."""
    try:
        return None if codecs.lookup(charset).name in _SLOW_CODECS else content.decode(charset)
    except (LookupError, ValueError):
        return None


def printable(text: str) -> str:
    """Leave out control characters, which extracted texts have none of."""
    return _CONTROL.sub("", text)


def _with_line_feeds(text: str) -> str:
    return _LINE_BREAK.sub("\n", text) if "\r" in text else text
