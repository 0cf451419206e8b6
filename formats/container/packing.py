"""Msgpack as Quarry writes and reads it: one canonical form out, a strict and bounded form in."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path

import msgpack

from quarry.formats.errors import CorruptFile

__all__ = ["Fields", "pack", "unpack", "unpack_bounded"]

_MAX_ITEMS = 1 << 21  # values in all of a table of contents; the largest real one is a long list of segments

_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # array and map: bytes of the number of their items
_PAYLOADS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # binary and text: bytes of their length
_SCALARS = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8} | {
    0xD0 + power: 1 << power for power in range(4)
}


def pack(value: object) -> bytes:
    """Serialise `value` in one form, whatever the order of its maps: keys sorted, shortest integers."""
    return bytes(msgpack.packb(_sorted(value), use_bin_type=True))


def unpack(data: bytes | memoryview, path: Path, where: str) -> dict[str, object]:
    """Read a map written by `pack`.

    Args:
        data: the bytes; their length bounds the work.
        path: the file, for messages.
        where: the part of the file, for messages.

    Raises:
        CorruptFile: not one msgpack map with distinct text keys, or it holds extension types.
    """
    try:
        value = unpack_bounded(data, _MAX_ITEMS)
    except ValueError as error:
        raise CorruptFile(f"{where} cannot be read", path=path, expected="msgpack", actual=str(error)) from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{where} is no map", path=path, expected="a map", actual=type(value).__name__)
    return value


def unpack_bounded(data: bytes | memoryview, max_items: int) -> object:
    """Read one msgpack value of at most `max_items` values, itself and everything inside it counted.

    The bound is checked before anything is made of the bytes: a byte can stand for an object of 64.

    Raises:
        ValueError: too many values, not msgpack, keys that are no texts or appear twice, or extension types.
    """
    if len(data) > max_items:  # a value takes a byte or more
        _check_items(data, max_items)
    try:
        value: object = msgpack.unpackb(data, object_pairs_hook=_distinct, ext_hook=_no_extension, max_ext_len=0)
    except msgpack.UnpackException as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return value


def _check_items(data: bytes | memoryview, max_items: int) -> None:
    at, left, n_items = 0, 1, 1
    while left:
        if at >= len(data):
            raise ValueError("the bytes end within a value")
        at, inside = _step(data, at)
        left += inside - 1
        n_items += inside
        if n_items > max_items:
            raise ValueError(f"more than {max_items} values")


def _step(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Where the value at `at` ends (of a container: its head), and how many values it holds."""
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


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def _distinct(pairs: list[tuple[object, object]]) -> dict[object, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    if result and set(map(type, result)) != {str}:
        raise ValueError("a key is no text")
    return result


def _no_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code} of {len(data)} bytes")


class Fields:
    """A map read from a file, taken apart field by field; what is left over at `done` is an error.

    Types are compared exactly (True is no integer) and every number has bounds.

    Attributes:
        path: the file, for messages.
    """

    def __init__(self, values: object, path: Path, where: str) -> None:
        if type(values) is not dict:
            raise CorruptFile(f"{where} is no map", path=path, expected="a map", actual=type(values).__name__)
        self._left: dict[str, object] = dict(values)
        self.path = path
        self._where = where

    def integer(self, name: str, low: int, high: int) -> int:
        """The integer `name`, low <= value <= high."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, f"an integer from {low} to {high}", value)
        return value

    def number(self, name: str, low: float, high: float) -> float:
        """The finite float `name`, low <= value <= high."""
        value = self._take(name)
        if type(value) is not float or not low <= value <= high:
            raise self._wrong(name, f"a number from {low} to {high}", value)
        return value

    def optional_number(self, name: str, low: float, high: float) -> float | None:
        """The finite float `name`, or None where the file says nil."""
        if self._left.get(name, 0) is None:
            self._take(name)
            return None
        return self.number(name, low, high)

    def flag(self, name: str) -> bool:
        """The boolean `name`."""
        value = self._take(name)
        if type(value) is not bool:
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, name: str, max_chars: int = 4096) -> str:
        """The text `name`, at most `max_chars` characters."""
        value = self._take(name)
        if type(value) is not str or len(value) > max_chars:
            raise self._wrong(name, f"a text of at most {max_chars} characters", value)
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """The text `name`, one of `allowed`."""
        value = self._take(name)
        if type(value) is not str or value not in allowed:
            raise self._wrong(name, f"one of {', '.join(allowed)}", value)
        return value

    def data(self, name: str, n_bytes: int | None = None) -> bytes:
        """The byte string `name`, of exactly `n_bytes` where that is given."""
        value = self._take(name)
        if type(value) is not bytes or (n_bytes is not None and len(value) != n_bytes):
            raise self._wrong(name, "bytes" if n_bytes is None else f"{n_bytes} bytes", value)
        return value

    def items(self, name: str, max_items: int) -> list[object]:
        """The array `name`, at most `max_items` long."""
        value = self._take(name)
        if type(value) is not list or len(value) > max_items:
            raise self._wrong(name, f"an array of at most {max_items} items", value)
        return value

    def child(self, name: str) -> Fields:
        """The map `name`."""
        return Fields(self._take(name), self.path, f"{self._where}, field {name}")

    def optional_child(self, name: str) -> Fields | None:
        """The map `name`, or None where the file says nil."""
        if self._left.get(name, 0) is None:
            self._take(name)
            return None
        return self.child(name)

    def remaining(self) -> dict[str, object]:
        """All fields not taken yet, taken now."""
        rest, self._left = self._left, {}
        return rest

    def done(self) -> None:
        """Raise CorruptFile if a field is left that nobody asked for."""
        if self._left:
            raise CorruptFile(
                f"{self._where} has unknown fields",
                path=self.path,
                actual=reprlib.repr(sorted(self._left)),
            )

    def _take(self, name: str) -> object:
        if name not in self._left:
            raise CorruptFile(f"{self._where} lacks a field", path=self.path, expected=name)
        return self._left.pop(name)

    def _wrong(self, name: str, expected: str, value: object) -> CorruptFile:
        shown = reprlib.repr(value)
        return CorruptFile(f"{self._where}: wrong {name}", path=self.path, expected=expected, actual=shown)
