"""Reads maps from untrusted files: msgpack tables of contents and JSON manifests.

Every field is taken once, with an exact type and bounds; fields that were not taken are an error. A library that
decodes into typed records was compared: msgspec 0.22 keeps the last of two members of the same name without an
error, its messages lack the value that was found, and bounds that depend on other fields need code all the same.
"""

from __future__ import annotations

import json
import re
import reprlib
from pathlib import Path
from typing import NoReturn

from quarry.formats.errors import CorruptFile, FormatTooNew
from quarry.formats.system_errors import system_errors

__all__ = ["Fields", "read_json"]


def read_json(path: Path, max_bytes: int) -> object:
    """Parse a file of UTF-8 JSON; NaN, infinities and duplicate members are refused.

    Raises:
        CorruptFile: the file is longer than `max_bytes` or is not such JSON.
        AccessFailed: it cannot be read.
    """
    with system_errors("read", path), path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise CorruptFile("the file is too long", path=path, expected=f"at most {max_bytes} bytes")
    try:
        text = content.decode("utf-8")
        return json.loads(text, object_pairs_hook=_build_map, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"the file is not valid JSON: {error}", path=path) from None


class Fields:
    """The fields of one map, each taken once and checked; `refuse_unknown` reports those that are left.

    Types are compared exactly (True is not an integer) and every number has bounds. All methods raise CorruptFile
    if a field is missing or is not as requested.

    Args:
        values: what was parsed.
        path: the file, for error messages.
        where: the part of the file, for error messages.
        prefix: names of the enclosing maps, each followed by a dot, for error messages.
        accepts_integers: whether an integer is a number too, as in JSON.

    Raises:
        CorruptFile: `values` is not a map.
    """

    def __init__(
        self, values: object, path: Path, where: str, prefix: str = "", *, accepts_integers: bool = False
    ) -> None:
        self.path = path
        self._where = where
        self._prefix = prefix
        self._number_types = (float, int) if accepts_integers else (float,)
        if type(values) is not dict:
            name = f"{where}, field {prefix[:-1]}" if prefix else where
            raise CorruptFile(f"{name} is not a map", path=path, expected="a map", actual=type(values).__name__)
        self._left: dict[str, object] = dict(values)

    @classmethod
    def from_json(cls, value: object, path: Path) -> Fields:
        """Return the members of an object that `read_json` returned, or of one inside it."""
        return cls(value, path, "JSON", accepts_integers=True)

    def integer(self, name: str, low: int, high: int) -> int:
        """Take an integer, low <= value <= high."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            self._refuse(name, f"an integer from {low} to {high}", value)
        return value

    def number(self, name: str, low: float, high: float) -> float:
        """Take a finite number, low <= value <= high."""
        value = self._take(name)
        if type(value) not in self._number_types or not low <= value <= high:  # type: ignore[operator]
            self._refuse(name, f"a number from {low} to {high}", value)
        return float(value)  # type: ignore[arg-type]

    def optional_number(self, name: str, low: float, high: float) -> float | None:
        """Take a finite number, low <= value <= high, or None if the field is null."""
        return None if self._take_null(name) else self.number(name, low, high)

    def check_format(self, newest: int, what: str) -> None:
        """Read the version of a file in the field `format`.

        Raises:
            FormatTooNew: a later version of Quarry has written it.
        """
        version = self.integer("format", 1, 2**31)
        if version > newest:
            message = f"a later version of Quarry wrote this {what}"
            raise FormatTooNew(message, path=self.path, expected=newest, actual=version)

    def boolean(self, name: str) -> bool:
        """Take a boolean."""
        value = self._take(name)
        if type(value) is not bool:
            self._refuse(name, "true or false", value)
        return value

    def text(self, name: str, max_chars: int = 1024, pattern: re.Pattern[str] | None = None) -> str:
        """Take a string without surrogates of at most `max_chars` characters that matches `pattern`, if given."""
        value = self._take(name)
        if type(value) is not str or len(value) > max_chars or _has_surrogate(value):
            self._refuse(name, f"a string of at most {max_chars} characters", value)
        if pattern is not None and not pattern.fullmatch(value):
            self._refuse(name, f"a string that matches {pattern.pattern}", value)
        return value

    def optional_text(self, name: str, max_chars: int = 1024) -> str | None:
        """Take a string as `text` does, or None if the field is null."""
        return None if self._take_null(name) else self.text(name, max_chars)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Take one of the strings `allowed`."""
        value = self._take(name)
        if type(value) is not str or value not in allowed:
            self._refuse(name, f"one of {', '.join(allowed)}", value)
        return value

    def binary(self, name: str, n_bytes: int) -> bytes:
        """Take a byte string of exactly `n_bytes`."""
        value = self._take(name)
        if type(value) is not bytes or len(value) != n_bytes:
            self._refuse(name, f"{n_bytes} bytes", value)
        return value

    def items(self, name: str, max_items: int) -> list[object]:
        """Take an array of at most `max_items` items."""
        value = self._take(name)
        if type(value) is not list or len(value) > max_items:
            self._refuse(name, f"an array of at most {max_items} items", value)
        return value

    def texts(self, name: str, max_items: int) -> tuple[str, ...]:
        """Take an array of one or more texts, ascending and distinct."""
        items = self.items(name, max_items)
        texts = tuple(item for item in items if isinstance(item, str))
        if not texts or len(texts) < len(items) or list(texts) != sorted(set(texts)):
            self._refuse(name, "distinct texts, ascending", items)
        return texts

    def child(self, name: str) -> Fields:
        """Take a map."""
        return self._make_child(name, self._take(name))

    def optional_child(self, name: str) -> Fields | None:
        """Take a map, or None if the field is null."""
        return None if self._take_null(name) else self.child(name)

    def children(self, name: str, max_items: int) -> list[Fields]:
        """Take an array of at most `max_items` maps."""
        return [
            self._make_child(f"{name}[{number}]", item) for number, item in enumerate(self.items(name, max_items))
        ]

    def has(self, name: str) -> bool:
        """Return whether there is a field `name` that was not taken yet."""
        return name in self._left

    def names(self) -> list[str]:
        """Return the names of the fields that were not taken yet, in the order of the file."""
        return list(self._left)

    def remaining(self) -> dict[str, object]:
        """Take all fields that were not taken yet."""
        rest, self._left = self._left, {}
        return rest

    def refuse_unknown(self) -> None:
        """Raise CorruptFile if there are fields that were not taken."""
        if self._left:
            raise CorruptFile(
                f"{self._where} has unknown fields",
                path=self.path,
                actual=reprlib.repr([self._prefix + name for name in sorted(self._left)]),
            )

    def _make_child(self, name: str, value: object) -> Fields:
        accepts_integers = int in self._number_types
        return Fields(value, self.path, self._where, f"{self._prefix}{name}.", accepts_integers=accepts_integers)

    def _take(self, name: str) -> object:
        if name not in self._left:
            raise CorruptFile(f"{self._where} lacks a field", path=self.path, expected=self._prefix + name)
        return self._left.pop(name)

    def _take_null(self, name: str) -> bool:
        """Take the field if it is null, and return whether it was."""
        is_null = self._left.get(name, 0) is None
        if is_null:
            del self._left[name]
        return is_null

    def _refuse(self, name: str, expected: str, value: object) -> NoReturn:
        raise CorruptFile(
            f"{self._where}: invalid field {self._prefix}{name}",
            path=self.path,
            expected=expected,
            actual=reprlib.repr(value),
        )


def _build_map(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the member {repeated!r} appears twice")
    return entries


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
