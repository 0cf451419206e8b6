"""Filters: conditions on the metadata, id and title of documents, in the query language of MongoDB.

``{"lang": "en", "year": {"$gte": 2020, "$lt": 2025}, "$or": [{"tags": "news"}, {"author.name": "Ann"}]}`` selects
the documents for which every member holds; ``{}`` selects all, and inside another filter it is an error, because
there it would undo the conditions beside it. A member is

* a path with a value: the same as ``{path: {"$eq": value}}``;
* a path with a mapping of operators, all of which must hold;
* ``$and`` or ``$or`` with a list of one or more filters; ``$not`` with a filter.

A path consists of keys joined by dots; in metadata, ``{"a.b": 1}`` and ``{"a": {"b": 1}}`` have the same path. The
members of a list have the path of the list: an operator holds if it holds for one of them. A path that begins with
``$`` needs a mapping of operators, ``{"$price": {"$eq": 5}}``; it cannot be the name of an operator.

======================  ==============================================================  ===================
operator                holds for a value                                               path is missing
======================  ==============================================================  ===================
``$eq``                 equal, and of the same type                                     does not hold
``$in``                 equal to a member of the collection                             does not hold
``$all``                one of several that equal the members of the list together      does not hold
``$gt $gte $lt $lte``   of the operand's type, number or text, and greater, ...         does not hold
``$between``            from the first to the second member of a list, both included    does not hold
``$contains``           a text that contains the operand, a text                        does not hold
``$prefix``             a text that begins with the operand, a text                     does not hold
``$ieq`` and others     like ``$eq``, ``$contains``, ``$prefix`` without upper case     does not hold
``$regex``              a text in which the operand, a regular expression, matches      does not hold
``$size``               a list of so many members                                       does not hold
``$elemMatch``          a list with a member that satisfies all conditions of the       does not hold
                        operand: operators, or a filter of the member's fields
``$exists: true``       any; also None, an empty list, a mapping                        does not hold
``$ne``, ``$nin``       the negation of ``$eq``, ``$in``: no value is equal             holds
``$exists: false``      the negation of ``$exists: true``                               holds
``$eq: []``             an empty list; the same as ``$size: 0``                         does not hold
``$not``                with a mapping of operators: their negation                     holds if they do not
======================  ==============================================================  ===================

Types are number, text, bool and None. An int and a float are compared exactly; a bool is not a number; texts are
compared by code points; None equals only None, and differs from a missing value. If documents have values at a
path, but none of the operand's type, the comparison is an error. Operands may be numpy's numbers and bools too.
Dates and times are texts in ISO 8601 form, also as operands of the types `date` and `datetime`. A day, such as
"2025-01-02", includes all its times: they are ``$lte`` and not ``$gt`` it. ``$ieq``, ``$icontains`` and
``$iprefix`` compare as `str.casefold` does. Regular expressions are those of RE2, which takes time linear in the
text whatever the expression; ``(?i)`` at their beginning ignores case.

A document's own id, title and text are values at the paths ``id``, ``title`` and ``text``, of type text. Values
that its metadata has at these paths are added to them, like members of a list. An empty one is missing. ``$eq``
and ``$in`` look ids and titles up; other operators read all ids, or for titles and texts all documents that the
rest of the filter does not decide, at the first use of the filter.

If no document has a value at a compared path, it is probably misspelled: an `UnknownFieldWarning` names the most
similar fields, once for each path while an index is open. ``$exists`` alone causes no warning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from math import isnan
from typing import Any, TypeAlias

from quarry.engine.arguments import iterator_of, lone_surrogate, python_scalar, shown
from quarry.engine.boosts import seconds_of
from quarry.engine.process.libraries import requiring
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata.values import Kind, Scalar, to_scalar

__all__ = [
    "AllOf",
    "AnyOf",
    "Between",
    "Comparison",
    "Condition",
    "Existence",
    "HasId",
    "HasMember",
    "HasPhrase",
    "ListSize",
    "Negation",
    "count_bytes",
    "get_type_name",
    "iterate_comparisons",
    "iterate_leaves",
    "join_conditions",
    "parse_filter",
    "text_test",
]

_MAX_DEPTH = 32  # of conditions inside one another
_MAX_CONDITIONS = 4096  # each may read a column, or the titles of all documents; `$in` is one, whatever its list
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LEAF_BYTES = 400  # of a comparison, its path and its place in a conjunction
_OPERAND_BYTES = 72  # of a named tuple of two, and its place in the tuple of operands
_SCALARS = "a str, int, float, bool or None"
_LONGEST_REGEX = 1000  # characters; the time to search a text grows with them

_TYPES = {
    Kind.FALSE: "bool",
    Kind.TRUE: "bool",
    Kind.INTEGER: "number",
    Kind.FLOAT: "number",
    Kind.TEXT: "text",
    Kind.LONG_TEXT: "text",
}
_NUMBERS = (Kind.INTEGER, Kind.FLOAT)
_COMPARE: dict[str, Callable[[Scalar, Scalar], bool]] = {
    "eq": lambda value, operand: value.payload == operand.payload,
    "lt": lambda value, operand: value.payload < operand.payload,  # type: ignore[operator]  # of one type
    "lte": lambda value, operand: value.payload <= operand.payload,  # type: ignore[operator]
    "gt": lambda value, operand: value.payload > operand.payload,  # type: ignore[operator]
    "gte": lambda value, operand: value.payload >= operand.payload,  # type: ignore[operator]
    "contains": lambda value, operand: operand.payload in value.payload,  # type: ignore[operator]
    "prefix": lambda value, operand: value.payload.startswith(operand.payload),  # type: ignore[union-attr, arg-type]
}


def _regex_test(pattern: str) -> Callable[[str], object]:
    search = _compile(pattern).search
    return lambda text: search(text.encode())  # faster than with a str


@lru_cache(maxsize=64)
def _compile(pattern: str) -> Any:  # noqa: ANN401  # the library has no types
    """Compile a regular expression, within the 8 MiB of memory that RE2 takes by default.

    Raises:
        BackendUnavailable: RE2 is not installed.
        ValueError: it is not valid, or needs more memory.
    """
    with requiring("$regex in a filter needs a library", "quarry-search[regex]"):
        import re2
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace") if error.args else "") from error


def _parse_exists(path: str, operand: object) -> Condition:
    operand = python_scalar(operand)
    if not isinstance(operand, bool):
        raise _make_error(f"{path}: $exists", "True or False", operand)
    return Existence(path) if operand else Negation(Existence(path))


_TESTS: dict[str, Callable[[str], Callable[[str], object]]] = {
    "ieq": lambda folded: lambda text: text.casefold() == folded,
    "icontains": lambda folded: lambda text: folded in text.casefold(),
    "iprefix": lambda folded: lambda text: text.casefold().startswith(folded),
    "regex": _regex_test,
}


def get_type_name(kind: Kind) -> str | None:
    """Return the type of a value: "number", "text" or "bool"; None for a kind that is only equal to itself."""
    return _TYPES.get(kind)


def text_test(comparison: Comparison) -> Callable[[str], object] | None:
    """Return a function that returns whether the comparison holds for a text; None if values are ordered by it."""
    if comparison.operator == "time":
        return lambda text: seconds_of(text) is not None
    make = _TESTS.get(comparison.operator)
    return None if make is None else make(str(comparison.operands[0].payload))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The condition that a value at the path satisfies the operator with one of the operands.

    Attributes:
        path: keys joined by dots.
        operator: "eq", "lt", "lte", "gt", "gte", "contains", "prefix", "ieq", "icontains", "iprefix" or "regex",
            and of boosts "time", which holds for texts that are times.
        operands: any number of them for "eq", one number or text for the operators of order, one text for the
            others, in folded case for those that ignore it.
    """

    path: str
    operator: str
    operands: tuple[Scalar, ...]

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Return whether the condition holds for the values at the path."""
        test = text_test(self)
        if test is not None:
            return any(isinstance(value.payload, str) and test(value.payload) for value in values)
        compare = _COMPARE[self.operator]
        for value in values:
            for operand in self.operands:
                both_numbers = value.kind in _NUMBERS and operand.kind in _NUMBERS
                if (value.kind == operand.kind or both_numbers) and compare(value, operand):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Between:
    """The condition that one value at a path is neither below nor above two bounds.

    Attributes:
        low: the comparison with the least value.
        high: that with the largest one, at the same path.
    """

    low: Comparison
    high: Comparison

    @property
    def path(self) -> str:
        """The path of both."""
        return self.low.path

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Return whether the condition holds for the values at the path."""
        return any(self.low.holds((value,)) and self.high.holds((value,)) for value in values)


