"""Filters on the fields that every document has besides its metadata: ``id`` and ``title``.

Format 1.0 has no columns for them. Ids are looked up by their hash; other comparisons read all ids.
Titles are inside the compressed documents: for equality the documents that contain all terms of the title are
read, for other operators all documents.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from quarry.engine.filtering.filter import Comparison, Existence
from quarry.formats.arrays import BoolArray, Int64Array
from quarry.formats.snapshot import OpenSegment

__all__ = ["OWN_FIELDS", "OwnFields"]

OWN_FIELDS = frozenset({"id", "title"})
_FEW_DOCS = 64  # reading so many documents is faster than decoding more postings

_SWAPPED: dict[str, Callable[[str, str], bool]] = {  # operand first
    "lt": operator.gt,
    "lte": operator.ge,
    "gt": operator.lt,
    "gte": operator.le,
    "contains": lambda operand, text: operand in text,
    "prefix": lambda operand, text: text.startswith(operand),
}


class OwnFields:
    """Finds documents of a segment by id and title.

    Args:
        segment: the segment.
        terms: the analyzer of the segment's postings: returns the terms of a text.
    """

    def __init__(self, segment: OpenSegment, terms: Callable[[str], list[str]]) -> None:
        self._segment = segment
        self._terms = terms

    def flags(self, condition: Comparison | Existence) -> BoolArray:
        """Return the documents whose id or title satisfies the condition, (n_docs,) bool.

        An empty title counts as missing. Deleted documents may be among the result; they are not read.

        Raises:
            FormatError: the segment is damaged.
        """
        flags = np.zeros(self._segment.reader.n_docs, bool)
        texts = _get_texts(condition)
        if texts or isinstance(condition, Existence):
            find = self._find_by_id if condition.path == "id" else self._find_by_title
            flags[find(condition, texts)] = True
        return flags

    def has_id(self, doc_id: str) -> BoolArray:
        """Return the documents with an id, (n_docs,) bool, deleted ones included."""
        flags = np.zeros(self._segment.reader.n_docs, bool)
        flags[self._segment.reader.ids.ordinals_of(doc_id)] = True
        return flags

    def _find_by_id(self, condition: Comparison | Existence, texts: list[str]) -> Int64Array:
        if isinstance(condition, Existence):
            return self._find_live()
        if condition.operator == "eq":
            ids = self._segment.reader.ids
            found = {ordinal for text in texts for ordinal in ids.ordinals_of(text)}
            return np.array(sorted(found), np.int64)
        return _select(condition, self._iterate_ids(self._find_live()))

    def _find_by_title(self, condition: Comparison | Existence, texts: list[str]) -> Int64Array:
        docs = self._find_live()
        if isinstance(condition, Comparison) and condition.operator == "eq":
            candidates = [self._filter_by_terms(text, docs) for text in texts]
            docs = np.unique(np.concatenate([np.empty(0, np.int64), *candidates]))
        return _select(condition, self._iterate_titles(docs))

    def _filter_by_terms(self, title: str, docs: Int64Array) -> Int64Array:
        """Return those of the documents that contain the terms of a title; stops when few are left."""
        postings = self._segment.reader.postings
        for term in sorted(set(self._terms(title)), key=postings.document_frequency):
            if len(docs) <= _FEW_DOCS:
                break
            has_term = np.zeros(self._segment.reader.n_docs, bool)
            has_term[postings.postings(term).docs] = True
            docs = docs[has_term[docs]]
        return docs

    def _iterate_ids(self, docs: Int64Array) -> Iterator[tuple[int, str]]:
        return zip(docs, self._segment.reader.ids.read(docs), strict=True)

    def _iterate_titles(self, docs: Int64Array) -> Iterator[tuple[int, str]]:
        """Return the documents whose title is not empty, with it."""
        stored = self._segment.reader.documents.read(docs)
        return ((doc, each.title) for doc, each in zip(docs, stored, strict=True) if each.title)

    def _find_live(self) -> Int64Array:
        return np.flatnonzero(self._segment.live)


def _get_texts(condition: Comparison | Existence) -> list[str]:
    """Return the operands that are texts; other operands equal no id and no title."""
    operands = condition.operands if isinstance(condition, Comparison) else ()
    return [operand.payload for operand in operands if isinstance(operand.payload, str)]


def _select(condition: Comparison | Existence, values: Iterable[tuple[int, str]]) -> Int64Array:
    """Return the documents whose text satisfies the condition."""
    holds = _make_test(condition)
    return np.array([doc for doc, text in values if holds(text)], np.int64)


def _make_test(condition: Comparison | Existence) -> Callable[[str], bool]:
    """Return a function that tests a text as `Comparison.holds` does, but much faster."""
    texts = _get_texts(condition)
    if isinstance(condition, Existence):
        return lambda _: True
    if condition.operator == "eq":
        return frozenset(texts).__contains__
    (operand,) = texts
    return partial(_SWAPPED[condition.operator], operand)
