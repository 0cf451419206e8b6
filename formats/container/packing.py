"""Canonical msgpack: written in one form for each value, read strictly and with bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgpack

from quarry.formats.container.fields import Fields
from quarry.formats.errors import CorruptFile

__all__ = ["pack", "unpack", "unpack_bounded"]

_MAX_ITEMS = 1 << 21  # values in a table of contents; the largest is a list of all segments

_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # array and map: bytes of the number of their items
_PAYLOADS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # binary and text: bytes of their length
_SCALARS = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8} | {
    0xD0 + power: 1 << power for power in range(4)
}


def pack(value: object) -> bytes:
    """Serialize a value in its canonical form: sorted keys, shortest integers."""
    return bytes(msgpack.packb(_sort_keys(value), use_bin_type=True))


def unpack(data: bytes | memoryview, path: Path, where: str) -> Fields:
    """Read the fields of a map written by `pack`.

    Args:
        data: the bytes; their length bounds the work.
        path: the file, for messages.
        where: the part of the file, for messages.

    Raises:
        CorruptFile: the data is not one msgpack map with distinct text keys, or has extension types.
    """
    try:
        return Fields(unpack_bounded(data, _MAX_ITEMS), path, where)
    except ValueError as error:
        raise CorruptFile(f"{where} cannot be read", path=path, expected="msgpack", actual=str(error)) from error


def unpack_bounded(data: bytes | memoryview, max_items: int) -> object:
    """Read one msgpack value that consists of at most `max_items` values, itself included.

    The bound is checked before objects are created: one byte can become an object of 64 bytes.

    Raises:
        ValueError: too many values, invalid msgpack, keys that are not text or appear twice, or extension types.
    """
    if len(data) > max_items:  # each value takes at least one byte
        _check_items(data, max_items)
    try:
        value: object = msgpack.unpackb(
            data, object_pairs_hook=_build_map, ext_hook=_refuse_extension, max_ext_len=0
        )
    except msgpack.UnpackException as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return value


def _check_items(data: bytes | memoryview, max_items: int) -> None:
    at, left, n_items = 0, 1, 1
    while left:
        if at >= len(data):
            raise ValueError("the bytes end within a value")
        at, inside = _skip_value(data, at)
        left += inside - 1
        n_items += inside
        if n_items > max_items:
            raise ValueError(f"more than {max_items} values")


def _skip_value(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the end of the value at `at` (of a container: of its header), and the number of values in it."""
    head = data[at]
    if head < 0x80 or head >= 0xE0:
        return at + 1, 0
    if head < 0xA0:
        return at + 1, (head & 0x0F) * (2 if head < 0x90 else 1)
    if head < 0xC0:
        return at + 1 + (head & 0x1F), 0
    if head in _SCALARS:
        return at + 1 + _SCALARS[head], 0
    if head in _PAYLOADS:
        start = at + 1 + _PAYLOADS[head]
        return start + int.from_bytes(data[at + 1 : start], "big"), 0
    if head in _CONTAINERS:
        start = at + 1 + _CONTAINERS[head]
        return start, int.from_bytes(data[at + 1 : start], "big") * (2 if head >= 0xDE else 1)
    raise ValueError(f"no value starts with byte {head:#x}")


def _sort_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sort_keys(item) for item in value]
    return value


def _build_map(pairs: list[tuple[object, object]]) -> dict[object, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    if result and set(map(type, result)) != {str}:
        raise ValueError("a key is not text")
    return result


def _refuse_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code} of {len(data)} bytes")
