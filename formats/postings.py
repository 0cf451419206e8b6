"""Which documents of a segment have a term and how often: what lexical search reads.

Sections: those of `formats.term_dictionary`, ``postings`` (a record a term, in the order of the terms; see
`formats.posting_codec`) and ``doc_lengths`` (terms in each document, repetitions counted).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.posting_codec import Postings, decode, decode_several, encode
from formats.posting_runs import PostingRuns
from formats.spool import Spool
from formats.term_dictionary import TermDictionary, TermDictionaryWriter, TermEntry, TermPart
from formats.term_rows import TermRows, firsts_of_equal, rows_of, sort_order, stacked, term_of

__all__ = ["PostingsReader", "PostingsWriter", "TermBatch", "merge_postings"]

_BATCH_POSTINGS = 1 << 17  # encoded or decoded at a time
_BATCH_TERMS = 1 << 13  # the same
_BATCH_BYTES = 1 << 20  # decoded at a time, which takes 40 times as much memory

Keep = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class TermBatch(NamedTuple):
    """Terms in order, with their postings.

    Attributes:
        rows: (n_terms, width) uint8, the terms, ascending (see `formats.term_rows`).
        counts: (n_terms,) int64, how many postings each has.
        postings: of all of them, one term after the other.
    """

    rows: TermRows
    counts: Ints
    postings: Postings


class PostingsWriter:
    """Takes the terms of documents in ordinal order; memory grows by 4 bytes a document."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._runs = PostingRuns(directory)

    def add(self, terms: Sequence[str]) -> None:
        """Append the next document, which may have no terms.

        Raises:
            ValueError: a term is empty or longer than 255 bytes of UTF-8.
        """
        self._runs.add(terms)

    def write(self, envelope: EnvelopeWriter) -> None:
        """Write the sections; nothing can be added any more."""
        lengths = np.frombuffer(self._runs.lengths, np.uintc).astype(np.uint32)
        _write(self._directory, envelope, lengths, _batches(self._runs.merged()))

    def close(self) -> None:
        """Drop the temporary file."""
        self._runs.close()


class PostingsReader:
    """The postings of a segment, read from its file; reading is thread-safe.

    Attributes:
        n_docs: documents in the segment, deleted ones and those without terms included.
    """

    def __init__(self, envelope: Envelope, n_docs: int) -> None:
        self.n_docs = n_docs
        self._path = envelope.path
        self._terms = TermDictionary(envelope, n_docs)
        self._records = envelope.section("postings", np.uint8, (None,))
        self._lengths = envelope.section("doc_lengths", np.uint32, (n_docs,))

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """(n_docs,) uint32, the terms of each document, repetitions counted."""
        return self._lengths.array()

    @cached_property
    def total_length(self) -> int:
        """The terms of all documents together."""
        return int(self.lengths.sum(dtype=np.uint64))

    @property
    def n_terms(self) -> int:
        """Distinct terms."""
        return len(self._terms)

    def find(self, term: str) -> TermEntry | None:
        """What the dictionary says of a term, None where no document has it; see `read`."""
        return self._terms.find(term.encode("utf-8", "surrogatepass"))

    def document_frequency(self, term: str) -> int:
        """The number of documents with a term."""
        entry = self.find(term)
        return entry.n_docs if entry else 0

    def postings(self, term: str) -> Postings:
        """The documents with a term, and how often they have it; none where no document has it."""
        entry = self.find(term)
        return self.read(entry) if entry else Postings(np.empty(0, np.uint32), np.empty(0, np.uint32))

    def read(self, entry: TermEntry) -> Postings:
        """The postings that a dictionary entry leads to.

        Raises:
            FormatError: they are damaged.
        """
        if entry.end > self._records.n_bytes:
            raise CorruptFile("postings outside their section", path=self._path, actual=entry.end)
        try:
            return decode(self._records.slice(entry.start, entry.end), entry.n_docs, self.n_docs)
        except ValueError as error:
            raise CorruptFile(
                f"the postings at {entry.start} cannot be read", path=self._path, actual=str(error)
            ) from error

    def batches(self) -> Iterator[TermBatch]:
        """All terms, many at a time: some 100,000 postings, or those of one term.

        Raises:
            FormatError: they are damaged.
        """
        for part in self._terms.parts():
            n_before = np.concatenate([[0], np.cumsum(part.n_docs)])
            low = 0
            while low < len(part.rows):
                full = int(n_before.searchsorted(n_before[low] + _BATCH_POSTINGS, "right")) - 1
                long = int(part.ends.searchsorted(part.starts[low] + _BATCH_BYTES, "right"))
                high = max(low + 1, min(full, long))
                yield self._batch(part.between(low, high))
                low = high

    def _batch(self, part: TermPart) -> TermBatch:
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

    def __iter__(self) -> Iterator[tuple[bytes, Postings]]:
        """All terms in the order of their UTF-8, with their postings."""
        for rows, counts, (docs, frequencies) in self.batches():
            ends = np.cumsum(counts)
            for row, low, high in zip(rows, (ends - counts).tolist(), ends.tolist(), strict=True):
                yield term_of(row), Postings(docs[low:high], frequencies[low:high])


