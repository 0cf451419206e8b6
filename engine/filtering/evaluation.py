"""Evaluates a condition to the live documents of each segment that satisfy it.

Deleted documents are ignored, also when the types of values are compared. So neither results nor errors depend on
how documents are distributed over segments, or on what was deleted.

Postings have no positions. The documents that contain all terms of a phrase are found by postings, and the texts
of all of them are read and compared with the phrase. So a phrase of frequent words takes long in a large
collection when it is first searched for; results are cached like those of filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import NamedTuple, TypeAlias

import numpy as np

from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.filtering.bounds import Bounds
from quarry.engine.filtering.filter import (
    AllOf,
    AnyOf,
    Between,
    Comparison,
    Condition,
    Existence,
    HasId,
    HasMember,
    HasPhrase,
    ListSize,
    Negation,
    get_type_name,
    iterate_comparisons,
    iterate_leaves,
    text_test,
)
from quarry.engine.filtering.one_document import DocumentValues, Kinds, make_test
from quarry.engine.filtering.own_fields import FILTERED_FIELDS, OwnFields
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.documents.passages import PassageTable
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata.column import Column
from quarry.formats.metadata.dictionary import Codes
from quarry.formats.metadata.values import Kind, Scalar
from quarry.formats.segment import SegmentReader
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "Allowed",
    "AllowedDocs",
    "Evaluation",
    "Kinds",
    "evaluate",
    "find_unknown_paths",
    "join_kinds",
]


class Allowed:
    """Some of the documents of a segment, none of them deleted.

    Attributes:
        flags: (n_docs,) bool, not to be written to.
        n: number of documents.
        n_documents: likewise; of passages, the number of documents that they belong to.

    Args:
        flags: see above.
        table: the passages of the segment; None: every document is one.
    """

    def __init__(self, flags: BoolArray, table: PassageTable | None = None) -> None:
        self.flags = flags
        self.n = self.n_documents = int(np.count_nonzero(flags))
        self._table = table

    @cached_property
    def passages(self) -> Allowed:
        """The passages of the documents, by their ordinals."""
        if self._table is None or not self._table.is_divided:
            return self
        passages = Allowed(self._table.flags(self.flags))
        passages.n_documents = self.n
        return passages

    @cached_property
    def docs(self) -> Int64Array:
        """The ordinals of the documents, (n,) int64, ascending."""
        return np.flatnonzero(self.flags)

    @cached_property
    def floor(self) -> Float32Array:
        """Initial scores, (n_docs,) float32, not to be written to: 0, -inf for all other documents."""
        return np.where(self.flags, np.float32(0), np.float32(-np.inf))


AllowedDocs: TypeAlias = Sequence[Allowed | None]
"""For each segment the documents that may be found; None: all live ones."""


class Evaluation(NamedTuple):
    """The result of a condition.

    Attributes:
        flags: for each segment (n_docs,) bool, the live documents that satisfy it.
        kinds: for each path whose values are compared the kinds of values that live documents have there.
    """

    flags: list[BoolArray]
    kinds: Kinds


def evaluate(
    condition: Condition, segments: Sequence[OpenSegment], terms: Callable[[str], list[str]]
) -> Evaluation:
    """Find the live documents that satisfy a condition.

    Columns are searched. Documents are read only for long texts, lists, paths without a column, titles, texts and
    phrases, each at most once, and only those that the rest of the condition does not decide.

    Args:
        condition: the condition.
        segments: the segments of a snapshot; each has a live document.
        terms: returns terms that all documents with a text have, see `Analyzer.title_terms`.

    Raises:
        FormatError: a segment is damaged.
    """
    leaves = (leaf for leaf in iterate_leaves(condition) if isinstance(leaf, Comparison | ListSize))
    paths = dict.fromkeys(leaf.path for leaf in leaves)
    kinds: Kinds = {path: frozenset({Kind.TEXT}) if path in FILTERED_FIELDS else frozenset() for path in paths}
    return Evaluation([_SegmentEvaluation(each, terms, kinds).evaluate(condition) for each in segments], kinds)


def join_kinds(parts: Iterable[Kinds | None]) -> Kinds | None:
    """Return the kinds of values in all parts of a collection; None if no part has a document.

    Args:
        parts: the parts of one condition; None: the part has no document.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return {path: frozenset().union(*(part[path] for part in known)) for path in known[0]}


