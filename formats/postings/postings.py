"""The inverted index of a segment: the documents of each term, and the term frequencies.

Sections: those of `quarry.formats.postings.term_dictionary`, ``postings`` (a record for each term, in the order
of the terms, see `quarry.formats.postings.elias_fano`) and ``doc_lengths`` (number of terms of each document).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from quarry.formats.arrays import BoolArray, UInt8Array, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile
from quarry.formats.postings.elias_fano import Postings, decode, decode_several, encode
from quarry.formats.postings.inversion import PostingRuns
from quarry.formats.postings.record_lookup import RecordLookup
from quarry.formats.postings.term_batches import TermBatch, join_batches, merge_terms
from quarry.formats.postings.term_dictionary import TermDictionary, TermDictionaryWriter, TermEntry, TermRange

__all__ = ["MergedPostings", "PostingsReader", "PostingsSpool", "PostingsWriter"]

T = TypeVar("T")

_BATCH_POSTINGS = 1 << 15  # decoded at a time
_BATCH_BYTES = 1 << 20  # of records decoded at a time, which takes 40 times as much memory


class PostingsWriter:
    """Collects the terms of documents in ordinal order, in bounded memory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._runs = PostingRuns(directory)
        self._lengths = Spool(directory)

    def add(self, terms: Sequence[str]) -> None:
        """Append the next document, which may have no terms.

        Raises:
            ValueError: a term is empty or longer than 255 bytes of UTF-8.
        """
        self.add_many([terms])

    def add_many(self, documents: Sequence[Sequence[str]]) -> None:
        """Append the next documents; see `add`."""
        self._runs.add_many(documents)
        self._lengths.append(np.fromiter(map(len, documents), np.uint32, len(documents)).tobytes())

    def spill(self) -> None:
        """Write buffered terms to temporary files if there are many."""
        self._runs.spill()
        self._lengths.spill()

    def write(self, container: ContainerWriter) -> None:
        """Write the sections."""
        n_docs = self._runs.n_docs
        with closing(PostingsSpool(self._directory, n_docs)) as spool:
            for batch in _group_batches(self._runs.merged(), self._directory.limits.batch_postings):
                spool.add(batch)
                del batch  # before the next one is made: frequent terms are large
            spool.write(container)
        container.add_chunks("doc_lengths", np.uint32, (n_docs,), self._lengths.chunks())

    def close(self) -> None:
        """Delete the temporary files."""
        self._runs.close()
        self._lengths.close()


class PostingsSpool:
    """Collects the sections of terms and records in temporary files, in bounded memory.

    Args:
        directory: for temporary files.
        n_docs: documents in the segment.
    """

    def __init__(self, directory: Directory, n_docs: int) -> None:
        self._n_docs = n_docs
        self._records = Spool(directory)
        self._dictionary = TermDictionaryWriter(directory)

    def add(self, batch: TermBatch) -> None:
        """Append at least one term; terms must ascend."""
        data, n_bytes = encode(self._n_docs, batch.counts, batch.postings)
        self._records.write_array(data)
        self._dictionary.add(batch.rows, batch.counts, n_bytes)

    def write(self, container: ContainerWriter) -> None:
        """Write the sections; nothing can be added afterwards."""
        self._dictionary.write(container)
        container.add_chunks("postings", np.uint8, (self._records.n_bytes,), self._records.chunks())

    def close(self) -> None:
        """Delete the temporary files."""
        self._records.close()
        self._dictionary.close()


