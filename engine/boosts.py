"""Boosts: what the value of a metadata field adds to the score of a document, or puts it before all others."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Set
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import numpy as np

from quarry.engine.arguments import check_names, checked_number, iterator_of, lone_surrogate, python_scalar, shown
from quarry.formats.arrays import Float64Array
from quarry.formats.errors import InvalidSetting

__all__ = ["Boost", "Linear", "Log1p", "Pin", "Recency", "Saturation", "parse_boosts", "seconds_of"]

_WEIGHT = 0.2  # of scores from 0 to 1: a fifth of the difference between the best and the worst candidate
_MAX_WEIGHT = 1e6
_MAX_PIVOT = 1e18
_MAX_BOOSTS, _MAX_PINNED = 16, 1000  # each reads a column, or looks a value up
_MONTH = re.compile(r"[0-9]{4}(-[0-9]{2})?")  # or a year; it begins with its first day
_HALF_LIFE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(h|d|w|y)")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365.25 * 24}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Boost(ABC):
    """What a field adds to the score of a document: `weight` times a function of its largest value.

    A document without a value gets nothing. Weights are in the unit of scores: those of hybrid searches are from 0
    to 1 for the candidates, cosines at most 1, and BM25 scores often 10 to 30.

    Attributes:
        weight: from 0 to a million.

    Raises:
        InvalidSetting: a value is out of range.
    """

    weight: float = _WEIGHT
    types: ClassVar[Set[str]] = frozenset({"number"})

    def __post_init__(self) -> None:
        _check(self, "weight", 0, _MAX_WEIGHT)

    @abstractmethod
    def value(self, numbers: Float64Array) -> Float64Array:
        """Return the function of (n,) values, without the weight."""


@dataclass(frozen=True, kw_only=True)
class Recency(Boost):
    """1 for a document of now or of the future, 1/2 for one as old as `half_life`, 1/4 for twice that, and so on.

    The field has dates or times as ISO 8601 texts, in UTC unless they have an offset, or seconds since 1970. Other
    texts are no value; a search is refused if the field has no times at all.

    Attributes:
        weight: from 0 to a million.
        half_life: a number and its unit, hours, days, weeks or years: "12h", "30d", "2w", "1.5y".
        now: the time that ages are counted from, a `datetime` or an ISO 8601 text; None: that of the search.
    """

    half_life: str
    now: str | datetime | None = None
    types: ClassVar[Set[str]] = frozenset({"number", "text"})

    def __post_init__(self) -> None:
        super().__post_init__()
        match = _HALF_LIFE.fullmatch(self.half_life) if isinstance(self.half_life, str) else None
        if match is None or not float(match[1]):
            expected = "a number above 0 and h, d, w or y, such as '30d'"
            message = "half_life is not a time"
            raise InvalidSetting(message, expected=expected, actual=shown(self.half_life), setting="boost")
        if self.now is not None and seconds_of(str(self.now)) is None:
            expected = "a datetime or an ISO 8601 text"
            raise InvalidSetting("now is not a time", expected=expected, actual=shown(self.now), setting="boost")

    def value(self, numbers: Float64Array) -> Float64Array:
        """Return the function of (n,) times in seconds since 1970."""
        number, unit = self.half_life[:-1], self.half_life[-1]
        now = seconds_of(str(self.now))
        assert now is not None
        ages: Float64Array = np.maximum(now - numbers, 0) / (float(number) * _HOURS[unit] * 3600)
        return np.exp2(-ages)


@dataclass(frozen=True, kw_only=True)
class Log1p(Boost):
    """log(1 + value), for counts that differ by orders of magnitude, such as stars or views; 0 below 0.

    Attributes:
        weight: from 0 to a million.
    """

    def value(self, numbers: Float64Array) -> Float64Array:
        """Return the function of (n,) values."""
        return np.log1p(np.maximum(numbers, 0))


@dataclass(frozen=True, kw_only=True)
class Linear(Boost):
    """The value itself.

    Attributes:
        weight: from 0 to a million.
    """

    def value(self, numbers: Float64Array) -> Float64Array:
        """Return the function of (n,) values."""
        return numbers


@dataclass(frozen=True, kw_only=True)
class Saturation(Boost):
    """value / (value + pivot), which is 1/2 at the pivot and never reaches 1; 0 below 0.

    Attributes:
        weight: from 0 to a million.
        pivot: above 0.
    """

    pivot: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, "pivot", np.finfo(np.float64).tiny, _MAX_PIVOT)

    def value(self, numbers: Float64Array) -> Float64Array:
        """Return the function of (n,) values."""
        positive = np.maximum(numbers, 0)
        return positive / (positive + self.pivot)


@dataclass(frozen=True)
class Pin:
    """Documents with one of the values are before all others, in the order of the values.

    Of documents that may be found: in lexical mode they have a word of the query.

    Attributes:
        values: texts, numbers or bools, all of one type: ids for the field "id", or ``[True]`` for "in_stock".

    Raises:
        InvalidSetting: the values are not a list, too many, or of other types.
    """

    values: Collection[str | int | float | bool]

    def __post_init__(self) -> None:
        given = None if isinstance(self.values, str | bytes | Mapping) else iterator_of(self.values)
        pinned = () if given is None else tuple(map(python_scalar, given))
        if not 0 < len(pinned) <= _MAX_PINNED or len({_type_of(each) for each in pinned} - {None}) != 1:
            expected = f"a list of 1 to {_MAX_PINNED} texts, numbers or bools"
            message = "pinned values are not a list of one type"
            raise InvalidSetting(message, expected=expected, actual=shown(self.values), setting="boost")
        object.__setattr__(self, "values", tuple(dict.fromkeys(pinned)))

    @property
    def types(self) -> Set[str]:
        """The type of the values."""
        return {str(_type_of(each)) for each in self.values}


_KINDS: Mapping[str, type[Boost | Pin]] = {
    kind.__name__.lower(): kind for kind in (Recency, Log1p, Saturation, Linear, Pin)
}


def parse_boosts(given: object) -> dict[str, Boost | Pin]:
    """Check boosts by field, and return all as objects, the same for equal ones but for the time of now.

    Args:
        given: maps paths to boosts, or to mappings of the name of one, in small letters, to its attributes.

    Raises:
        InvalidSetting: names the field.
    """
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MAX_BOOSTS:
        expected = (
            f"a mapping of 1 to {_MAX_BOOSTS} fields to {', '.join(each.__name__ for each in _KINDS.values())}"
        )
        raise InvalidSetting("boosts are not a mapping", expected=expected, actual=shown(given), setting="boost")
    boosts = {str(path): _parse(path, each) for path, each in given.items()}
    now = datetime.now(UTC)
    return {
        path: replace(each, now=now) if isinstance(each, Recency) and each.now is None else each
        for path, each in boosts.items()
    }


def _parse(path: object, given: object) -> Boost | Pin:
    if isinstance(given, Boost | Pin) and isinstance(path, str):
        return given
    if not isinstance(path, str) or not isinstance(given, Mapping) or len(given) != 1:
        expected = f"a boost, or a mapping of one of {', '.join(_KINDS)} to its attributes"
        message = f"the boost of the field {shown(path)} is not one"
        raise InvalidSetting(message, expected=expected, actual=shown(given), setting="boost")
    ((name, attributes),) = given.items()
    try:
        return _make(name, attributes)
    except InvalidSetting as error:
        message = f"the boost of {shown(path)}: {error.message}"
        raise InvalidSetting(message, expected=error.expected, actual=error.actual, setting="boost") from None


def _make(name: object, attributes: object) -> Boost | Pin:
    check_names([str(name)], list(_KINDS))
    if not isinstance(attributes, Mapping):
        raise InvalidSetting("attributes are not a mapping", expected="a mapping", actual=shown(attributes))
    kind = _KINDS[str(name)]
    check_names(map(str, attributes), [each.name for each in fields(kind)])
    lacking = [each.name for each in fields(kind) if each.default is MISSING and each.name not in attributes]
    if lacking:
        raise InvalidSetting("lacks an attribute", expected=lacking[0], actual=shown(attributes))
    return kind(**attributes)


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of an ISO 8601 text, in UTC if it has no offset; None: it is no time."""
    if _MONTH.fullmatch(text):
        text += "-01-01"[len(text) - 4 :]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) / timedelta(seconds=1)


def _check(boost: Boost, name: str, low: float, high: float) -> None:
    object.__setattr__(boost, name, checked_number(getattr(boost, name), name, low, high))


def _type_of(value: object) -> str | None:
    if isinstance(value, str):
        return "text" if lone_surrogate(value) is None else None
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) and value == value else None  # noqa: PLR0124  # NaN is not