@dataclass(frozen=True, slots=True)
class Existence:
    """The condition that there is a value at the path."""

    path: str

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Return whether the condition holds for the values at the path."""
        return any(True for _ in values)


@dataclass(frozen=True, slots=True)
class ListSize:
    """The condition that there is a list of so many members at the path."""

    path: str
    n_members: int


@dataclass(frozen=True, slots=True)
class HasMember:
    """The condition that a list at the path has a member that satisfies a condition.

    Attributes:
        path: the path of the list.
        part: the condition, whose paths are those in the document.
    """

    path: str
    part: Condition


@dataclass(frozen=True, slots=True)
class HasId:
    """The condition that a document has an id, whatever its metadata is."""

    doc_id: str


@dataclass(frozen=True, slots=True)
class HasPhrase:
    """The condition that a document has a phrase (see `quarry.engine.analysis.phrases`) in one of its texts.

    Attributes:
        text: the phrase.
        language: the language of the index.
        rules: version of the rules that its documents were analyzed by.
        searchable: fields that may have the phrase, too.
    """

    text: str
    language: str
    rules: int
    searchable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllOf:
    """The conjunction of some conditions."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The disjunction of some conditions."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The negation of a condition."""

    part: Condition


Condition: TypeAlias = (
    Comparison | Between | Existence | ListSize | HasMember | HasId | HasPhrase | AllOf | AnyOf | Negation
)


def iterate_comparisons(condition: Condition) -> Iterable[Comparison]:
    """Yield all comparisons within a condition."""
    return (leaf for leaf in iterate_leaves(condition) if isinstance(leaf, Comparison))


def count_bytes(condition: Condition) -> int:
    """Return about how much memory the objects of a condition take."""
    return sum(_LEAF_BYTES + sum(map(_operand_bytes, _operands(leaf))) for leaf in iterate_leaves(condition))


def _operands(leaf: Condition) -> tuple[Scalar, ...]:
    """Return the values that a leaf holds: its operands, and its path, id or phrase, which may be as long."""
    if isinstance(leaf, Comparison):
        return (*leaf.operands, to_scalar(leaf.path))
    texts = (getattr(leaf, name, "") for name in ("path", "doc_id", "text"))
    return tuple(map(to_scalar, texts))


def _operand_bytes(operand: Scalar) -> int:
    return _OPERAND_BYTES + sys.getsizeof(operand.payload)


def iterate_leaves(condition: Condition) -> Iterable[Condition]:
    """Yield all conditions within a condition that have no parts."""
    if isinstance(condition, Negation | HasMember):
        yield from iterate_leaves(condition.part)
    elif isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from iterate_leaves(part)
    elif isinstance(condition, Between):
        yield from (condition.low, condition.high)
    else:
        yield condition


def parse_filter(raw: object) -> Condition:
    """Parse a filter, see the module; filters that differ only in notation give equal conditions.

    Raises:
        BackendUnavailable: it has a regular expression, and the library for them is not installed.
        InvalidFilter: names the field, what was expected and what was found.
    """
    condition = _parse(raw, 0)
    if (n := sum(1 for _ in iterate_leaves(condition))) > _MAX_CONDITIONS:
        raise InvalidFilter(
            "a filter has too many conditions",
            expected=f"at most {_MAX_CONDITIONS}; $in compares with any number of values",
            actual=n,
        )
    return condition


def _parse(raw: object, depth: int, prefix: str = "") -> Condition:
    """Parse a filter.

    Args:
        raw: the filter.
        depth: number of enclosing filters.
        prefix: what its paths begin with in the document.
    """
    if not isinstance(raw, Mapping):
        raise InvalidFilter("a filter is not a mapping", expected="a mapping", actual=shown(raw))
    if depth > _MAX_DEPTH:
        raise InvalidFilter("a filter is nested too deep", expected=f"at most {_MAX_DEPTH} levels")
    if depth and not raw:
        raise InvalidFilter(
            "a filter has an empty filter in it, which matches every document", expected="a condition"
        )
    return join_conditions([_parse_member(name, value, depth, prefix) for name, value in raw.items()])


def join_conditions(parts: Sequence[Condition]) -> Condition:
    """Return the conjunction of some conditions; without any it holds for every document."""
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _parse_member(name: object, value: object, depth: int, prefix: str) -> Condition:
    if not isinstance(name, str) or lone_surrogate(name) is not None:
        raise InvalidFilter("a filter has a key that is not text", expected="a path", actual=shown(name))
    if name == "$not":
        return _negate(_parse(value, depth + 1, prefix))
    if name in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise _make_error(name, "a list of one or more filters", value)
        parts = tuple(_parse(part, depth + 1, prefix) for part in value)
        if len(parts) == 1:
            return parts[0]
        return AllOf(parts) if name == "$and" else AnyOf(parts)
    if name.startswith("$") and (name in _OPERATORS or not isinstance(value, Mapping)):
        raise InvalidFilter("unknown operator", expected="a path, $and, $or or $not", actual=shown(name))
    return _parse_field(prefix + name, value, depth)


def _negate(condition: Condition) -> Condition:
    return condition.part if isinstance(condition, Negation) else Negation(condition)


def _parse_field(path: str, value: object, depth: int) -> Condition:
    if not isinstance(value, Mapping):
        return _parse_equal(path, value)
    if not value:
        raise _make_error(path, f"a value, or one of {_operator_names()}", value)
    return join_conditions([_parse_operator(path, name, operand, depth) for name, operand in value.items()])


def _parse_operator(path: str, name: object, operand: object, depth: int) -> Condition:
    if name == "$not":
        if not isinstance(operand, Mapping) or depth >= _MAX_DEPTH:
            raise _make_error(f"{path}: $not", f"a mapping of operators, {_MAX_DEPTH} levels at most", operand)
        return _negate(_parse_field(path, operand, depth + 1))
    if name == "$elemMatch":
        return _parse_elem_match(path, operand, depth)
    make = _OPERATORS.get(name) if isinstance(name, str) else None
    if make is None:
        near = get_close_matches(name[:20], _OPERATORS, 1) if isinstance(name, str) else ()
        nearest = f" (the nearest: {near[0]})" if near else ""
        hint = f"{_operator_names()}{nearest}; a path into a mapping is written with dots"
        raise InvalidFilter(f"filter, field {shown(path)}: unknown operator", expected=hint, actual=shown(name))
    return make(path, operand)


def _operator_names() -> str:
    return ", ".join([*_OPERATORS, "$elemMatch", "$not"])


def _parse_elem_match(path: str, operand: object, depth: int) -> Condition:
    if not isinstance(operand, Mapping) or not operand or depth >= _MAX_DEPTH:
        expected = f"a mapping of operators, or a filter of the fields of a member, {_MAX_DEPTH} levels at most"
        raise _make_error(f"{path}: $elemMatch", expected, operand)
    if all(name in _OPERATORS or name == "$elemMatch" for name in operand):
        return HasMember(path, _parse_field(path, operand, depth + 1))
    return HasMember(path, _parse(operand, depth + 1, f"{path}."))


def _parse_size(path: str, operand: object) -> Condition:
    n_members = python_scalar(operand)
    if not isinstance(n_members, int) or isinstance(n_members, bool) or n_members < 0:
        raise _make_error(f"{path}: $size", "a whole number of members, 0 or more", operand)
    return ListSize(path, n_members)


def _parse_equal(path: str, operand: object) -> Condition:
    if isinstance(operand, list | tuple) and not operand:
        return ListSize(path, 0)
    return Comparison(path, "eq", (_parse_operand(path, operand),))


def _parse_in(path: str, operands: object) -> Condition:
    return Comparison(path, "eq", _parse_operands(path, operands))


def _parse_all(path: str, operands: object) -> Condition:
    values = _parse_operands(path, operands)
    if not values:
        raise _make_error(f"{path}: $all", "a list of one or more values", operands)
    return join_conditions([Comparison(path, "eq", (value,)) for value in values])


def _parse_operands(path: str, operands: object) -> tuple[Scalar, ...]:
    is_list = isinstance(operands, Collection) and not isinstance(operands, str | bytes | Mapping)
    values = iterator_of(operands) if is_list else None
    if values is None:
        raise _make_error(path, "a list", operands)
    return tuple(_parse_operand(path, operand) for operand in values)


def _make_order_parser(name: str) -> Callable[[str, object], Condition]:
    return lambda path, operand: _parse_order(path, name, operand)


def _parse_order(path: str, name: str, operand: object) -> Comparison:
    value = _parse_operand(path, operand)
    if get_type_name(value.kind) not in ("number", "text"):
        raise _make_error(f"{path}: ${name}", "a number or a text", operand)
    if name in _AFTER_DAY and (after := _day_after(value)) is not None:
        return Comparison(path, _AFTER_DAY[name], (after,))
    return Comparison(path, name, (value,))


_AFTER_DAY = {"lte": "lt", "gt": "gte"}
"""The operators that compare with the day after a day what these compare with all its times."""


def _day_after(value: Scalar) -> Scalar | None:
    """Return the day after a day as a text; None for any other value, and for the last day."""
    if not isinstance(value.payload, str) or not _DAY.fullmatch(value.payload):
        return None
    try:
        return to_scalar((date.fromisoformat(value.payload) + timedelta(days=1)).isoformat())
    except (ValueError, OverflowError):  # the digits are not a day, or there is none after it
        return None


def _parse_between(path: str, operands: object) -> Condition:
    if not isinstance(operands, list | tuple) or len(operands) != 2:
        raise _make_error(f"{path}: $between", "a list of the least and the largest value", operands)
    return Between(_parse_order(path, "gte", operands[0]), _parse_order(path, "lte", operands[1]))


def _make_text_parser(name: str) -> Callable[[str, object], Condition]:
    def make(path: str, operand: object) -> Condition:
        text = _parse_operand(path, operand).payload
        if not isinstance(text, str):
            raise _make_error(f"{path}: ${name}", "a text", operand)
        if name == "regex":
            _check_regex(path, text)
        elif name in _TESTS:
            text = text.casefold()
        return Comparison(path, name, (to_scalar(text),))

    return make


def _check_regex(path: str, pattern: str) -> None:
    if len(pattern) > _LONGEST_REGEX:
        raise _make_error(f"{path}: $regex", f"at most {_LONGEST_REGEX} characters", pattern)
    try:
        _compile(pattern)
    except ValueError as error:
        expected = f"a regular expression of RE2, which has no groups referred to and no look-around: {error}"
        raise _make_error(f"{path}: $regex", expected, pattern) from error


_OPERATORS: dict[str, Callable[[str, object], Condition]] = {
    "$eq": _parse_equal,
    "$ne": lambda path, operand: Negation(_parse_equal(path, operand)),
    "$in": _parse_in,
    "$nin": lambda path, operands: Negation(_parse_in(path, operands)),
    "$all": _parse_all,
    "$between": _parse_between,
    "$exists": _parse_exists,
    "$size": _parse_size,
    **{f"${name}": _make_order_parser(name) for name in ("lt", "lte", "gt", "gte")},
    **{f"${name}": _make_text_parser(name) for name in ("contains", "prefix", *_TESTS)},
}


def _parse_operand(path: str, value: object) -> Scalar:
    value = python_scalar(value)
    plain = value is None or isinstance(value, str | int | float)
    if isinstance(value, float):
        unusable = isnan(value)
    else:
        unusable = isinstance(value, str) and lone_surrogate(value) is not None
    if not plain or unusable:
        hint = f"{_SCALARS}; $in takes several" if isinstance(value, list | tuple | set) else _SCALARS
        raise _make_error(path, hint, value)
    return to_scalar(value)


def _make_error(where: str, expected: str, value: object) -> InvalidFilter:
    return InvalidFilter(f"filter, field {shown(where)}", expected=expected, actual=shown(value))