class PostingsReader:
    """Reads the postings of a segment; thread-safe.

    Attributes:
        n_docs: documents in the segment, including deleted ones and those without terms.
    """

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self.n_docs = n_docs
        self._path = container.path
        self._terms = TermDictionary(container, n_docs)
        self._records = container.section("postings", np.uint8, (None,))
        self._lengths = container.section("doc_lengths", np.uint32, (n_docs,))

    @property
    def path(self) -> Path:
        """The file of the segment."""
        return self._path

    @property
    def lengths(self) -> UInt32Array:
        """(n_docs,) uint32, the number of terms of each document."""
        return self._lengths.array()

    @cached_property
    def total_length(self) -> int:
        """The number of terms of all documents."""
        return int(self.lengths.sum(dtype=np.uint64))

    @property
    def n_terms(self) -> int:
        """The number of distinct terms, or up to 15 more."""
        return self._terms.max_terms

    def term_rows(self) -> Iterator[UInt8Array]:
        """Yield all terms, ascending, as rows of `quarry.formats.postings.term_blocks`, some thousands at a time.

        Raises:
            FormatError: they are damaged.
        """
        return (part.rows for part in self._terms.parts())

    def find(self, term: str) -> TermEntry | None:
        """Return the dictionary entry of a term, or None if no document has it; see `read`."""
        return self._terms.find(term.encode("utf-8", "surrogatepass"))

    def document_frequency(self, term: str) -> int:
        """Return the number of documents with a term."""
        entry = self.find(term)
        return entry.n_docs if entry else 0

    def postings(self, term: str) -> Postings:
        """Return the postings of a term, empty if no document has it."""
        entry = self.find(term)
        return self.read(entry) if entry else Postings(np.empty(0, np.uint32), np.empty(0, np.uint32))

    def read(self, entry: TermEntry) -> Postings:
        """Read the postings of a dictionary entry.

        Raises:
            FormatError: they are damaged.
        """
        return self._read(entry, decode)

    def lookup(self, entry: TermEntry) -> RecordLookup:
        """Return what looks documents up in the postings of a dictionary entry of at least 64 documents.

        Raises:
            FormatError: they are damaged.
        """
        return self._read(entry, RecordLookup)

    def _read(self, entry: TermEntry, read: Callable[[UInt8Array, int, int], T]) -> T:
        """Read a record by a function that is given its bytes and the numbers of postings and of documents."""
        record = self._record(entry)
        try:
            return read(record, entry.n_docs, self.n_docs)
        except ValueError as error:
            raise self._unreadable(entry, error) from error

    def _record(self, entry: TermEntry) -> UInt8Array:
        if entry.end > self._records.n_bytes:
            raise CorruptFile("postings outside their section", path=self._path, actual=entry.end)
        record: UInt8Array = self._records.slice(entry.start, entry.end)
        return record

    def _unreadable(self, entry: TermEntry, error: ValueError) -> CorruptFile:
        return CorruptFile(f"the postings at {entry.start} cannot be read", path=self._path, actual=str(error))

    def terms_with_prefix(self, prefix: str) -> list[str]:
        """Return the terms that begin with a text, ascending.

        Raises:
            FormatError: they are damaged.
        """
        rows = (row for part in self._terms.with_prefix(prefix.encode("utf-8")) for row in part.rows)
        return [row[: row[-1]].tobytes().decode("utf-8", "surrogatepass") for row in rows]

    def batches(self) -> Iterator[TermBatch]:
        """Yield all terms in batches of about 32,768 postings, or with the postings of one term.

        Raises:
            FormatError: they are damaged.
        """
        return self._batches_of(self._terms.parts())

    def batches_with_prefix(self, prefix: str) -> Iterator[TermBatch]:
        """Yield the terms that begin with a text, like `batches`.

        Raises:
            FormatError: they are damaged.
        """
        return self._batches_of(self._terms.with_prefix(prefix.encode("utf-8", "surrogatepass")))

    def _batches_of(self, parts: Iterable[TermRange]) -> Iterator[TermBatch]:
        for part in parts:
            n_before = offsets_from_sizes(part.n_docs)
            low = 0
            while low < len(part.rows):
                full = int(n_before.searchsorted(n_before[low] + _BATCH_POSTINGS, "right")) - 1
                long = int(part.ends.searchsorted(part.starts[low] + _BATCH_BYTES, "right"))
                high = max(low + 1, min(full, long))
                yield self._read_batch(part.between(low, high))
                low = high

    def _read_batch(self, part: TermRange) -> TermBatch:
        start, end = int(part.starts[0]), int(part.ends[-1])
        if len(part.rows) == 1:
            entry = TermEntry(int(part.n_docs[0]), start, end)
            return TermBatch(part.rows, part.n_docs, self.read(entry))
        if end > self._records.n_bytes:
            raise CorruptFile("postings outside their section", path=self._path, actual=end)
        records, lengths = self._records.slice(start, end), part.ends - part.starts
        try:
            postings = decode_several(records, lengths, part.n_docs, self.n_docs)
        except ValueError as error:
            raise CorruptFile(
                f"the postings at {start} to {end} cannot be read", path=self._path, actual=str(error)
            ) from error
        return TermBatch(part.rows, part.n_docs, postings)


