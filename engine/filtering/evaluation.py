"""Which documents of a segment a condition holds for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce

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
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata.column import Column
from quarry.formats.metadata.dictionary import Codes
from quarry.formats.metadata.values import Kind, Scalar, iterate_values
from quarry.formats.segment import SegmentReader

__all__ = ["evaluated"]

_BATCH_DOCS = 256  # read at a time where columns do not tell

Flags = npt.NDArray[np.bool_]


def evaluated(condition: Condition, segments: Sequence[SegmentReader]) -> list[Flags]:
    """For each segment (n_docs,) bool: the documents that pass, deleted ones among them.

    Columns answer, but for texts too long and paths too many for them: there documents are read.

    Raises:
        InvalidFilter: an operand is of another type than all values at its path.
        FormatError: a segment is damaged.
    """
    kinds: dict[str, set[Kind]] = defaultdict(set)
    found = [_SegmentEvaluation(segment, kinds).flags(condition) for segment in segments]
    for comparison in comparisons(condition):
        _check_types(comparison, kinds[comparison.path])
    return found


class _SegmentEvaluation:
    """Evaluates conditions on one segment, and notes which kinds of values are at their paths."""

    def __init__(self, segment: SegmentReader, kinds: dict[str, set[Kind]]) -> None:
        self._segment = segment
        self._kinds = kinds

    def flags(self, condition: Condition) -> Flags:
        """(n_docs,) bool, an array of its own."""
        if isinstance(condition, Negation):
            return ~self.flags(condition.part)
        if isinstance(condition, AllOf):
            return reduce(np.logical_and, map(self.flags, condition.parts), np.ones(self._segment.n_docs, bool))
        if isinstance(condition, AnyOf):
            return reduce(np.logical_or, map(self.flags, condition.parts), np.zeros(self._segment.n_docs, bool))
        return self._at_path(condition)

    def _at_path(self, condition: Comparison | Existence) -> Flags:
        column = self._segment.metadata.column(condition.path)
        if column is None:
            return self._read(self._segment.metadata.beyond, condition)
        self._kinds[condition.path] |= column.kinds
        codes = _codes(column, condition)
        found = column.find_docs(codes.sure)
        if codes.doubtful:
            found |= self._read(column.find_docs(codes.doubtful) & ~found, condition)
        return found

    def _read(self, flags: Flags | None, condition: Comparison | Existence) -> Flags:
        """Those of some documents that pass, by their metadata as it is stored."""
        found = np.zeros(self._segment.n_docs, bool)
        for doc, values in self._stored_values(np.flatnonzero(found if flags is None else flags), condition.path):
            self._kinds[condition.path] |= {value.kind for value in values}
            found[doc] = condition.holds(values)
        return found

    def _stored_values(self, docs: npt.NDArray[np.int64], path: str) -> Iterator[tuple[int, list[Scalar]]]:
        for low in range(0, len(docs), _BATCH_DOCS):
            some = docs[low : low + _BATCH_DOCS]
            for doc, packed in zip(some.tolist(), self._segment.documents.packed(some), strict=True):
                yield doc, [value for where, value in iterate_values(packed.unpack().metadata) if where == path]


def _codes(column: Column, condition: Comparison | Existence) -> Codes:
    if isinstance(condition, Existence):
        return Codes((column.dictionary.everything,))
    each = [column.dictionary.compare(condition.operator, operand) for operand in condition.operands]
    return Codes(
        tuple(run for codes in each for run in codes.sure), tuple(run for codes in each for run in codes.doubtful)
    )


def _check_types(comparison: Comparison, kinds: set[Kind]) -> None:
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