def merge_postings(
    directory: Directory, readers: Sequence[PostingsReader], keeps: Sequence[Keep | None], envelope: EnvelopeWriter
) -> None:
    """Write the postings of several segments as one, term after term in bounded memory.

    Args:
        directory: where temporary files go.
        readers: the segments; their documents follow one another in the new one.
        keeps: for each segment (n_docs,) bool, False where a document is left out, or None to keep all. Those
            that stay are numbered anew without gaps; a term that no document has any more is gone.
        envelope: the new file.

    Raises:
        FormatError: a segment is damaged.
    """
    masks = [
        np.ones(reader.n_docs, bool) if keep is None else keep for reader, keep in zip(readers, keeps, strict=True)
    ]
    lengths = np.concatenate([reader.lengths[mask] for reader, mask in zip(readers, masks, strict=True)])
    ordinals = (np.cumsum(np.concatenate(masks)) - 1).astype(np.uint32)
    starts = np.cumsum([0, *map(len, masks)]).tolist()
    cursors = [
        _Cursor(reader, mask, ordinals[start : start + len(mask)])
        for reader, mask, start in zip(readers, masks, starts, strict=False)
    ]
    _write(directory, envelope, lengths, _merged(cursors))


class _Cursor:
    """What is left of a segment's terms, in batches, with the postings that stay, under their new ordinals."""

    def __init__(self, reader: PostingsReader, mask: Keep, ordinals: npt.NDArray[np.uint32]) -> None:
        self._batches = reader.batches()
        self._mask = None if mask.all() else mask
        self._ordinals = ordinals
        self._left: TermBatch
        self._load()

    @property
    def last(self) -> bytes:
        """The last term of the batch at hand."""
        return term_of(self._left.rows[-1])

    def take(self, last: bytes) -> TermBatch:
        """The terms up to `last` of the batch at hand."""
        rows, counts, (docs, frequencies) = self._left
        n = bisect_right(range(len(rows)), last, key=lambda number: term_of(rows[number]))
        stop = int(counts[:n].sum())
        taken = TermBatch(rows[:n], counts[:n], Postings(docs[:stop], frequencies[:stop]))
        self._left = TermBatch(rows[n:], counts[n:], Postings(docs[stop:], frequencies[stop:]))
        if n == len(rows):
            self._load()
        return taken

    def _load(self) -> None:
        """The next batch, if there is one."""
        batch = next(self._batches, None)
        self.is_done = batch is None
        if batch is not None:
            self._left = self._kept(batch)

    def _kept(self, batch: TermBatch) -> TermBatch:
        rows, counts, (docs, frequencies) = batch
        if self._mask is None:
            return TermBatch(rows, counts, Postings(self._ordinals[docs], frequencies))
        stays = self._mask[docs]
        n_before = np.concatenate([[0], np.cumsum(stays)])
        kept = np.diff(n_before[np.concatenate([[0], np.cumsum(counts)])])
        return TermBatch(rows, kept, Postings(self._ordinals[docs[stays]], frequencies[stays]))


def _merged(cursors: Sequence[_Cursor]) -> Iterator[TermBatch]:
    """The terms of all segments in order; those without postings are left out."""
    while left := [cursor for cursor in cursors if not cursor.is_done]:
        last = min(cursor.last for cursor in left)
        batch = _joined([cursor.take(last) for cursor in left])
        if len(batch.rows):
            yield batch


def _joined(batches: Sequence[TermBatch]) -> TermBatch:
    """Batches of the same range of terms as one, the postings of a term in the order of the batches."""
    batches = [batch for batch in batches if len(batch.rows)]
    rows, counts = stacked([batch.rows for batch in batches]), np.concatenate([batch.counts for batch in batches])
    postings = Postings(*(np.concatenate([batch.postings[column] for batch in batches]) for column in range(2)))
    if len(batches) > 1:
        rows, counts, postings = _sorted(rows, counts, postings)
        firsts = firsts_of_equal(rows)
        rows, counts = rows[firsts], np.add.reduceat(counts, firsts)
    if not counts.all():
        rows, counts = rows[counts > 0], counts[counts > 0]
    return TermBatch(rows, counts, postings)


def _sorted(rows: TermRows, counts: Ints, postings: Postings) -> TermBatch:
    """Terms in their order, equal ones as they come, each with its postings."""
    order = sort_order(rows)
    starts, counts = (np.cumsum(counts) - counts)[order], counts[order]
    taken = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(postings.docs))
    return TermBatch(rows[order], counts, Postings(postings.docs[taken], postings.frequencies[taken]))


def _write(
    directory: Directory,
    envelope: EnvelopeWriter,
    lengths: npt.NDArray[np.uint32],
    batches: Iterable[TermBatch],
) -> None:
    records, dictionary = Spool(directory), TermDictionaryWriter(directory)
    try:
        for rows, counts, postings in batches:
            data, n_bytes = encode(len(lengths), counts, postings)
            records.write_array(data)
            dictionary.add(rows, counts, n_bytes)
        dictionary.write(envelope)
        envelope.add_chunks("postings", np.uint8, (records.n_bytes,), records.chunks())
        envelope.add("doc_lengths", lengths)
    finally:
        records.close()
        dictionary.close()


def _batches(terms: Iterable[tuple[bytes, Postings]]) -> Iterator[TermBatch]:
    """Terms in batches of enough postings to be encoded together."""
    names: list[bytes] = []
    waiting: list[Postings] = []
    n_waiting = 0
    for term, postings in terms:
        names.append(term)
        waiting.append(postings)
        n_waiting += len(postings.docs)
        if n_waiting >= _BATCH_POSTINGS or len(names) >= _BATCH_TERMS:
            yield _stacked(names, waiting)
            names, waiting, n_waiting = [], [], 0
    if names:
        yield _stacked(names, waiting)


def _stacked(names: list[bytes], waiting: list[Postings]) -> TermBatch:
    docs, frequencies = zip(*waiting, strict=True)
    counts = np.array([len(each) for each in docs], np.int64)
    return TermBatch(rows_of(names), counts, Postings(np.concatenate(docs), np.concatenate(frequencies)))
