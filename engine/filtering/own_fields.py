"""The fields that every document has besides its metadata, as filters compare them: ``id`` and ``title``.

Format 1.0 has no column for either. Ids are looked up by their hash, or all read if an operator asks for an order.
A title is inside the compressed document: those documents are read that have all words of a title asked for, or
every document if an operator asks for an order or for existence.
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
_BATCH_IDS = 4096  # read at a time
_BATCH_DOCS = 256  # read at a time, compressed
_FEW_DOCS = 64  # up to which it is faster to read documents than to decode more postings

_MIRRORED = {"lt": operator.gt, "lte": operator.ge, "gt": operator.lt, "gte": operator.le}  # operand first


class OwnFields:
    """Finds documents of a segment by id and title.

    Args:
        segment: whose documents.
        terms: gives the terms of a text as they were made for the segment's postings.
    """

    def __init__(self, segment: OpenSegment, terms: Callable[[str], list[str]]) -> None:
        self._segment = segment
        self._terms = terms

    def flags(self, condition: Comparison | Existence) -> BoolArray:
        """(n_docs,) bool, the documents whose id or title, as the condition's path says, compares so.

        An empty title is none: it does not exist, and compares with nothing. Deleted documents may be among those
        found; they are not read.

        Raises:
            FormatError: the segment is damaged.
        """
        flags = np.zeros(self._segment.reader.n_docs, bool)
        texts = _texts(condition)
        if texts or isinstance(condition, Existence):
            find = self._with_id if condition.path == "id" else self._with_title
            flags[find(condition, texts)] = True
        return flags

    def _with_id(self, condition: Comparison | Existence, texts: list[str]) -> Int64Array:
        if isinstance(condition, Existence):
            return self._live()
        if condition.operator == "eq":
            ids = self._segment.reader.ids
            found = {ordinal for text in texts for ordinal in ids.ordinals_of(text)}
            return np.array(sorted(found), np.int64)
        return _holding(condition, self._ids(self._live()))

    def _with_title(self, condition: Comparison | Existence, texts: list[str]) -> Int64Array:
        docs = self._live()
        if isinstance(condition, Comparison) and condition.operator == "eq":
            candidates = [self._with_terms_of(text, docs) for text in texts]
            docs = np.unique(np.concatenate([np.empty(0, np.int64), *candidates]))
        return _holding(condition, self._titles(docs))

    def _with_terms_of(self, title: str, docs: Int64Array) -> Int64Array:
        """Those of the documents that have the terms of a title, so that no document of that title is missing."""
        postings = self._segment.reader.postings
        for term in sorted(set(self._terms(title)), key=postings.document_frequency):
            if len(docs) <= _FEW_DOCS:
                break
            has_term = np.zeros(self._segment.reader.n_docs, bool)
            has_term[postings.postings(term).docs] = True
            docs = docs[has_term[docs]]
        return docs

    def _ids(self, docs: Int64Array) -> Iterator[tuple[int, str]]:
        for some in _batches(docs, _BATCH_IDS):
            yield from zip(some.tolist(), self._segment.reader.ids.many(some), strict=True)

    def _titles(self, docs: Int64Array) -> Iterator[tuple[int, str]]:
        """The documents with a title that is not empty, and it."""
        for some in _batches(docs, _BATCH_DOCS):
            for doc, packed in zip(some.tolist(), self._segment.reader.documents.packed(some), strict=True):
                title = packed.unpack().title
                if title:
                    yield doc, title

    def _live(self) -> Int64Array:
        deleted = self._segment.deleted
        return np.arange(self._segment.reader.n_docs) if deleted is None else np.flatnonzero(~deleted)


def _texts(condition: Comparison | Existence) -> list[str]:
    """The operands that are texts: ids and titles compare with no others."""
    operands = condition.operands if isinstance(condition, Comparison) else ()
    return [operand.payload for operand in operands if isinstance(operand.payload, str)]


def _holding(condition: Comparison | Existence, values: Iterable[tuple[int, str]]) -> Int64Array:
    """The documents for whose text the condition holds."""
    holds = _test(condition)
    return np.array([doc for doc, text in values if holds(text)], np.int64)


def _test(condition: Comparison | Existence) -> Callable[[str], bool]:
    """Whether a condition holds for a text, as `Comparison.holds` says it, but much faster."""
    texts = _texts(condition)
    if isinstance(condition, Existence):
        return lambda _: True
    if condition.operator == "eq":
        return frozenset(texts).__contains__
    (operand,) = texts
    return partial(_MIRRORED[condition.operator], operand)


def _batches(docs: Int64Array, n: int) -> Iterator[Int64Array]:
    return (docs[low : low + n] for low in range(0, len(docs), n))
