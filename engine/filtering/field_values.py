"""The values at a path of the metadata in some documents of a segment, for sorting, grouping and boosts.

Of several values of a document one counts, the first in the order that is asked for: the least, or the largest.
None, a mapping and an empty list are not values. The paths ``id`` and ``title`` are the document's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Self

import numpy as np

from quarry.engine.filtering.filter import get_type_name
from quarry.engine.filtering.own_fields import OWN_FIELDS
from quarry.formats.arrays import Float64Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.metadata.column import Column
from quarry.formats.metadata.values import Kind, Scalar, iterate_values, to_scalar
from quarry.formats.snapshot import OpenSegment

__all__ = ["DocumentIds", "FieldValues", "ListedValues", "order_key", "read_values", "typed_key"]


def order_key(scalar: Scalar) -> int | float | str:
    """Return what orders a value among those of its type."""
    return scalar.payload if get_type_name(scalar.kind) in ("number", "text") else int(scalar.kind)


class FieldValues(ABC):
    """One value of each of some documents.

    Attributes:
        places: (n,) int64, of each document the place of its value in the order, the largest number for the first
            one; 0: it has none.
    """

    places: Int64Array

    @abstractmethod
    def scalar(self, place: int) -> Scalar:
        """Return the value at a place from 1."""

    def numbers(self, places: Int64Array) -> Float64Array:
        """Return the numbers at (n,) places from 1."""
        return np.array([self.scalar(place).payload for place in places.tolist()], np.float64)

    def take(self, chosen: Int64Array) -> Self:
        """Return the values of some of the documents, given their places among all."""
        taken = copy(self)
        taken.places = self.places[chosen]
        return taken


def read_values(segment: OpenSegment, path: str, docs: Int64Array, *, descending: bool = False) -> FieldValues:
    """Read the values of documents of a segment.

    The column of the path is read. Documents are read for titles, for a path without a column, and if one of them
    has a text of more than 128 bytes there.

    Args:
        segment: the segment.
        path: the path.
        docs: (n,) int64, ordinals of documents.
        descending: whether the largest value is first.

    Raises:
        FormatError: the segment is damaged.
    """
    column = None if path in OWN_FIELDS else segment.reader.metadata.column(path)
    if column is None or column.find_docs([column.dictionary.runs[Kind.LONG_TEXT]])[docs].any():
        return _read_values(segment, path, docs, descending)
    return _ColumnValues(column, docs, descending)


class _ColumnValues(FieldValues):
    """Values of a column: `_codes` has the code at each place from 1."""

    def __init__(self, column: Column, docs: Int64Array, descending: bool) -> None:
        ascending = column.dictionary.ordered_codes()
        self._dictionary = column.dictionary
        self._codes = ascending if descending else ascending[::-1]
        weights = np.zeros(column.dictionary.everything[1], np.int64)
        weights[self._codes] = np.arange(1, len(ascending) + 1)
        self.places = column.largest(weights)[docs]

    def scalar(self, place: int) -> Scalar:
        kind, value = self._dictionary.value(int(self._codes[place - 1]))
        return Scalar(kind, value.decode() if isinstance(value, bytes) else value)

    def numbers(self, places: Int64Array) -> Float64Array:
        return self._dictionary.numbers(self._codes[places - 1])


class ListedValues(FieldValues):
    """Values that are known.

    Args:
        places: see `FieldValues`.
        scalars: the values at the places from 1.
    """

    def __init__(self, places: Int64Array, scalars: Sequence[Scalar]) -> None:
        self.places = places
        self._scalars = scalars

    def scalar(self, place: int) -> Scalar:
        """Return the value at a place from 1."""
        return self._scalars[place - 1]


class DocumentIds(FieldValues):
    """The ids of documents of a segment, in no order.

    Args:
        segment: the segment.
        docs: (n,) int64, ordinals of documents.
    """

    def __init__(self, segment: OpenSegment, docs: Int64Array) -> None:
        self.places = np.arange(1, len(docs) + 1)
        self.n_documents = len(docs)
        self._docs = docs
        self._ids = segment.reader.ids

    def scalar(self, place: int) -> Scalar:
        """Return the id at a place from 1."""
        return to_scalar(self._ids.many(self._docs[place - 1 : place])[0])


def _read_values(segment: OpenSegment, path: str, docs: Int64Array, descending: bool) -> ListedValues:
    """Return values of documents that are read."""
    found: list[Scalar | None] = []
    for scalars in _read(segment, path, docs):
        stop_if_cancelled()
        values = [each for each in scalars if get_type_name(each.kind) is not None]
        found.append((max if descending else min)(values, key=typed_key) if values else None)
    used = sorted({each for each in found if each is not None}, key=typed_key, reverse=not descending)
    numbers: dict[Scalar | None, int] = {scalar: number for number, scalar in enumerate(used, 1)}
    return ListedValues(np.array([numbers.get(each, 0) for each in found], np.int64), used)


def _read(segment: OpenSegment, path: str, docs: Int64Array) -> Iterable[Iterable[Scalar]]:
    """Return the values of each document."""
    reader = segment.reader
    if path == "id":
        return ([to_scalar(doc_id)] for doc_id in reader.ids.many(docs))
    if path == "title":
        return ([to_scalar(each.title)] if each.title else [] for each in reader.documents.read(docs))
    if reader.metadata.column(path) is None and reader.metadata.beyond is None:
        return ([] for _ in docs)
    return (
        [scalar for name, scalar in iterate_values(stored.metadata) if name == path]
        for stored in reader.documents.read(docs)
    )


def typed_key(scalar: Scalar) -> tuple[str, int | float | str]:
    """Return what orders a value by its type, and among those of its type."""
    return str(get_type_name(scalar.kind)), order_key(scalar)
