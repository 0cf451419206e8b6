"""The passages of a segment's documents. Vectors and terms belong to passages, ids and metadata to documents.

Sections: ``passage_offsets`` (the first passage of each document) and ``passage_extents`` (the characters of each
passage in the full text of its document). A segment in which every document is one passage has neither section.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["PassageTable", "PassagesWriter", "merge_passages"]


class PassagesWriter:
    """Collects the passages of documents in ordinal order.

    Attributes:
        n_docs: documents added.
        n_passages: passages of all of them.
    """

    def __init__(self, directory: Directory) -> None:
        self.n_docs = 0
        self.n_passages = 0
        self._offsets = Spool(directory)
        self._offsets.write_array(np.zeros(1, np.uint64))
        self._extents = Spool(directory)

    def add_many(self, counts: Int64Array, extents: UInt32Array) -> None:
        """Append the next documents.

        Args:
            counts: (n_docs,) int64, how many passages each has, 1 at least.
            extents: (n_passages, 2) uint32, first character of each and one past its last.
        """
        ends = self.n_passages + np.cumsum(counts)
        self._offsets.append(ends.astype(np.uint64).tobytes())
        self._extents.append(extents.astype(np.uint32).tobytes())
        self.n_docs += len(counts)
        self.n_passages += len(extents)

    def spill(self) -> None:
        """Write buffered bytes to temporary files if there are many."""
        self._offsets.spill()
        self._extents.spill()

    def write(self, container: ContainerWriter) -> None:
        """Write the sections, unless every document is one passage."""
        if self.n_passages == self.n_docs:
            return
        container.add_chunks("passage_offsets", np.uint64, (self.n_docs + 1,), self._offsets.chunks())
        container.add_chunks("passage_extents", np.uint32, (self.n_passages, 2), self._extents.chunks())

    def close(self) -> None:
        """Delete the temporary files."""
        self._offsets.close()
        self._extents.close()


class PassageTable:
    """Reads the passages of a segment.

    Attributes:
        n_docs: documents in the segment.
        n_passages: passages of all of them.
        is_divided: whether a document has several; otherwise the ordinal of a passage is that of its document.
    """

    def __init__(self, container: ContainerReader, n_docs: int, n_passages: int) -> None:
        self.n_docs = n_docs
        self.n_passages = n_passages
        self.is_divided = n_passages != n_docs
        self._path = container.path
        if self.is_divided:
            self._offsets = container.section("passage_offsets", np.uint64, (n_docs + 1,))
            self._extents = container.section("passage_extents", np.uint32, (n_passages, 2))

    @cached_property
    def offsets(self) -> Int64Array:
        """(n_docs + 1,) int64: document d has the passages offsets[d] to offsets[d + 1] - 1.

        Raises:
            CorruptFile: they do not ascend from 0 to the number of passages; checked at first use.
        """
        if not self.is_divided:
            return np.arange(self.n_docs + 1)
        raw = self._offsets.array()
        if raw[0] != 0 or raw[-1] != self.n_passages or (raw[1:] <= raw[:-1]).any():
            raise CorruptFile("passage offsets do not ascend from 0 to the number of passages", path=self._path)
        return raw.view(np.int64)

    @cached_property
    def _owners(self) -> UInt32Array:
        return np.repeat(np.arange(self.n_docs, dtype=np.uint32), np.diff(self.offsets))

    def documents_of(self, passages: Int64Array | UInt32Array) -> Int64Array:
        """Return the ordinals of the documents that (n,) passages belong to, (n,) int64."""
        return (self._owners[passages] if self.is_divided else passages).astype(np.int64, copy=False)

    def flags(self, documents: BoolArray) -> BoolArray:
        """Return for each passage the flag of its document, (n_passages,) bool, given (n_docs,) bool."""
        return np.repeat(documents, np.diff(self.offsets)) if self.is_divided else documents

    def of_documents(self, documents: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the first passage of each of (n,) documents, and the one after its last."""
        if not self.is_divided:
            return documents, documents + 1
        return self.offsets[documents], self.offsets[documents + 1]

    def extents_of(self, passages: Int64Array) -> list[tuple[int, int]]:
        """Return the (start, end) characters of (n,) passages; (0, 0): it is the whole document."""
        if not self.is_divided:
            return [(0, 0)] * len(passages)
        return [(start, end) for start, end in self._extents.rows(passages).tolist()]

    def extents(self, document: int) -> list[tuple[int, int]] | None:
        """Return the (start, end) characters of each passage of a document; None: it is one, of its whole text."""
        if not self.is_divided:
            return None
        low, high = self.offsets[document : document + 2].tolist()
        return [(int(start), int(end)) for start, end in self._extents.slice(low, high)]

    def all_extents(self) -> UInt32Array:
        """Return (n_passages, 2) uint32 extents; those of a segment without are (0, 0), the whole text."""
        if not self.is_divided:
            return np.zeros((self.n_passages, 2), np.uint32)
        extents: UInt32Array = self._extents.array()
        return extents


def merge_passages(
    tables: Sequence[PassageTable], keeps: Sequence[BoolArray | None], container: ContainerWriter
) -> None:
    """Write the passages of several segments as one, unless every document is one passage.

    Args:
        tables: the tables of the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
        container: the new file.

    Raises:
        FormatError: a segment is damaged.
    """
    if not any(table.is_divided for table in tables):
        return
    counts, extents = [], []
    for table, keep in zip(tables, keeps, strict=True):
        own, spans = np.diff(table.offsets), table.all_extents()
        counts.append(own if keep is None else own[keep])
        extents.append(spans if keep is None else spans[table.flags(keep)])
    offsets = offsets_from_sizes(np.concatenate(counts))
    if offsets[-1] == len(offsets) - 1:
        return
    container.add("passage_offsets", offsets.astype(np.uint64))
    container.add("passage_extents", np.concatenate(extents))