def find_unknown_paths(condition: Condition, kinds: Kinds) -> list[str]:
    """Return the compared paths at which no live document has a value, in the order of the condition.

    Args:
        condition: the evaluated condition.
        kinds: the kinds of the values that live documents of the whole collection have, see `Evaluation`.

    Raises:
        InvalidFilter: an operand has another type than all values at its path.
    """
    for comparison in iterate_comparisons(condition):
        _check_types(comparison, kinds[comparison.path])
    return [path for path, present in kinds.items() if not present]


class _SegmentEvaluation:
    """Evaluates conditions on one segment; adds to `kinds` the kinds of values at each of its paths."""

    def __init__(self, segment: OpenSegment, terms: Callable[[str], list[str]], kinds: Kinds) -> None:
        self._own = OwnFields(segment, terms)
        self._reader = segment.reader
        self._live = None if segment.deleted is None else ~segment.deleted
        self._kinds = kinds
        self._everything = np.ones(self._reader.n_docs, bool)
        self._nothing = ~self._everything
        self._needs_kinds = self._nothing  # documents with values at compared paths that have no columns

    def evaluate(self, condition: Condition) -> BoolArray:
        """Return the live documents that satisfy the condition, (n_docs,) bool."""
        bounds = self._bound(condition)
        satisfied, unknown = bounds.certain.copy(), bounds.possible & ~bounds.certain | self._needs_kinds
        if self._live is not None:
            satisfied &= self._live
            unknown &= self._live
        docs = np.flatnonzero(unknown)
        if len(docs):
            holds, has_kinds = make_test(condition), self._needs_kinds.any()
            for doc, document in zip(docs.tolist(), self._read(condition, docs), strict=True):
                stop_if_cancelled()
                if has_kinds and self._needs_kinds[doc]:
                    document.add_kinds(self._kinds)
                satisfied[doc] = holds(document)
        return satisfied

    def _read(self, condition: Condition, docs: Int64Array) -> Iterator[DocumentValues]:
        """Return documents, without the parts of their content that the condition is not about."""
        ids, metadata = self._reader.ids.read(docs), self._reader.metadata
        paths = {getattr(leaf, "path", "title") for leaf in iterate_leaves(condition)}
        paths |= {path for leaf in iterate_leaves(condition) for path in getattr(leaf, "searchable", ())}
        is_own = metadata.beyond is None and all(metadata.column(each) is None for each in FILTERED_FIELDS)
        if is_own and paths <= {"id"}:
            return (DocumentValues(doc_id, "", {}, "") for doc_id in ids)
        stored = zip(ids, self._reader.documents.read(docs), strict=True)
        if is_own and paths <= FILTERED_FIELDS:
            return (DocumentValues(doc_id, each.title, {}, each.text) for doc_id, each in stored)
        return (DocumentValues(doc_id, each.title, each.metadata, each.text) for doc_id, each in stored)

    def _bound(self, condition: Condition, *, of_member: bool = False) -> Bounds:
        """Return which documents satisfy the condition, as far as that is known without reading them.

        Args:
            condition: the condition.
            of_member: whether one member of a list has to satisfy it, and other members may contradict it.
        """
        stop_if_cancelled()
        if isinstance(condition, Negation):
            bounds = ~self._bound(condition.part, of_member=of_member)
            return Bounds(self._nothing, self._everything) if of_member else bounds
        if isinstance(condition, AllOf | AnyOf):
            join, start = (
                (Bounds.__and__, self._everything)
                if isinstance(condition, AllOf)
                else (Bounds.__or__, self._nothing)
            )
            each = (self._bound(part, of_member=of_member) for part in condition.parts)
            return reduce(join, each, Bounds.of(start))
        if isinstance(condition, HasMember | ListSize):
            return self._bound_list(condition)
        if isinstance(condition, HasId):
            return Bounds.of(self._own.has_id(condition.doc_id))
        if isinstance(condition, HasPhrase):
            return self._bound_phrase(condition)
        certain = self._bound_metadata(condition)
        own = condition.low if isinstance(condition, Between) else condition  # an order is known only when read
        return certain | self._own.bound(own) if condition.path in FILTERED_FIELDS else certain

    def _bound_list(self, condition: HasMember | ListSize) -> Bounds:
        there = self._bound_metadata(Existence(condition.path))
        if isinstance(condition, HasMember):
            there &= self._bound(condition.part, of_member=True)
        elif not condition.n_members:  # an empty list has the value of a container
            there = self._bound_metadata(Comparison(condition.path, "eq", (Scalar(Kind.CONTAINER),)))
        return Bounds(self._nothing, there.possible)

    def _bound_phrase(self, condition: HasPhrase) -> Bounds:
        phrase = open_phrase(condition.text, condition.language, condition.rules)
        if not phrase.alternatives:  # of stop words alone, for example
            return Bounds.of(self._everything)
        docs = np.logical_or.reduce([_find_all(terms, self._reader) for terms in phrase.alternatives])
        return Bounds.of(docs) if phrase.is_term else Bounds(self._nothing, docs)

    def _bound_metadata(self, condition: Comparison | Between | Existence) -> Bounds:
        column = self._reader.metadata.column(condition.path)
        if column is None:
            beyond = self._reader.metadata.beyond
            if beyond is None:
                return Bounds.of(self._nothing)
            if condition.path in self._kinds:
                self._needs_kinds = beyond
            return Bounds(self._nothing, beyond)
        if condition.path in self._kinds:
            self._add_kinds(condition.path, column)
        codes = _find_codes(column, condition)
        certain = column.find_docs(codes.certain)
        return (
            Bounds(certain, certain | column.find_docs(codes.possible)) if codes.possible else Bounds.of(certain)
        )

    def _add_kinds(self, path: str, column: Column) -> None:
        """Add the kinds of values that live documents have; kinds known from other segments are not searched."""
        new = column.kinds - self._kinds[path]
        if self._live is not None and new:
            new = column.kinds_of(self._live, new)
        self._kinds[path] |= new


