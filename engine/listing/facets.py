"""Facets: how many documents have each value at a path of the metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from quarry.engine.arguments import checked_integer, shown
from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.filtering.own_fields import OWN_FIELDS
from quarry.engine.json_mapping import JsonRecord
from quarry.engine.lexical.bm25 import Bm25Query
from quarry.formats.arrays import BoolArray, Int64Array
from quarry.formats.errors import InvalidQuery, InvalidSetting
from quarry.formats.metadata.column import Column
from quarry.formats.metadata.values import MAX_TEXT_BYTES, Kind, Scalar, iterate_values, to_scalar, to_value
from quarry.formats.snapshot import OpenSegment

__all__ = ["FacetCounts", "FacetRequest", "FacetValue", "Facets", "count_values", "select_documents"]

_BATCH_DOCS = 256  # read at a time, if a column is not enough
_MAX_LIMIT = 1 << 20  # values of a field


@dataclass(frozen=True, slots=True)
class FacetValue(JsonRecord):
    """A value, and the number of documents that have it.

    Attributes:
        value: a text, number, bool or None, as in the metadata; a float without a fraction is an int.
        n_documents: number of counted documents that have it, each counted once.
    """

    value: str | int | float | bool | None
    n_documents: int


@dataclass(frozen=True, slots=True)
class Facets(JsonRecord):
    """The values at a path of the metadata, with the number of documents of each.

    Attributes:
        field: the path.
        values: by descending number of documents, then bools, numbers and texts, ascending; at most `limit`.
        n_values: number of distinct values, including those beyond the limit.
        n_documents: number of documents that were counted: those that pass the filter and have a term of the
            query, if these are given.
        n_missing: how many of them have no value at the path; a mapping and an empty list are not values. As a
            document may have several values, the numbers of `values` may add up to more than `n_documents`.
    """

    field: str
    values: tuple[FacetValue, ...]
    n_values: int
    n_documents: int
    n_missing: int


class FacetRequest(NamedTuple):
    """A request to count values.

    Attributes:
        field: path of the values.
        query: text of which documents must have a term; None: they need not.
        limit: largest number of values to return; None: no limit.
    """

    field: str
    query: str | None
    limit: int | None

    @classmethod
    def of(cls, field: object, query: object, limit: object) -> FacetRequest:
        """Return the request for arguments of a caller.

        Raises:
            InvalidSetting: the field is not a text, or the limit no integer from 0.
            InvalidQuery: the query is not a text.
        """
        if not isinstance(field, str):
            raise InvalidSetting("field is not a str", expected="a path in the metadata", actual=shown(field))
        if query is not None and not isinstance(query, str):
            raise InvalidQuery("the query is not a text", expected="a str", actual=type(query).__name__)
        most = None if limit is None else checked_integer(limit, "limit", 0, _MAX_LIMIT)
        return cls(field, query, most)

    def sum(self, parts: Iterable[FacetCounts]) -> Facets:
        """Return the facets of several segments."""
        counts: Counter[Scalar] = Counter()
        n_documents = n_missing = 0
        for part in parts:
            counts.update(part.counts)
            n_documents += part.n_documents
            n_missing += part.n_missing
        n_values = len(counts) if self.limit is None else self.limit
        order = nsmallest(n_values, counts, key=lambda scalar: (-counts[scalar], *_sort_key(scalar)))
        return Facets(
            field=self.field,
            values=tuple(FacetValue(to_value(scalar), counts[scalar]) for scalar in order),
            n_values=len(counts),
            n_documents=n_documents,
            n_missing=n_missing,
        )


class FacetCounts(NamedTuple):
    """The counts of one segment.

    Attributes:
        counts: number of documents by value.
        n_documents: number of documents that were counted.
        n_missing: how many of them have no value at the path.
    """

    counts: Counter[Scalar]
    n_documents: int
    n_missing: int


def select_documents(
    segments: Sequence[OpenSegment], allowed: AllowedDocs, query: Bm25Query | None
) -> list[BoolArray]:
    """Return for each segment the live documents that pass a filter and have a term of a query, (n_docs,) bool.

    Args:
        segments: the segments of one generation.
        allowed: for each segment the documents that pass the filter; None: all.
        query: the terms; None: documents need not have any.
    """
    flags = [segment.live if docs is None else docs.flags for segment, docs in zip(segments, allowed, strict=True)]
    if query is None:
        return flags
    for number, scored in enumerate(query.scores()):
        has_term = np.zeros(len(flags[number]), bool)
        has_term[segments[number].reader.passages.documents_of(scored[0])] = True
        flags[number] = flags[number] & has_term
    return flags


def count_values(segment: OpenSegment, field: str, docs: BoolArray) -> FacetCounts:
    """Count the values at a path in some documents of a segment.

    The column of the path is read. Documents are read only for texts of more than 128 bytes, for a path without a
    column, and for titles.

    Args:
        segment: the segment.
        field: the path; at ``id`` and ``title`` are the document's own id and its title, unless that is empty, and
            not what its metadata has there.
        docs: (n_docs,) bool, the documents, none of them deleted.

    Raises:
        FormatError: the segment is damaged.
    """
    column = segment.reader.metadata.column(field)
    if field in OWN_FIELDS:
        counted = _count_read(_iterate_own(segment, field, np.flatnonzero(docs)))
    elif column is not None:
        counted = _count_column(segment, field, column, docs)
    else:
        beyond = segment.reader.metadata.beyond
        there = np.empty(0, np.int64) if beyond is None else np.flatnonzero(beyond & docs)
        counted = _count_read(_iterate_metadata(segment, field, there))
    counts, n_with_value = counted
    n_documents = int(np.count_nonzero(docs))
    return FacetCounts(counts, n_documents, n_documents - n_with_value)


def _count_column(
    segment: OpenSegment, field: str, column: Column, docs: BoolArray
) -> tuple[Counter[Scalar], int]:
    """Return the number of documents with each value of a column, and how many have any."""
    dictionary, counts = column.dictionary, Counter[Scalar]()
    numbers = column.count(docs)
    for code in np.flatnonzero(numbers).tolist():
        kind, value = dictionary.value(code)
        if kind not in (Kind.CONTAINER, Kind.LONG_TEXT):
            payload = value.decode() if isinstance(value, bytes) else value
            counts[Scalar(kind, payload)] = int(numbers[code])
    long = column.find_docs([dictionary.runs[Kind.LONG_TEXT]]) & docs
    for values in _iterate_metadata(segment, field, np.flatnonzero(long)):
        counts.update(scalar for scalar in values if _is_long(scalar))
    runs = [run for kind, run in enumerate(dictionary.runs) if kind != Kind.CONTAINER]
    return counts, int(np.count_nonzero(column.find_docs(runs) & docs))


def _count_read(documents: Iterable[set[Scalar]]) -> tuple[Counter[Scalar], int]:
    """Return the number of documents with each value, and how many have any."""
    counts, n_with_value = Counter[Scalar](), 0
    for values in documents:
        counts.update(values)
        n_with_value += bool(values)
    return counts, n_with_value


def _iterate_own(segment: OpenSegment, field: str, docs: Int64Array) -> Iterator[set[Scalar]]:
    """Yield the document's own value at ``id`` or ``title`` of each document; an empty title is none."""
    if field == "id":
        return ({Scalar(Kind.TEXT, doc_id)} for doc_id in segment.reader.ids.read(docs))
    titles = (stored.title for stored in segment.reader.documents.read(docs))
    return ({to_scalar(title)} if title else set() for title in titles)


def _iterate_metadata(segment: OpenSegment, field: str, docs: Int64Array) -> Iterator[set[Scalar]]:
    """Return the values at a path in the metadata of each document."""
    return (_values_at(stored.metadata, field) for stored in segment.reader.documents.read(docs))


def _values_at(metadata: Mapping[str, object], field: str) -> set[Scalar]:
    scalars = (scalar for path, scalar in iterate_values(metadata) if path == field)
    return {scalar for scalar in scalars if scalar.kind is not Kind.CONTAINER}


def _is_long(scalar: Scalar) -> bool:
    text = scalar.payload
    return isinstance(text, str) and len(text.encode()) > MAX_TEXT_BYTES


def _sort_key(scalar: Scalar) -> tuple[Kind, int | float | str]:
    """Return a key that sorts by type, and numbers of both kinds by their value."""
    kind = Kind.INTEGER if scalar.kind is Kind.FLOAT else scalar.kind
    return kind, scalar.payload
