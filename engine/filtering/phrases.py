"""Phrases in the documents of a segment.

Postings have no positions. The documents that contain all terms of a phrase are found by postings, and the texts
of all of them are read and compared with the phrase. So a phrase of frequent words takes long in a large
collection when it is first searched for; results are cached like those of filters.
"""

from __future__ import annotations

import numpy as np

from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.filtering.filter import HasPhrase
from quarry.formats.arrays import BoolArray
from quarry.formats.segment import SegmentReader

__all__ = ["find_candidates"]


def find_candidates(condition: HasPhrase, reader: SegmentReader) -> BoolArray | None:
    """Return the documents that may have a phrase, (n_docs,) bool; deleted ones may be among them.

    None: all documents have it, as one without terms, of stop words alone for example.

    Raises:
        FormatError: the segment is damaged.
    """
    phrase = open_phrase(condition.text, condition.language, condition.rules)
    each = [_find_all(terms, reader) for terms in phrase.alternatives]
    return np.logical_or.reduce(each) if each else None


def _find_all(terms: frozenset[str], reader: SegmentReader) -> BoolArray:
    """Return the documents that have all terms, (n_docs,) bool; stops reading postings when there are none."""
    found = np.ones(reader.n_docs, bool)
    for term in sorted(terms, key=reader.postings.document_frequency):
        has_term = np.zeros(reader.n_docs, bool)
        has_term[reader.postings.postings(term).docs] = True
        found &= has_term
        if not found.any():
            break
    return found
