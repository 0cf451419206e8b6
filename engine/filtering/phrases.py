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

__all__ = ["find_phrase"]

_BATCH_DOCS = 256  # read at a time, compressed


def find_phrase(condition: HasPhrase, reader: SegmentReader, live: BoolArray | None) -> BoolArray:
    """Return the live documents whose title or text has a phrase, (n_docs,) bool.

    A phrase without terms, of stop words alone for example, is one that all documents have.

    Args:
        condition: the phrase.
        reader: of the segment.
        live: (n_docs,) bool, the documents that are not deleted; None: all.

    Raises:
        FormatError: the segment is damaged.
    """
    everything = np.ones(reader.n_docs, bool) if live is None else live
    phrase = open_phrase(condition.text, condition.language, condition.rules)
    if not phrase.alternatives:
        return everything
    candidates = np.zeros(reader.n_docs, bool)
    for terms in phrase.alternatives:
        candidates |= _find_all(terms, reader)
    candidates &= everything
    found = np.zeros(reader.n_docs, bool)
    docs = np.flatnonzero(candidates)
    for doc, stored in zip(docs, reader.documents.read(docs), strict=True):
        found[doc] = phrase.occurs_in(stored.text) or phrase.occurs_in(stored.title)
    return found


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
