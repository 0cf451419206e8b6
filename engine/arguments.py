"""Checks of the arguments of public functions: a value of a wrong type is an error that names the argument."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Collection, Container, Iterable, Iterator
from datetime import date, datetime, timedelta

import numpy as np

from quarry.formats.errors import InvalidSetting

__all__ = [
    "check_names",
    "checked_flag",
    "checked_integer",
    "checked_number",
    "checked_seconds",
    "is_masked",
    "is_one_of",
    "iterator_of",
    "lone_surrogate",
    "python_scalar",
    "shown",
    "time_of_numpy",
]

_SHOWN_CHARACTERS = 60
_LONGEST_S = 86_400  # a day
_EPOCH = datetime(1970, 1, 1)  # times of numpy have no zone
_FINER_DIGITS = {"ns": 3, "ps": 6, "fs": 9, "as": 12}  # digits of numpy's units after those of microseconds


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse keywords that a function does not have.

    Raises:
        InvalidSetting: one is unknown; the message has the known ones and the nearest of them.
    """
    unknown = sorted(set(given).difference(known))
    if unknown:
        from difflib import get_close_matches

        near = dict.fromkeys(each for name in unknown for each in get_close_matches(name, known, 1))
        hint = f" (the nearest: {', '.join(near)})" if near else ""
        raise InvalidSetting(
            "unknown setting", expected=", ".join(known) + hint, actual=", ".join(unknown), setting=unknown[0]
        )


def checked_flag(value: object, name: str) -> bool:
    """Return a flag as a bool.

    Raises:
        InvalidSetting: it is neither True nor False; a text such as "no" would count as True.
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidSetting(f"{name} is not a flag", expected="True or False", actual=shown(value), setting=name)
    return bool(value)


def checked_seconds(value: object, name: str) -> float:
    """Return a time to wait in seconds; 0 for None.

    Raises:
        InvalidSetting: it is not a number from 0 to a day.
    """
    return 0.0 if value is None else float(checked_number(value, name, 0, _LONGEST_S))


def checked_number(value: object, name: str, low: float, high: float) -> int | float:
    """Return a number, Python's or NumPy's, as an int or a float.

    Raises:
        InvalidSetting: it is no number, or not within `low` and `high`.
    """
    number: object = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number <= high:
        expected = f"a number from {low} to {high}"
        raise InvalidSetting(f"{name} is out of range", expected=expected, actual=shown(value), setting=name)
    return number


def checked_integer(value: object, name: str, low: int, high: int) -> int:
    """Return an integer, Python's or NumPy's, as an int.

    Raises:
        InvalidSetting: it is no integer, or not within `low` and `high`.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:  # type: ignore[operator]
        expected = f"an integer from {low}" + (f" to {high}" if high < sys.maxsize else "")
        raise InvalidSetting(f"{name} is out of range", expected=expected, actual=shown(value), setting=name)
    return int(value)  # type: ignore[call-overload,no-any-return]


def shown(value: object) -> str:
    """Return the text of a value for a message, bounded in length and depth."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = _SHOWN_CHARACTERS
    try:
        return short.repr(value)
    except Exception:  # of the value's own `__repr__`, or of an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def iterator_of(value: object) -> Iterator[object] | None:
    """Return an iterator over an iterable; None for other values, such as an array without dimensions."""
    try:
        return iter(value) if isinstance(value, Iterable) else None
    except TypeError:
        return None


def is_masked(value: object) -> bool:
    """Return whether an array, or one in a list, has an element that is masked: `numpy.asarray` ignores masks."""
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.is_masked(value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    return isinstance(value, list | tuple) and any(
        isinstance(each, np.ma.MaskedArray) and np.ma.is_masked(each) for each in value
    )


def is_one_of(value: object, names: Container[str]) -> bool:
    """Return whether a value is a str, and one of the names."""
    return isinstance(value, str) and value in names


def python_scalar(value: object) -> object:
    """Return a bool, an integer or a real number of NumPy as Python's, and a date or a date with a time as text.

    The text is that of `datetime.isoformat`, also of dates of NumPy. Any other value is returned as it is, missing
    dates and those of years with more than four digits too. An array without axes is its element.
    """
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, np.datetime64):
        return value if np.isnat(value) else time_of_numpy(value)
    if isinstance(value, date) and (text := value.isoformat())[4:5] == "-":  # a datetime is a date
        return text
    if not isinstance(value, np.generic) or value.dtype.kind not in "biuf":
        return value
    return float(value.item()) if value.dtype.kind == "f" else value.item()  # of a longdouble a longdouble


def time_of_numpy(value: np.datetime64) -> object:
    """Convert a date or time to text as `datetime.isoformat` writes it; one that has no such text stays."""
    unit, step = np.datetime_data(value.dtype)
    n_digits = _FINER_DIGITS.get(unit)
    if n_digits is None:
        item: object = value.item()
        return item.isoformat() if isinstance(item, date) else value  # a datetime is a date
    microseconds, rest = divmod(int(value.view(np.int64)) * step, 10**n_digits)
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return value
    if not rest:
        return moment.isoformat()
    digits = f"{rest:0{n_digits}}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return moment.isoformat(timespec="microseconds") + digits


def lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot encode, None if there is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
