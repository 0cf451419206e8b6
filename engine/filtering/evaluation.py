"""Which live documents of each segment a condition holds for.

Deleted documents are left out everywhere, also where the types of values are compared: neither an answer nor an
error shows how documents are distributed over segments, or what was deleted in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.filtering.filter import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Existence,
    Negation,
    comparisons,
    type_name,
)
from quarry.engine.filtering.own_fields import OWN_FIELDS, OwnFields
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata.column import Column
from quarry.formats.metadata.dictionary import Codes
from quarry.formats.metadata.values import Kind, Scalar, iterate_values
from quarry.formats.snapshot import OpenSegment

__all__ = ["Evaluation", "Kinds", "evaluated", "unknown_paths"]

_BATCH_DOCS = 256  # read at a time where columns do not tell

Flags = npt.NDArray[np.bool_]
Kinds = dict[str, frozenset[Kind]]


class Evaluation(NamedTuple):
    """What a condition holds for.

    Attributes:
        flags: for each segment (n_docs,) bool, the live documents that pass.
        kinds: for each path whose values are compared the kinds of values that live documents have there.
    """

    flags: list[Flags]
    kinds: Kinds


def evaluated(
    condition: Condition, segments: Sequence[OpenSegment], terms: Callable[[str], list[str]]
) -> Evaluation:
    """Find the live documents that pass.

    Columns answer, except for texts too long and paths too many for them, and for titles: those are read.

    Args:
        condition: what must hold.
        segments: of a snapshot; each of them has a live document.
        terms: gives the terms of a text as they were made for the postings.

    Raises:
        FormatError: a segment is damaged.
    """
    paths = dict.fromkeys(comparison.path for comparison in comparisons(condition))
    kinds: Kinds = {path: frozenset({Kind.TEXT}) if path in OWN_FIELDS else frozenset() for path in paths}
    return Evaluation([_SegmentEvaluation(each, terms, kinds).live_flags(condition) for each in segments], kinds)


def unknown_paths(condition: Condition, kinds: Kinds) -> list[str]:
    """Return the paths whose values are compared although no live document has a value there, in their order.

    Args:
        condition: what was evaluated.
        kinds: of the values that live documents of the whole collection have, see `Evaluation`.

    Raises:
        InvalidFilter: an operand is of another type than all values at its path.
    """
    for comparison in comparisons(condition):
        _check_types(comparison, kinds[comparison.path])
    return [path for path, found in kinds.items() if not found]


class _SegmentEvaluation:
    """Evaluates conditions on one segment; adds to `kinds` those of the values at the paths that are its keys."""

    def __init__(self, segment: OpenSegment, terms: Callable[[str], list[str]], kinds: Kinds) -> None:
        self._reader = segment.reader
        self._live = None if segment.deleted is None else ~segment.deleted
        self._own = OwnFields(segment, terms)
        self._kinds = kinds

    def live_flags(self, condition: Condition) -> Flags:
        """(n_docs,) bool, the live documents that pass, an array of its own."""
        found = self._flags(condition)
        return found if self._live is None else found & self._live

    def _flags(self, condition: Condition) -> Flags:
        """The documents that pass; some of the deleted ones may be among them."""
        if isinstance(condition, Negation):
            return ~self._flags(condition.part)
        if isinstance(condition, AllOf):
            return reduce(np.logical_and, map(self._flags, condition.parts), np.ones(self._reader.n_docs, bool))
        if isinstance(condition, AnyOf):
            return reduce(np.logical_or, map(self._flags, condition.parts), np.zeros(self._reader.n_docs, bool))
        found = self._in_metadata(condition)
        if condition.path in OWN_FIELDS:
            found |= self._own.flags(condition)
        return found

    def _in_metadata(self, condition: Comparison | Existence) -> Flags:
        column = self._reader.metadata.column(condition.path)
        if column is None:
            beyond = self._reader.metadata.beyond
            return np.zeros(self._reader.n_docs, bool) if beyond is None else self._read(beyond, condition)
        if condition.path in self._kinds:
            self._note_kinds(condition.path, column)
        codes = _codes(column, condition)
        found = column.find_docs(codes.sure)
        if codes.doubtful:
            found |= self._read(column.find_docs(codes.doubtful) & ~found, condition)
        return found

    def _note_kinds(self, path: str, column: Column) -> None:
        """Add the kinds of values that live documents have; those known from other segments are not looked for."""
        new = column.kinds - self._kinds[path]
        if self._live is not None and new:
            new = column.kinds_of(self._live, new)
        self._kinds[path] |= new

    def _read(self, flags: Flags, condition: Comparison | Existence) -> Flags:
        """Those of some documents that are live and pass, by their metadata as it is stored."""
        found = np.zeros(self._reader.n_docs, bool)
        docs = np.flatnonzero(flags if self._live is None else flags & self._live)
        for doc, values in self._stored_values(docs, condition.path):
            if condition.path in self._kinds:
                self._kinds[condition.path] |= {value.kind for value in values}
            found[doc] = condition.holds(values)
        return found

    def _stored_values(self, docs: npt.NDArray[np.int64], path: str) -> Iterator[tuple[int, list[Scalar]]]:
        for low in range(0, len(docs), _BATCH_DOCS):
            some = docs[low : low + _BATCH_DOCS]
            for doc, packed in zip(some.tolist(), self._reader.documents.packed(some), strict=True):
                yield doc, [value for where, value in iterate_values(packed.unpack().metadata) if where == path]


def _codes(column: Column, condition: Comparison | Existence) -> Codes:
    if isinstance(condition, Existence):
        return Codes((column.dictionary.everything,))
    each = [column.dictionary.compare(condition.operator, operand) for operand in condition.operands]
    return Codes(
        tuple(run for codes in each for run in codes.sure), tuple(run for codes in each for run in codes.doubtful)
    )


def _check_types(comparison: Comparison, kinds: frozenset[Kind]) -> None:
    there = {type_name(kind) for kind in kinds} - {None}
    asked = {type_name(operand.kind) for operand in comparison.operands}
    if there and asked and None not in asked and not asked & there:
        raise InvalidFilter(
            f"filter, field {comparison.path!r}: compared with what it never holds",
            expected=" or ".join(sorted(map(str, there))),
            actual=f"{' or '.join(sorted(map(str, asked)))} {_shown(comparison.operands[0])}",
        )


def _shown(operand: Scalar) -> str:
    return str(operand.kind is Kind.TRUE) if type_name(operand.kind) == "bool" else f"{operand.payload!r:.60}"
