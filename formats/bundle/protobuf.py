"""Where the fields of a Protocol Buffers message lie, as far as ONNX files need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from quarry.formats.container.varint import append_varint, read_varint
from quarry.formats.errors import CorruptFile

__all__ = ["Field", "field_bytes", "number_field", "read_fields"]

_NUMBER, _BYTES = 0, 2  # wire types
_FIXED_BYTES: Final = {1: 8, 5: 4}
_MAX_VARINT_BYTES: Final = 10  # of 64 bits, 7 in a byte
_MAX_KEY: Final = 2**32  # what a runtime would see of a larger one are its lowest bits: another field


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: of the field.
        value: an integer, or the field's bytes.
        first: where the field begins in the message, key included.
        stop: one past its last byte; its bytes, where it has some, are the last before.
    """

    number: int
    value: int | memoryview
    first: int
    stop: int


def read_fields(message: memoryview, path: Path) -> Iterator[Field]:
    """The fields of a message in their order.

    Args:
        message: its bytes.
        path: of the file, for the error.

    Raises:
        CorruptFile: a field does not end within the message, or is of no kind that files have.
    """
    position = 0
    while position < len(message):
        first = position
        key = message[position]
        position += 1
        if key > 0x7F:
            key, position = _varint(message, first, path)
        number, kind = key >> 3, key & 7
        if number == 0 or key >= _MAX_KEY:
            raise _damaged("a field's number", number, path)
        if kind == _NUMBER:
            value, position = _varint(message, position, path)
            yield Field(number, value, first, position)
            continue
        if kind == _BYTES:
            n_bytes, position = _varint(message, position, path)
        else:
            n_bytes = _FIXED_BYTES.get(kind, len(message))
        if position + n_bytes > len(message) or kind not in (_BYTES, *_FIXED_BYTES):
            raise _damaged("a field that ends within its message", number, path)
        yield Field(number, message[position : position + n_bytes], first, position + n_bytes)
        position += n_bytes


def number_field(number: int, value: int) -> bytes:
    """A field that holds an integer from 0."""
    packed = bytearray()
    append_varint(packed, number << 3 | _NUMBER)
    append_varint(packed, value)
    return bytes(packed)


def field_bytes(number: int, value: bytes) -> bytes:
    """A field that holds bytes: a text, or a message."""
    packed = bytearray()
    append_varint(packed, number << 3 | _BYTES)
    append_varint(packed, len(value))
    return bytes(packed) + value


def _varint(message: memoryview, position: int, path: Path) -> tuple[int, int]:
    """Return an integer of up to 64 bits, and where it ends."""
    try:
        return read_varint(message, position, _MAX_VARINT_BYTES)
    except ValueError:
        raise _damaged("an integer that ends", position, path) from None


def _damaged(expected: str, actual: object, path: Path) -> CorruptFile:
    return CorruptFile("the file is no ONNX model", path=path, expected=expected, actual=actual)
