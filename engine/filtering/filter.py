"""Filters: conditions on the metadata, id and title of documents, written as a mapping in the manner of MongoDB.

``{"lang": "en", "year": {"$gte": 2020, "$lt": 2025}, "$or": [{"tags": "news"}, {"author.name": "Ann"}]}`` passes
the documents for which every member holds; ``{}`` passes all. A member is

* a path with a value: the same as ``{path: {"$eq": value}}``;
* a path with a mapping of operators, all of which must hold;
* ``$and`` or ``$or`` with a list of one or more filters; ``$not`` with a filter.

A path is keys joined by dots; ``{"a.b": 1}`` and ``{"a": {"b": 1}}`` in metadata are at the same path. Where a
list stands at a path, or on the way there, its members do: each operator holds if it holds for one of them. The
places of members are no part of paths. A key that begins with ``$`` cannot be asked for.

======================  ==============================================================  ===================
operator                holds for a value                                               path is missing
======================  ==============================================================  ===================
``$eq``                 equal, and of the same type                                     does not hold
``$in``                 equal to a member of the collection                             does not hold
``$gt $gte $lt $lte``   of the operand's type, number or text, and greater, ...         does not hold
``$exists: true``       any; also None, an empty list, a mapping                        does not hold
``$ne``, ``$nin``       the contrary of ``$eq``, ``$in``: no value is equal             holds
``$exists: false``      the contrary of ``$exists: true``                               holds
``$not``                with a mapping of operators: the contrary                       holds where they do not
======================  ==============================================================  ===================

Types are number, text, bool and None. An int and a float compare by their exact values; a bool is no number; texts
compare by code points; None equals None alone, and is not the same as missing. An operand of a type of which no
document has a value at its path, while documents have values of other types there, is an error rather than no hit.
Operands may be numpy's integers and bools too.

A document's own id and title are values at the paths ``id`` and ``title``, of type text. If its metadata has
values there too, all of them are at the path, as if they stood in a list: an operator holds if it holds for one of
them, ``$ne`` if none is equal. An empty title is missing. ``$eq`` and ``$in`` look ids and titles up; other
operators read all ids, or for titles all documents, the first time that a filter asks for them.

A path that is compared although no document has a value there is most often misspelled: an `UnknownFieldWarning`
names the fields most like it, once for each path while an index is open. ``$exists`` alone issues none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import TypeAlias

import numpy as np

from quarry.engine.arguments import iterator_of, shown
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata.values import Kind, Scalar, scalar

__all__ = [
    "AllOf",
    "AnyOf",
    "Comparison",
    "Condition",
    "Existence",
    "Negation",
    "comparisons",
    "parse_filter",
    "type_name",
]

_MAX_DEPTH = 32
_FIELD_OPERATORS = "$eq, $ne, $in, $nin, $gt, $gte, $lt, $lte, $exists, $not"
_SCALARS = "a str, int, float, bool or None"

_TYPES = {
    Kind.FALSE: "bool",
    Kind.TRUE: "bool",
    Kind.INTEGER: "number",
    Kind.FLOAT: "number",
    Kind.TEXT: "text",
    Kind.LONG_TEXT: "text",
}
_COMPARED: dict[str, Callable[[Scalar, Scalar], bool]] = {
    "eq": lambda value, operand: value.payload == operand.payload,
    "lt": lambda value, operand: value.payload < operand.payload,  # type: ignore[operator]  # of one type
    "lte": lambda value, operand: value.payload <= operand.payload,  # type: ignore[operator]
    "gt": lambda value, operand: value.payload > operand.payload,  # type: ignore[operator]
    "gte": lambda value, operand: value.payload >= operand.payload,  # type: ignore[operator]
}


def type_name(kind: Kind) -> str | None:
    """The type of a value: "number", "text" or "bool"; None where it is compared with its own kind only."""
    return _TYPES.get(kind)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A value at the path compares so with one of the operands.

    Attributes:
        path: keys joined by dots.
        operator: "eq", "lt", "lte", "gt" or "gte".
        operands: of "eq" any number, else one number or text.
    """

    path: str
    operator: str
    operands: tuple[Scalar, ...]

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Whether it holds for the values at the path."""
        return any(self._holds(value, operand) for value in values for operand in self.operands)

    def _holds(self, value: Scalar, operand: Scalar) -> bool:
        both_numbers = type_name(value.kind) == type_name(operand.kind) == "number"
        return (value.kind == operand.kind or both_numbers) and _COMPARED[self.operator](value, operand)


@dataclass(frozen=True, slots=True)
class Existence:
    """There is a value at the path."""

    path: str

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Whether it holds for the values at the path."""
        return any(True for _ in values)


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The part does not hold."""

    part: Condition


Condition: TypeAlias = Comparison | Existence | AllOf | AnyOf | Negation


def comparisons(condition: Condition) -> Iterable[Comparison]:
    """All comparisons within a condition."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Negation):
        yield from comparisons(condition.part)
    elif isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from comparisons(part)


