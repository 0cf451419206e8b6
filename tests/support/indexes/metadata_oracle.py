"""A slow implementation of filters over plain dicts, as an oracle, and strategies for random metadata.

A document is its metadata together with its id and title, see `fields_of`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
TEXT_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$contains": operator.contains,
    "$prefix": str.startswith,
    "$ieq": lambda value, operand: value.casefold() == operand.casefold(),
    "$icontains": lambda value, operand: operand.casefold() in value.casefold(),
    "$iprefix": lambda value, operand: value.casefold().startswith(operand.casefold()),
}


def fields_of(doc_id, title, metadata):
    """Return metadata with the id of the document, and its title unless empty, added at these paths in a tuple."""
    own = {"id": doc_id} | ({"title": title} if title else {})
    return metadata | {name: (value, metadata[name]) if name in metadata else value for name, value in own.items()}


def found_at(metadata, path):
    """Return all values at a path, members of lists included; `...` for a mapping or an empty list."""
    found = []

    def walk(value, here):
        if isinstance(value, dict):
            found.extend([...] if here == path else [])
            for key, member in value.items():
                walk(member, f"{here}.{key}")
        elif isinstance(value, list | tuple) and value:
            for member in value:
                walk(member, here)
        elif here == path:
            found.append(... if value == [] else value)

    for key, value in metadata.items():
        walk(value, key)
    return found


def lists_at(metadata, path):
    """Return all lists at a path, without those within them."""
    found = []

    def walk(value, here):
        if isinstance(value, dict):
            for key, member in value.items():
                walk(member, f"{here}.{key}")
        elif isinstance(value, list) and here == path:
            found.append(value)
        elif isinstance(value, list | tuple):
            for member in value:
                walk(member, here)

    for key, value in metadata.items():
        walk(value, key)
    return found


def type_of(value):
    """Return the type of a value for comparisons: "number", "text", "bool", or None."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else "text" if isinstance(value, str) else None


def same(value, operand):
    return type_of(value) == type_of(operand) and value == operand


def passes(metadata, condition):
    """Return whether a document satisfies a filter."""
    for name, value in condition.items():
        if name == "$and":
            holds = all(passes(metadata, part) for part in value)
        elif name == "$or":
            holds = any(passes(metadata, part) for part in value)
        elif name == "$not":
            holds = not passes(metadata, value)
        else:
            holds = all_hold(metadata, name, value if isinstance(value, dict) else {"$eq": value})
        if not holds:
            return False
    return True


def all_hold(metadata, path, conditions):
    return all(one_holds(metadata, path, name, operand) for name, operand in conditions.items())


def one_holds(metadata, path, name, operand):  # noqa: PLR0911
    values = found_at(metadata, path)
    if name == "$size" or (name == "$eq" and operand == []):
        return any(len(each) == (operand or 0) for each in lists_at(metadata, path))
    if name == "$elemMatch":
        members = [member for each in lists_at(metadata, path) for member in each]
        return any(all_hold({path: member}, path, operand) for member in members)
    if name == "$exists":
        return bool(values) == operand
    if name == "$not":
        return not all_hold(metadata, path, operand)
    if name in ("$ne", "$nin"):
        return not one_holds(metadata, path, {"$ne": "$eq", "$nin": "$in"}[name], operand)
    if name in ("$eq", "$in"):
        return any(same(value, each) for value in values for each in (operand if name == "$in" else [operand]))
    compare = (OPERATORS | TEXT_OPERATORS)[name]
    return any(type_of(value) == type_of(operand) and compare(value, operand) for value in values)


def clashes(documents, condition):
    """Return whether the filter compares an operand with values of other types only."""
    for name, value in condition.items():
        if name in ("$and", "$or"):
            found = any(clashes(documents, part) for part in value)
        elif name == "$not":
            found = clashes(documents, value)
        else:
            there = {type_of(each) for document in documents for each in found_at(document, name)} - {None}
            there |= {"text"} if name in ("id", "title") and documents else set()
            found = operators_clash(there, value if isinstance(value, dict) else {"$eq": value})
        if found:
            return True
    return False