def _find_codes(column: Column, condition: Comparison | Between | Existence) -> Codes:
    if isinstance(condition, Existence):
        return Codes((column.dictionary.everything,))
    if isinstance(condition, Between):
        return _find_codes(column, condition.low) & _find_codes(column, condition.high)
    if (test := text_test(condition)) is not None:
        return column.dictionary.find_texts(test)
    each = [column.dictionary.compare(condition.operator, operand) for operand in condition.operands]
    return Codes(
        tuple(run for codes in each for run in codes.certain),
        tuple(run for codes in each for run in codes.possible),
    )


def _check_types(comparison: Comparison, kinds: frozenset[Kind]) -> None:
    stored = {get_type_name(kind) for kind in kinds} - {None}
    compared = {get_type_name(operand.kind) for operand in comparison.operands}
    if stored and compared and None not in compared and not compared & stored:
        raise InvalidFilter(
            f"filter, field {comparison.path!r}: compared with a type that none of its values has",
            expected=" or ".join(sorted(map(str, stored))),
            actual=f"{' or '.join(sorted(map(str, compared)))} {_format_operand(comparison.operands[0])}",
        )


def _format_operand(operand: Scalar) -> str:
    return str(operand.kind is Kind.TRUE) if get_type_name(operand.kind) == "bool" else f"{operand.payload!r:.60}"


def _find_all(terms: frozenset[str], reader: SegmentReader) -> BoolArray:
    """Return the documents that have all terms, (n_docs,) bool, deleted ones included.

    Raises:
        FormatError: the segment is damaged.
    """
    has_all = np.ones(reader.n_docs, bool)
    for term in sorted(terms, key=reader.postings.document_frequency):
        has_term = np.zeros(reader.n_docs, bool)
        has_term[reader.passages.documents_of(reader.postings.postings(term).docs)] = True
        has_all &= has_term
        if not has_all.any():
            break
    return has_all