def parse_filter(raw: object, depth: int = 0) -> Condition:
    """The condition that a filter stands for; conditions are equal where they mean the same literally.

    Args:
        raw: see the module.
        depth: of filters around it.

    Raises:
        InvalidFilter: names the field, what was expected and what was found.
    """
    if not isinstance(raw, Mapping):
        raise InvalidFilter("a filter is no mapping", expected="a mapping", actual=shown(raw))
    if depth > _MAX_DEPTH:
        raise InvalidFilter("a filter is nested too deep", expected=f"at most {_MAX_DEPTH} levels")
    return _all_of([_member(name, value, depth) for name, value in raw.items()])


def _all_of(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _member(name: object, value: object, depth: int) -> Condition:
    if not isinstance(name, str) or not _has_utf8(name):
        raise InvalidFilter("a filter has a key that is no text", expected="a path", actual=shown(name))
    if name == "$not":
        return Negation(parse_filter(value, depth + 1))
    if name in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise _wrong(name, "a list of one or more filters", value)
        parts = tuple(parse_filter(part, depth + 1) for part in value)
        return AllOf(parts) if name == "$and" else AnyOf(parts)
    if name.startswith("$"):
        raise InvalidFilter("unknown operator", expected="a path, $and, $or or $not", actual=shown(name))
    return _field(name, value, depth)


def _field(path: str, value: object, depth: int) -> Condition:
    if not isinstance(value, Mapping):
        return _equal(path, value)
    if not value:
        raise _wrong(path, f"a value, or one of {_FIELD_OPERATORS}", value)
    return _all_of([_condition(path, name, operand, depth) for name, operand in value.items()])


def _condition(path: str, name: object, operand: object, depth: int) -> Condition:
    if name == "$not":
        if not isinstance(operand, Mapping) or depth >= _MAX_DEPTH:
            raise _wrong(f"{path}: $not", f"a mapping of operators, {_MAX_DEPTH} levels at most", operand)
        return Negation(_field(path, operand, depth + 1))
    make = _OPERATORS.get(name) if isinstance(name, str) else None
    if make is None:
        hint = f"{_FIELD_OPERATORS}; a path into a mapping is written with dots"
        raise InvalidFilter(f"filter, field {shown(path)}: unknown operator", expected=hint, actual=shown(name))
    return make(path, operand)


def _equal(path: str, operand: object) -> Condition:
    return Comparison(path, "eq", (_operand(path, operand),))


def _among(path: str, operands: object) -> Condition:
    is_list = isinstance(operands, Collection) and not isinstance(operands, str | bytes | Mapping)
    values = iterator_of(operands) if is_list else None
    if values is None:
        raise _wrong(path, "a list", operands)
    return Comparison(path, "eq", tuple(_operand(path, operand) for operand in values))


def _ordered(name: str) -> Callable[[str, object], Condition]:
    def make(path: str, operand: object) -> Condition:
        value = _operand(path, operand)
        if type_name(value.kind) not in ("number", "text"):
            raise _wrong(f"{path}: ${name}", "a number or a text, which have an order", operand)
        return Comparison(path, name, (value,))

    return make


def _existence(path: str, operand: object) -> Condition:
    if not isinstance(operand, bool):
        raise _wrong(f"{path}: $exists", "True or False", operand)
    return Existence(path) if operand else Negation(Existence(path))


_OPERATORS: dict[str, Callable[[str, object], Condition]] = {
    "$eq": _equal,
    "$ne": lambda path, operand: Negation(_equal(path, operand)),
    "$in": _among,
    "$nin": lambda path, operands: Negation(_among(path, operands)),
    "$exists": _existence,
    **{f"${name}": _ordered(name) for name in ("lt", "lte", "gt", "gte")},
}


def _operand(path: str, value: object) -> Scalar:
    if isinstance(value, np.integer | np.bool_):  # a float32 is not the number that metadata was written with
        value = value.item()
    plain = value is None or isinstance(value, str | int | float)
    unusable = isnan(value) if isinstance(value, float) else isinstance(value, str) and not _has_utf8(value)
    if not plain or unusable:
        hint = f"{_SCALARS}; $in takes several" if isinstance(value, list | tuple | set) else _SCALARS
        raise _wrong(path, hint, value)
    return scalar(value)


def _has_utf8(text: str) -> bool:
    """Whether it can be stored at all: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(where: str, expected: str, value: object) -> InvalidFilter:
    return InvalidFilter(f"filter, field {shown(where)}", expected=expected, actual=shown(value))
