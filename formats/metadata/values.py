"""The values in the metadata of a document, by path, as filters compare them.

A path consists of the keys that lead to a value, joined by dots. Members of a list, nested lists included, have
the path of the list, so that a path can have several values. A mapping or an empty list has the value
`Kind.CONTAINER` at its own path, so that filters can test that it exists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "LONG_PREFIX_BYTES",
    "MAX_TEXT_BYTES",
    "Kind",
    "Scalar",
    "iterate_lists",
    "iterate_values",
    "to_scalar",
    "to_value",
    "truncate_long_text",
]

MAX_TEXT_BYTES = 128  # of UTF-8; columns store a prefix of longer texts
LONG_PREFIX_BYTES = 64  # at most, cut between characters: at least 61
_INTEGERS = range(-(1 << 63), 1 << 63)


class Kind(IntEnum):
    """The kind of a value; the values of a column are in this order."""

    CONTAINER = 0
    NULL = 1
    FALSE = 2
    TRUE = 3
    INTEGER = 4
    FLOAT = 5
    TEXT = 6
    LONG_TEXT = 7


class Scalar(NamedTuple):
    """A value that can be compared with others of its kind, and a number with every number.

    Attributes:
        kind: any but LONG_TEXT, which only values of columns have.
        payload: the number or the text; 0 for other kinds.
    """

    kind: Kind
    payload: int | float | str = 0


_CONSTANTS: dict[Kind, bool | None] = {Kind.NULL: None, Kind.FALSE: False, Kind.TRUE: True}


def to_scalar(value: object) -> Scalar:
    """Return the value in the form that is compared: integral floats within 64 bits become integers, -0.0 is 0."""
    if value is None:
        return Scalar(Kind.NULL)
    if isinstance(value, bool):
        return Scalar(Kind.TRUE if value else Kind.FALSE)
    if isinstance(value, str):
        return Scalar(Kind.TEXT, str.__str__(value))  # the characters of a subclass such as an enumeration
    if isinstance(value, int):
        return Scalar(Kind.INTEGER, int.__int__(value))
    if isinstance(value, float):
        number = float.__float__(value)
        whole = number.is_integer() and int(number) in _INTEGERS
        return Scalar(Kind.INTEGER, int(number)) if whole else Scalar(Kind.FLOAT, number)
    return Scalar(Kind.CONTAINER)


def to_value(scalar: Scalar) -> str | int | float | bool | None:
    """Return the value of metadata that a scalar stands for; a mapping or an empty list is 0."""
    return _CONSTANTS.get(scalar.kind, scalar.payload)


def iterate_values(metadata: Mapping[str, object]) -> Iterator[tuple[str, Scalar]]:
    """Yield each path with each of its values, short paths first; repeated members of a list are repeated."""
    waiting = deque(metadata.items())
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, Mapping):
            yield path, Scalar(Kind.CONTAINER)
            waiting.extend((f"{path}.{key}", member) for key, member in value.items())
        elif isinstance(value, list | tuple) and value:
            waiting.extend((path, member) for member in value)
        else:
            yield path, to_scalar(value)


def iterate_lists(metadata: Mapping[str, object], path: str) -> Iterator[Sequence[object]]:
    """Yield the lists at a path, not those within them."""
    waiting = deque(metadata.items())
    while waiting:
        here, value = waiting.popleft()
        if here == path:
            if isinstance(value, list | tuple):
                yield value
        elif not path.startswith(f"{here}."):
            continue
        elif isinstance(value, Mapping):
            waiting.extend((f"{here}.{key}", member) for key, member in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((here, member) for member in value)


def truncate_long_text(text: str) -> str:
    """Return the prefix of a text of more than MAX_TEXT_BYTES that a column stores: 61 to 64 bytes."""
    return text[:LONG_PREFIX_BYTES].encode()[:LONG_PREFIX_BYTES].decode(errors="ignore")
