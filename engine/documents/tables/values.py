"""Values of tables as the plain values that a document can have.

The rules, which docs/documents.md gives to users:

- None, NaN and the missing values of pandas and numpy are missing.
- numpy scalars become Python's; arrays and tuples become lists.
- Dates, times and time stamps become text in ISO 8601; durations become seconds.
- Decimals become int when they are whole, else float; UUIDs become text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np

from quarry.engine.arguments import python_scalar, time_of_numpy

__all__ = ["MISSING", "Missing", "id_from", "plain_value", "text_from"]

_MAX_DEPTH = 10  # deeper values than metadata may have are refused there
_MISSING_TYPES = frozenset({"MaskedConstant", "NAType", "NaTType"})
_SECONDS = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_PARTS = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}  # of a second


class Missing:
    """The kind of `MISSING`."""


MISSING: Final = Missing()
"""What `plain_value` returns for a missing value."""

_Plain: TypeAlias = "object"


def plain_value(value: object, depth: int = 0) -> _Plain:
    """Convert a value, or return `MISSING`; a value of a kind that is not known is returned as it is."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return MISSING
    if isinstance(value, np.generic):
        return _of_numpy(value)
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return MISSING if value != value else value  # noqa: PLR0124  # NaN
    if isinstance(value, np.ndarray | list | tuple | Mapping):
        return _of_container(value, depth) if depth < _MAX_DEPTH else value
    return _of_library_type(value)


def text_from(value: object) -> object:
    """Convert a value of a column of texts or titles: "" for a missing one, the digits of a number."""
    plain = plain_value(value)
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        return str(plain)
    return "" if plain is MISSING else plain


def id_from(value: object) -> object:
    """Convert a value of the column of ids: integers, also those that a table holds as floats, to their digits."""
    plain = plain_value(value)
    if isinstance(plain, float) and plain.is_integer() and abs(plain) < 1 << 53:
        plain = int(plain)
    return str(plain) if isinstance(plain, int) and not isinstance(plain, bool) else plain


def _of_numpy(value: np.generic) -> object:
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return MISSING
        return time_of_numpy(value) if isinstance(value, np.datetime64) else _of_duration(value)
    if isinstance(value, np.longdouble):
        return plain_value(float(value))
    item = value.item()
    return value if isinstance(item, np.generic) else plain_value(item)


def _of_duration(value: np.timedelta64) -> object:
    """Convert a duration to seconds; one of years, of months or of no unit has no fixed length and stays."""
    unit, step = np.datetime_data(value.dtype)
    count = int(value.view(np.int64)) * step
    if unit in _SECONDS:
        return float(count * _SECONDS[unit])
    return count / _PARTS[unit] if unit in _PARTS else value


def _of_interval(months: int, days: int, nanoseconds: int) -> object:
    """Convert an interval of Arrow to seconds; one of months has no fixed length and stays a duration."""
    if months:
        return np.timedelta64(months, "M")
    return (days * _SECONDS["D"] * _PARTS["ns"] + nanoseconds) / _PARTS["ns"]


def _of_container(value: object, depth: int) -> object:
    if isinstance(value, tuple) and type(value).__name__ == "MonthDayNano":
        return _of_interval(*value)
    if isinstance(value, Mapping):
        pairs = ((key, plain_value(member, depth + 1)) for key, member in value.items())
        return {key: member for key, member in pairs if member is not MISSING}
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return plain_value(value[()], depth)
    members = (plain_value(member, depth + 1) for member in value)  # type: ignore[attr-defined]
    return [None if member is MISSING else member for member in members]


def _of_library_type(value: object) -> object:
    if isinstance(value, date):  # a datetime is a date
        return python_scalar(value)
    if isinstance(value, time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return _of_decimal(value)
    return value


def _of_decimal(value: Decimal) -> object:
    if value.is_nan():
        return MISSING
    if value.is_infinite() or value.adjusted() > 308:  # not a finite float
        return float("inf")
    return int(value) if value == value.to_integral_value() else float(value)
