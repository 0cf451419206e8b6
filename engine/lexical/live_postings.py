"""The postings and lengths of the live documents of a segment.

A segment file contains deleted documents until a merge removes them. They are removed from a term's postings when
these are decoded, so frequencies, lengths and scores are the same before and after the merge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from quarry.engine.lexical.derived_terms import is_derived
from quarry.formats.arrays import BoolArray, UInt32Array
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.postings.record_lookup import RecordLookup

__all__ = ["LivePostings"]


class LivePostings:
    """The postings of a segment without those of deleted documents; thread-safe.

    Args:
        reader: the segment's postings.
        deleted: (reader.n_docs,) bool, not to be written to; None: nothing is deleted.
        find: returns the live documents with a prefix, a phrase or a group, given its name; None: there are none.

    Attributes:
        n_ordinals: documents in the segment, deleted ones included.
        reader: the segment's postings.
    """

    def __init__(
        self,
        reader: PostingsReader,
        deleted: BoolArray | None,
        find: Callable[[str], Postings] | None = None,
    ) -> None:
        self.n_ordinals = reader.n_docs
        self.reader = reader
        self._deleted = deleted
        self._find = find

    @cached_property
    def n_docs(self) -> int:
        """The number of live documents."""
        return self.n_ordinals - (0 if self._deleted is None else int(np.count_nonzero(self._deleted)))

    @cached_property
    def total_length(self) -> int:
        """The number of terms of all live documents, repetitions counted."""
        if self._deleted is None:
            return self.reader.total_length
        return int(self.lengths[~self._deleted].sum(dtype=np.uint64))

    @property
    def lengths(self) -> UInt32Array:
        """(n_ordinals,) uint32, the number of terms of each document, deleted ones included."""
        return self.reader.lengths

    def document_frequency(self, term: str) -> int:
        """Return the number of live documents with a term; decodes its postings if anything is deleted.

        Raises:
            FormatError: the segment is damaged.
        """
        if self._deleted is None and not is_derived(term):
            return self.reader.document_frequency(term)
        return len(self.postings(term).docs)

    def postings(self, term: str) -> Postings:
        """Return the live documents with a term, a prefix or a phrase, and its frequency in each.

        Raises:
            FormatError: the segment is damaged.
        """
        if self._find is not None and is_derived(term):
            return self._find(term)
        postings = self.reader.postings(term)
        if self._deleted is None:
            return postings
        live = np.flatnonzero(
            ~self._deleted.take(postings.docs)
        )  # taking positions is faster than flags if many are deleted
        return Postings(postings.docs.take(live), postings.frequencies.take(live))

    def lookup(self, term: str, least: int) -> tuple[int, RecordLookup] | None:
        """Return the number of documents with a frequent term, and what looks documents up in its postings.

        Args:
            term: the term.
            least: number of documents from which on a term is frequent, at least 64.

        Returns:
            None if the term is rarer, a prefix or a phrase, or if documents of the segment are deleted.

        Raises:
            FormatError: the segment is damaged.
        """
        if self._deleted is not None or is_derived(term):
            return None
        entry = self.reader.find(term)
        return None if entry is None or entry.n_docs < least else (entry.n_docs, self.reader.lookup(entry))
