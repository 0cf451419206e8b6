"""Where a document was read, for the messages of errors, and how these name fields and values."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import NamedTuple

from quarry.formats.errors import InvalidDocument

__all__ = ["SHOWN_CHARACTERS", "Place", "kind_of", "shown", "surrogate_in"]

SHOWN_CHARACTERS = 60
"""The most that a message quotes of a name or an id."""


class Place(NamedTuple):
    """Which document is being read.

    Attributes:
        where: "document 17", "line 12", with its id once that is known.
        path: the file it is read from; None when it is given by a caller.
    """

    where: str
    path: Path | None

    def error(self, name: str, problem: str, *, expected: object = None, actual: object = None) -> InvalidDocument:
        """Make the error that says what is wrong with a field."""
        message = f"{self.where}: field {name!r} {problem}"
        return InvalidDocument(message, field=name, path=self.path, expected=expected, actual=actual)

    def with_id(self, document_id: str) -> Place:
        """Return the same place with the id of the document."""
        return Place(f"{self.where} (id {shown(document_id)})", self.path)

    def __str__(self) -> str:
        return f"{self.path}: {self.where}" if self.path else self.where


def surrogate_in(error: UnicodeEncodeError) -> tuple[str, str, str]:
    """Say what is wrong with a text that UTF-8 cannot encode: the problem, what was expected, what was found."""
    code = f"U+{ord(error.object[error.start]):04X}"
    return f"has a lone surrogate at character {error.start}", "text that UTF-8 can encode", code


def kind_of(value: object) -> str:
    """Say what a value is: its type, and of a number what keeps it from being stored."""
    if isinstance(value, float) and not isfinite(value):
        return repr(value)
    if isinstance(value, int) and value.bit_length() > 63:
        return f"int of {value.bit_length()} bits"
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return "None" if value is None else name


def shown(value: object) -> str:
    """Quote a name or an id in one line of bounded length."""
    if not isinstance(value, str):
        return f"a key of type {type(value).__name__}"
    return repr(value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "...")
