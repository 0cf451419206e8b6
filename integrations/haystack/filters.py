"""Filters of Haystack in the form that `quarry.engine.filtering.filter` describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from haystack.errors import FilterError

from quarry.formats.errors import InvalidFilter

__all__ = ["Filters", "filter_errors", "metadata_path", "require_filters", "translate_filters"]

Filters = Mapping[str, Any]

_COMPARISONS = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_UNFILTERED = frozenset({"blob", "content", "embedding", "score", "sparse_embedding"})
_NOTHING: dict[str, object] = {"id": {"$exists": False}}  # no document passes


@contextmanager
def filter_errors() -> Iterator[None]:
    """Raise errors about filters as those of Haystack."""
    try:
        yield
    except InvalidFilter as error:
        raise FilterError(str(error)) from error


def metadata_path(field: object) -> str:
    """Return the path of a field of the metadata, with or without "meta." before it; parts are separated by dots.

    Raises:
        FilterError: it is not a text.
    """
    if not isinstance(field, str):
        raise FilterError(f"the name of a field is a text, not {field!r}")
    return field.removeprefix("meta.")


def translate_filters(filters: Filters | None) -> dict[str, object] | None:
    """Return filters of Haystack in the form that `quarry.engine.filtering.filter` describes; None: no filters.

    Raises:
        FilterError: they are malformed.
    """
    return None if filters is None or filters == {} else _condition(filters)


def require_filters(filters: Filters | None) -> dict[str, object]:
    """Return filters in the form of the engine, for calls that change the documents which pass them.

    Raises:
        FilterError: there are none, which might be a mistake that changes all documents, or they are malformed.
    """
    condition = translate_filters(filters) if filters else None
    if condition is None:
        raise FilterError("filters are required here; without any, all documents would be meant")
    return condition


def _condition(given: object) -> dict[str, object]:
    if not isinstance(given, Mapping):
        raise FilterError(f"a filter is a dictionary, not {given!r}")
    if "field" in given:
        return _comparison(given)
    for key in ("operator", "conditions"):
        if key not in given:
            raise FilterError(f"{key!r} is missing in {dict(given)!r}")
    operator, conditions = given["operator"], given["conditions"]
    if not isinstance(conditions, Sequence) or not conditions:
        raise FilterError(f"'conditions' is not a list of filters in {dict(given)!r}")
    parts = [_condition(each) for each in conditions]
    if operator == "AND":
        return {"$and": parts}
    if operator == "OR":
        return {"$or": parts}
    if operator == "NOT":
        return {"$not": {"$and": parts}}
    raise FilterError(f"unknown operator {operator!r}; expected AND, OR or NOT")


def _comparison(given: Mapping[str, Any]) -> dict[str, object]:
    field, operator, value = _members(given)
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"the operator {operator!r} needs a list, not {value!r}")
        return {field: {"$in" if operator == "in" else "$nin": value}}
    if operator == "==":
        equal: dict[str, object] = {field: {"$eq": value}}  # otherwise a mapping would count as operators
        return equal if value is not None else {"$or": [{field: {"$exists": False}}, equal]}
    if operator == "!=":
        return {field: {"$exists": True, "$ne": None}} if value is None else {field: {"$ne": value}}
    if operator not in _COMPARISONS:
        raise FilterError(f"unknown operator {operator!r}; expected ==, !=, >, >=, <, <=, in or not in")
    if value is None:
        return _NOTHING
    if (isinstance(value, str) and not _is_date(value)) or isinstance(value, list | dict):
        raise FilterError(f"the operator {operator!r} needs a number or a date in ISO format, not {value!r}")
    return {field: {_COMPARISONS[operator]: value}}


def _members(given: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return path, operator and value of a comparison."""
    for key in ("operator", "value"):
        if key not in given:
            raise FilterError(f"{key!r} is missing in {dict(given)!r}")
    if not isinstance(given["operator"], str):
        raise FilterError(f"an operator is a text, not {given['operator']!r}")
    path = metadata_path(given["field"])
    if given["field"] in _UNFILTERED:
        raise FilterError(
            f"documents cannot be filtered by {given['field']!r}; expected id, or a field of the metadata"
        )
    return path, given["operator"], given["value"]


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