def _group_batches(batches: Iterable[TermBatch], max_postings: int) -> Iterator[TermBatch]:
    """Join batches that are encoded together, up to about `max_postings`; a larger batch stays by itself."""
    waiting: list[TermBatch] = []
    n_waiting = 0
    for batch in batches:
        n_postings = len(batch.postings.docs)
        if waiting and n_postings >= max_postings:
            yield join_batches(waiting)
            waiting, n_waiting = [], 0
        waiting.append(batch)
        del batch  # before the next one is made: frequent terms are large
        n_waiting += n_postings
        if n_waiting >= max_postings:
            yield join_batches(waiting)
            waiting, n_waiting = [], 0
    if waiting:
        yield join_batches(waiting)


class MergedPostings:
    """The merged postings of several segments.

    Args:
        directory: for temporary files.
        readers: the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
            Kept documents are renumbered without gaps; terms without documents are left out.

    Raises:
        FormatError: a segment is damaged.
    """

    def __init__(
        self, directory: Directory, readers: Sequence[PostingsReader], keeps: Sequence[BoolArray | None]
    ) -> None:
        self._readers = readers
        self._masks = [
            np.ones(reader.n_docs, bool) if keep is None else keep
            for reader, keep in zip(readers, keeps, strict=True)
        ]
        lengths = [reader.lengths[mask] for reader, mask in zip(readers, self._masks, strict=True)]
        self._lengths = np.concatenate(lengths)
        self._spool = PostingsSpool(directory, len(self._lengths))

    def prepare(self) -> None:
        """Merge the postings; call it once, on any thread.

        Raises:
            FormatError: a segment is damaged.
        """
        ordinals = (np.cumsum(np.concatenate(self._masks)) - 1).astype(np.uint32)
        starts = offsets_from_sizes([len(mask) for mask in self._masks]).tolist()
        sources = [
            _iterate_kept(reader, mask, ordinals[start : start + len(mask)])
            for reader, mask, start in zip(self._readers, self._masks, starts, strict=False)
        ]
        for batch in merge_terms(sources):
            self._spool.add(batch)

    def write(self, container: ContainerWriter) -> None:
        """Write the sections of the new file; call `prepare` first."""
        self._spool.write(container)
        container.add("doc_lengths", self._lengths)

    def close(self) -> None:
        """Delete the temporary files."""
        self._spool.close()


def _iterate_kept(reader: PostingsReader, mask: BoolArray, ordinals: UInt32Array) -> Iterator[TermBatch]:
    """Yield the terms of a segment in batches, with the kept postings under their new ordinals."""
    keeps_all = bool(mask.all())
    for rows, counts, (docs, frequencies) in reader.batches():
        if keeps_all:
            yield TermBatch(rows, counts, Postings(ordinals[docs], frequencies))
            continue
        stays = mask[docs]
        kept = np.diff(offsets_from_sizes(stays)[offsets_from_sizes(counts)])
        yield TermBatch(rows, kept, Postings(ordinals[docs[stays]], frequencies[stays]))
