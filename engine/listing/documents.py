"""The documents of some segments in the order in which they are stored, read in batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from quarry.engine.arguments import checked_integer
from quarry.engine.documents.document import Document
from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.formats.arrays import Int64Array
from quarry.formats.errors import IndexClosed
from quarry.formats.snapshot import OpenSegment

__all__ = ["StoredDocuments", "checked_range"]

_BATCH_IDS = 4096  # read at a time
_BATCH_DOCS = 256  # read at a time, compressed
_WINDOW_DOCS = 1 << 16  # of which flags are read at a time

T = TypeVar("T")


class StoredDocuments:
    """Some documents of one generation of an index, in the order of their segments and in the order within each.

    Files that are read stay open until an iterator is exhausted or collected, so that it does not depend on later
    commits, and neither on the closing of the index. Memory does not depend on the number of documents, except for
    one bit mask of the filter.

    Args:
        segments: the segments of the generation, or those of all shards, one after another.
        allowed: for each segment the documents to read; None: all live ones.
        path: folder of the index, for messages.
        at_once: ids, documents and flags that are read at a time.
    """

    def __init__(
        self,
        segments: Sequence[OpenSegment],
        allowed: AllowedDocs,
        path: Path,
        at_once: tuple[int, int, int] = (_BATCH_IDS, _BATCH_DOCS, _WINDOW_DOCS),
    ) -> None:
        self._n_ids, self._n_docs, self._n_flags = at_once
        self._segments = segments
        self._allowed = allowed
        self._path = path

    def ids(self, offset: object = 0, limit: object = None) -> Iterator[str]:
        """Iterate over the ids; no text is read.

        Args:
            offset: number of documents to leave out at the beginning.
            limit: largest number of ids; None: no limit.

        Raises:
            InvalidSetting: `offset` or `limit` is not an integer of 0 or more.
            IndexClosed: the index is closed.
        """
        return self._iterate(_read_ids, self._n_ids, offset, limit)

    def documents(self, offset: object = 0, limit: object = None) -> Iterator[Document]:
        """Iterate over the documents; see `ids`."""
        return self._iterate(_read_documents, self._n_docs, offset, limit)

    def in_order(self, segments: Int64Array, passages: Int64Array) -> Iterator[Document]:
        """Iterate over documents in a given order, see `ids`.

        Args:
            segments: (n,) int64, the number of the segment of each.
            passages: (n,) int64 at least, the ordinal of a passage of each there.
        """
        return self._read_in_order(segments, passages[: len(segments)], _OpenFiles(self._segments, self._path))

    def _read_in_order(self, segments: Int64Array, passages: Int64Array, files: _OpenFiles) -> Iterator[Document]:
        try:
            for low in range(0, len(passages), self._n_docs):
                numbers, places = segments[low : low + self._n_docs], passages[low : low + self._n_docs]
                read: dict[int, Document] = {}
                for number in np.unique(numbers).tolist():
                    inside = np.flatnonzero(numbers == number)
                    docs = self._segments[number].reader.passages.documents_of(places[inside])
                    read |= zip(inside.tolist(), _read_documents(self._segments[number], docs), strict=True)
                yield from (read.pop(place) for place in range(len(places)))
        finally:
            files.release()

    def _iterate(
        self, read: Callable[[OpenSegment, Int64Array], Iterator[T]], n_batch: int, offset: object, limit: object
    ) -> Iterator[T]:
        n_skipped, n_most = checked_range(offset, limit)
        batches = self._batches(n_batch, n_skipped, n_most)
        return _read_batches(read, batches, _OpenFiles(self._segments, self._path))

    def _batches(self, n_batch: int, n_skipped: int, n_most: int) -> Iterator[tuple[OpenSegment, Int64Array]]:
        """Yield the documents after the first `n_skipped`, at most `n_most`, in batches of one segment each."""
        for segment, allowed in zip(self._segments, self._allowed, strict=True):
            flags = segment.live if allowed is None else allowed.flags
            for low in range(0, segment.reader.n_docs, self._n_flags):
                window = flags[low : low + self._n_flags]
                n_inside = int(np.count_nonzero(window))
                if n_skipped >= n_inside:
                    n_skipped -= n_inside
                    continue
                docs = np.flatnonzero(window)[n_skipped : n_skipped + n_most] + low
                n_skipped, n_most = 0, n_most - len(docs)
                for start in range(0, len(docs), n_batch):
                    yield segment, docs[start : start + n_batch]
                if not n_most:
                    return


def checked_range(offset: object, limit: object) -> tuple[int, int]:
    """Return how many documents are left out at the beginning, and how many come at most.

    Raises:
        InvalidSetting: one is not an integer of 0 or more.
    """
    n_skipped = checked_integer(offset, "offset", 0, sys.maxsize)
    return n_skipped, sys.maxsize if limit is None else checked_integer(limit, "limit", 0, sys.maxsize)


class _OpenFiles:
    """Keeps the files of segments open until `release`, or until it is collected."""

    def __init__(self, segments: Sequence[OpenSegment], path: Path) -> None:
        self._readers = [segment.reader for segment in segments]
        if not all(reader.acquire(self) for reader in self._readers):
            self.release()
            raise IndexClosed("the index is closed", path=path)

    def release(self) -> None:
        """Close the files that nothing else keeps open."""
        for reader in self._readers:
            reader.release(self)


def _read_batches(
    read: Callable[[OpenSegment, Int64Array], Iterator[T]],
    batches: Iterator[tuple[OpenSegment, Int64Array]],
    files: _OpenFiles,
) -> Iterator[T]:
    try:
        for segment, docs in batches:
            yield from read(segment, docs)
    finally:
        files.release()


def _read_ids(segment: OpenSegment, docs: Int64Array) -> Iterator[str]:
    return iter(segment.reader.ids.many(docs))


def _read_documents(segment: OpenSegment, docs: Int64Array) -> Iterator[Document]:
    waiting = segment.reader.documents.packed(docs)[::-1]
    for doc_id in segment.reader.ids.many(docs):
        stored = waiting.pop().unpack()  # without a reference to those that were read
        yield Document(doc_id, stored.text, stored.title, stored.metadata)
