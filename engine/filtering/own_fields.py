"""Filters on the fields that every document has besides its metadata: ``id``, ``title`` and ``text``.

Format 1.0 has no columns for them. Ids are looked up by their hash; other comparisons need all ids. Titles are
inside the compressed documents: equality needs the documents that contain all terms of the title, other operators
need all documents, as all do for texts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from quarry.engine.analysis.auto_analyzer import ALTERNATIVE_SIGN
from quarry.engine.filtering.bounds import Bounds
from quarry.engine.filtering.filter import Comparison, Existence
from quarry.formats.arrays import BoolArray, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.snapshot import OpenSegment

__all__ = ["FILTERED_FIELDS", "OWN_FIELDS", "OwnFields"]

OWN_FIELDS = frozenset({"id", "title"})
FILTERED_FIELDS = OWN_FIELDS | {"text"}
_FEW_DOCS = 64  # reading so many documents is faster than decoding more postings


class OwnFields:
    """Finds documents of a segment by id and title.

    Args:
        segment: the segment.
        terms: returns terms that all documents with a text have, see `Analyzer.title_terms`.
    """

    def __init__(self, segment: OpenSegment, terms: Callable[[str], list[str]]) -> None:
        self._segment = segment
        self._terms = terms

    def bound(self, condition: Comparison | Existence) -> Bounds:
        """Return the documents whose id, title or text satisfies the condition, as far as that is known unread.

        An empty one counts as missing. Deleted documents may be among the result.

        Raises:
            FormatError: the segment is damaged.
        """
        everything = np.ones(self._segment.reader.n_docs, bool)
        if isinstance(condition, Existence):
            return Bounds.of(everything) if condition.path == "id" else Bounds(~everything, everything)
        texts = [operand.payload for operand in condition.operands if isinstance(operand.payload, str)]
        if not texts or condition.operator != "eq" or condition.path == "text":
            return Bounds(~everything, everything) if texts else Bounds.of(~everything)
        find = self._segment.reader.ids.ordinals_of if condition.path == "id" else self._find_by_terms
        docs = ~everything
        for text in texts:
            stop_if_cancelled()
            docs[find(text)] = True
        return Bounds.of(docs) if condition.path == "id" else Bounds(~everything, docs)

    def has_id(self, doc_id: str) -> BoolArray:
        """Return the documents with an id, (n_docs,) bool, deleted ones included."""
        flags = np.zeros(self._segment.reader.n_docs, bool)
        flags[self._segment.reader.ids.ordinals_of(doc_id)] = True
        return flags

    @cached_property
    def _live(self) -> Int64Array:
        return np.flatnonzero(self._segment.live)

    def _find_by_terms(self, title: str) -> Int64Array:
        """Return documents with all terms of a title, perhaps with others; it stops reading when few are left."""
        reader, docs = self._segment.reader, self._live
        postings = reader.postings
        for name in sorted(set(self._terms(title)), key=postings.document_frequency):
            if len(docs) <= _FEW_DOCS:
                break
            has_term = np.zeros(self._segment.reader.n_docs, bool)
            for term in name.split(ALTERNATIVE_SIGN):
                has_term[reader.passages.documents_of(postings.postings(term).docs)] = True
            docs = docs[has_term[docs]]
        return docs
