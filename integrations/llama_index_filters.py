"""Metadata filters of LlamaIndex in the form that `quarry.engine.filtering.filter` describes."""

from __future__ import annotations

from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from quarry.engine.arguments import shown
from quarry.formats.errors import InvalidFilter

__all__ = ["checked_filters", "is_without_conditions", "translate_filters"]

Filter = dict[str, object]

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$in",  # a comparison holds for a list if it holds for one of its members
    FilterOperator.TEXT_MATCH: "$contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$icontains",
    FilterOperator.CONTAINS: "$eq",
}
_WITH_LISTS = {FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL}


def checked_filters(given: object) -> MetadataFilters | None:
    """Return filters; None: there are none.

    Raises:
        InvalidFilter: they are something else.
    """
    if given is not None and not isinstance(given, MetadataFilters):
        raise InvalidFilter(
            "the filters are not those of LlamaIndex", expected="MetadataFilters", actual=shown(given)
        )
    return given


def is_without_conditions(filters: MetadataFilters) -> bool:
    """Return whether there is no condition in filters, or in those nested in them: every document passes."""
    return all(isinstance(each, MetadataFilters) and is_without_conditions(each) for each in filters.filters)


def translate_filters(filters: MetadataFilters) -> Filter:
    """Translate filters, which may be nested; those without a condition are left out.

    NOT holds if none of the filters holds. EQ and CONTAINS, IN and ANY are the same, because the values of a list
    are values of its field. IS_EMPTY expects that empty lists were stored as None.

    Raises:
        InvalidFilter: an operator has no counterpart, or a value is not of the kind that the operator needs.
    """
    parts = [
        translate_filters(each) if isinstance(each, MetadataFilters) else _comparison(each)
        for each in filters.filters
        if not (isinstance(each, MetadataFilters) and is_without_conditions(each))
    ]
    if not parts:
        return {}
    if filters.condition == FilterCondition.OR:
        return {"$or": parts}
    if filters.condition == FilterCondition.NOT:
        return {"$not": {"$or": parts}}
    return {"$and": parts}


def _comparison(given: MetadataFilter) -> Filter:
    key, operator, value = given.key, given.operator, given.value
    if operator == FilterOperator.IS_EMPTY:
        return {"$or": [{key: {"$exists": False}}, {key: {"$eq": None}}]}
    if (operator in _WITH_LISTS) != isinstance(value, list):
        expected = "a list" if operator in _WITH_LISTS else "one value"
        raise _error(given, f"{expected} for the operator {operator.value!r}", shown(value))
    if operator == FilterOperator.ALL:
        assert isinstance(value, list)
        return {"$and": [{key: {"$eq": each}} for each in value]} if value else {key: {"$exists": True}}
    if operator not in _OPERATORS:
        supported = (each.value for each in (*_OPERATORS, FilterOperator.ALL, FilterOperator.IS_EMPTY))
        raise _error(given, ", ".join(supported), operator.value)
    return {key: {_OPERATORS[operator]: value}}


def _error(given: MetadataFilter, expected: str, actual: str) -> InvalidFilter:
    return InvalidFilter(f"filter, field {given.key!r}: cannot be translated", expected=expected, actual=actual)
