"""Reads small JSON objects that nobody vouches for: exact types, no unknown and no repeated members."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NoReturn, cast

from quarry.formats.errors import CorruptFile

__all__ = ["JsonFields", "read_json"]

_MAX_CHARACTERS: Final = 1024


def read_json(path: Path, max_bytes: int) -> object:
    """Parse a small file of UTF-8 JSON; NaN, infinities and members that appear twice are refused.

    Raises:
        CorruptFile: the file is longer than ``max_bytes`` or is not such JSON.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise CorruptFile("the file is too long", path=path, expected=f"at most {max_bytes} bytes")
    try:
        text = content.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"the file is not JSON: {error}", path=path) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        msg = f"the member {repeated!r} appears twice"
        raise ValueError(msg)
    return found


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number"
    raise ValueError(msg)


class JsonFields:
    """The members of one JSON object: each is taken once and checked, and `done` refuses what is left.

    Args:
        value: a parsed JSON value.
        path: the file it came from, for messages.
        where: the way to it within the file, for messages: empty or ending in a dot.

    Raises:
        CorruptFile: the value is no object; so do all methods where a member is not what it should be.
    """

    def __init__(self, value: object, path: Path, where: str = "") -> None:
        self.path = path
        self._where = where
        if type(value) is not dict:
            self._refuse(where.rstrip("."), "an object", value)
        self._members = dict(cast("dict[str, object]", value))

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        """Take a string that UTF-8 can hold, of the pattern where one is given."""
        value = self._take(key)
        if not isinstance(value, str) or len(value) > _MAX_CHARACTERS or _has_surrogate(value):
            self._refuse(key, f"a string of at most {_MAX_CHARACTERS} characters", value)
        if pattern is not None and not pattern.fullmatch(value):
            self._refuse(key, f"a string like {pattern.pattern}", value)
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        """Take an integer within bounds, both included."""
        value = self._take(key)
        if type(value) is not int or not low <= value <= high:
            self._refuse(key, f"an integer from {low} to {high}", value)
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """Take a number within bounds, both included."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self._refuse(key, f"a number from {low} to {high}", value)
        return float(value)

    def flag(self, key: str) -> bool:
        """Take true or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            self._refuse(key, "true or false", value)
        return value

    def take_null(self, key: str) -> bool:
        """Take a member if it is null; tell whether it was."""
        if self._members.get(key, ...) is not None:
            return False
        del self._members[key]
        return True

    def inner(self, key: str) -> JsonFields:
        """Take an object."""
        return JsonFields(self._take(key), self.path, f"{self._where}{key}.")

    def names(self) -> list[str]:
        """List the members not yet taken."""
        return list(self._members)

    def done(self) -> None:
        """Refuse members that were not taken: nobody knows them."""
        if self._members:
            self._refuse(min(self._members), "no such member", self._members)

    def _take(self, key: str) -> object:
        if key not in self._members:
            self._refuse(key, "a value", None)
        return self._members.pop(key)

    def _refuse(self, key: str, expected: str, actual: object) -> NoReturn:
        raise CorruptFile(
            f"bad member {self._where + key!r}", path=self.path, expected=expected, actual=repr(actual)[:200]
        )


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