def operators_clash(there, conditions):
    for name, operand in conditions.items():
        if name in ("$not", "$elemMatch") and operators_clash(there, operand):
            return True
        if name not in ("$not", "$elemMatch", "$exists", "$size") and operand != []:
            operands = {type_of(each) for each in (operand if name in ("$in", "$nin") else [operand])}
            if operands and there and None not in operands and not operands & there:
                return True
    return False


def unknown_fields(documents, condition):
    """Return the compared paths at which no document has a value."""
    found = set()
    for name, value in condition.items():
        if name in ("$and", "$or"):
            found.update(*(unknown_fields(documents, part) for part in value))
        elif name == "$not":
            found |= unknown_fields(documents, value)
        elif (
            name not in ("id", "title") and compares(value) and not any(found_at(each, name) for each in documents)
        ):
            found.add(name)
    return found if documents else set()


def compares(conditions):
    """Return whether the operators of a path compare values, and do not only test existence."""
    if not isinstance(conditions, dict):
        return True
    return any(
        compares(operand) if name in ("$not", "$elemMatch") else name != "$exists"
        for name, operand in conditions.items()
    )


KEYS = ["a", "b", "c", "a.b", "é", "", "id", "title"]
IDS = ["0", "1", "a", "b", "é", "a.b", "x" * 129]
TITLES = ["", " ", "a", "a b", "b a", "B a", "a\nb", "é", "x" * 128, "x" * 129, "title of 0"]
WORDS = [
    *IDS,
    *TITLES,
    "",
    "a",
    "b",
    "é",
    "\U0001f600",
    "x" * 64,
    "x" * 128,
    "x" * 129,
    "x" * 60 + "é" * 40,
    "x" * 63 + "é" * 40,
]
NUMBERS = [0, 1, -1, 2, 255, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, 0.5, -0.5, 1.5, 2.0**53, 2.0**63, -(2.0**63), 1e300, 5e-324]

scalars = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(NUMBERS),
    st.sampled_from(FLOATS),
    st.none(),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.text("xyé", min_size=60, max_size=140),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    scalars,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.dictionaries(st.sampled_from(KEYS), inside, max_size=3)
    ),
    max_leaves=5,
)
metadata = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
titles = st.sampled_from(TITLES)

paths = st.sampled_from([*KEYS, "a.a", "b.a", "c.é", "a.b.c", ".", "id.a", "title.b"])
ordered = scalars.filter(lambda value: type_of(value) in ("number", "text"))
parts = st.one_of(
    st.sampled_from(WORDS), st.sampled_from(["x", "é", " ", "xé", "x" * 61, "x" * 63, "x" * 70, "éé"])
)
operators = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(["$eq", "$ne"]), scalars),
        st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(scalars, max_size=12)),
        st.tuples(st.sampled_from(list(OPERATORS)), ordered),
        st.tuples(st.sampled_from(list(TEXT_OPERATORS)), parts),
        st.tuples(st.just("$exists"), st.booleans()),
        st.tuples(st.just("$size"), st.integers(0, 3)),
        st.tuples(st.just("$eq"), st.just([])),
    ).map(lambda pair: dict([pair])),
    lambda inside: st.one_of(
        inside.map(lambda condition: {"$not": condition}),
        inside.filter(lambda condition: "$not" not in condition).map(lambda condition: {"$elemMatch": condition}),
        st.tuples(inside, inside).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=3,
)
fields = st.dictionaries(paths, scalars | operators, max_size=2)
own_texts = st.one_of(st.tuples(st.just("id"), st.sampled_from(IDS)), st.tuples(st.just("title"), titles))
own_fields = st.tuples(own_texts, st.sampled_from(["$eq", "$ne", "$in", "$nin", *OPERATORS, *TEXT_OPERATORS])).map(
    lambda drawn: {drawn[0][0]: {drawn[1]: [drawn[0][1]] if drawn[1] in ("$in", "$nin") else drawn[0][1]}}
)
filters = st.recursive(
    st.one_of(fields, own_fields),
    lambda inside: st.one_of(
        # empty filters within others are refused
        st.lists(inside.filter(bool), min_size=1, max_size=3).map(lambda parts: {"$and": parts}),
        st.lists(inside.filter(bool), min_size=1, max_size=3).map(lambda parts: {"$or": parts}),
        inside.filter(bool).map(lambda part: {"$not": part}),
        st.tuples(inside, fields).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=4,
)
