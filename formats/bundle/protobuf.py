"""Parses and writes the fields of Protocol Buffers messages that ONNX files use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from quarry.formats.container.varint import append_varint, read_varint
from quarry.formats.errors import CorruptFile

__all__ = ["Field", "pack_bytes_field", "pack_number_field", "read_fields"]

_NUMBER, _BYTES = 0, 2  # wire types
_FIXED_BYTES: Final = {1: 8, 5: 4}
_MAX_VARINT_BYTES: Final = 10  # of 64 bits, 7 in a byte
_MAX_KEY: Final = 2**32  # of a larger key a runtime reads only the low bits, which are another field


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: the number of the field.
        value: an integer, or the field's bytes.
        first: offset of the field in the message, key included.
        stop: offset after the field; its bytes, if any, end there.
    """

    number: int
    value: int | memoryview
    first: int
    stop: int


def read_fields(message: memoryview, path: Path) -> Iterator[Field]:
    """Yield the fields of a message in order.

    Args:
        message: its bytes.
        path: the file, for error messages.

    Raises:
        CorruptFile: a field does not end within the message, or has an unknown wire type.
    """
    position = 0
    while position < len(message):
        first = position
        key = message[position]
        position += 1
        if key > 0x7F:
            key, position = _read_varint(message, first, path)
        number, kind = key >> 3, key & 7
        if number == 0 or key >= _MAX_KEY:
            raise _make_error("a field's number", number, path)
        if kind == _NUMBER:
            value, position = _read_varint(message, position, path)
            yield Field(number, value, first, position)
            continue
        if kind == _BYTES:
            n_bytes, position = _read_varint(message, position, path)
        else:
            n_bytes = _FIXED_BYTES.get(kind, len(message))
        if position + n_bytes > len(message) or kind not in (_BYTES, *_FIXED_BYTES):
            raise _make_error("a field that ends within its message", number, path)
        yield Field(number, message[position : position + n_bytes], first, position + n_bytes)
        position += n_bytes


def pack_number_field(number: int, value: int) -> bytes:
    """Return a field with a non-negative integer."""
    packed = bytearray()
    append_varint(packed, number << 3 | _NUMBER)
    append_varint(packed, value)
    return bytes(packed)


def pack_bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with bytes: a text or a message."""
    packed = bytearray()
    append_varint(packed, number << 3 | _BYTES)
    append_varint(packed, len(value))
    return bytes(packed) + value


def _read_varint(message: memoryview, position: int, path: Path) -> tuple[int, int]:
    """Return an integer of up to 64 bits, and the position after it."""
    try:
        return read_varint(message, position, _MAX_VARINT_BYTES)
    except ValueError:
        raise _make_error("an integer that ends", position, path) from None


def _make_error(expected: str, actual: object, path: Path) -> CorruptFile:
    return CorruptFile("the file is not an ONNX model", path=path, expected=expected, actual=actual)
