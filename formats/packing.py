"""Msgpack as Quarry writes and reads it: one canonical form out, a strict and bounded form in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgpack

from formats.errors import CorruptFile

__all__ = ["Fields", "pack", "unpack"]

_MAX_ITEMS = 1 << 20  # items in one array or map; the largest real one is a list of sections or segments


def pack(value: object) -> bytes:
    """Serialise `value` in the one form a reader accepts: maps with sorted keys, shortest integers."""
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
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_distinct,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptFile(f"{where} cannot be read", path=path, expected="msgpack", actual=repr(error)) from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{where} is no map", path=path, expected="a map", actual=type(value).__name__)
    return value


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
    return result


class Fields:
    """A map read from a file, taken apart field by field; what is left over at `done` is an error.

    Types are compared exactly (True is no integer) and every number has bounds.
    """

    def __init__(self, values: object, path: Path, where: str) -> None:
        if type(values) is not dict:
            raise CorruptFile(f"{where} is no map", path=path, expected="a map", actual=type(values).__name__)
        self._left: dict[str, object] = dict(values)
        self._path = path
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
        return Fields(self._take(name), self._path, f"{self._where}, field {name}")

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
                path=self._path,
                actual=", ".join(sorted(map(str, self._left))),
            )

    def _take(self, name: str) -> object:
        if name not in self._left:
            raise CorruptFile(f"{self._where} lacks a field", path=self._path, expected=name)
        return self._left.pop(name)

    def _wrong(self, name: str, expected: str, value: object) -> CorruptFile:
        shown = repr(value)
        return CorruptFile(f"{self._where}: wrong {name}", path=self._path, expected=expected, actual=shown[:80])
