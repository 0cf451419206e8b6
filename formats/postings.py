"""Which documents of a segment have a term and how often: what lexical search reads.

Sections: those of `formats.term_dictionary`, ``postings`` (a record a term, in the order of the terms; see
`formats.posting_codec`) and ``doc_lengths`` (terms in each document, repetitions counted).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.posting_codec import Postings, decode, encode
from formats.posting_runs import PostingRuns
from formats.spool import Spool
from formats.term_dictionary import TermDictionary, TermDictionaryWriter, TermEntry

__all__ = ["PostingsReader", "PostingsWriter", "merge_postings"]

_BATCH_POSTINGS = 1 << 17  # encoded at a time

Keep = npt.NDArray[np.bool_]


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
        _write(self._directory, envelope, lengths, self._runs.merged())

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

    def __iter__(self) -> Iterator[tuple[bytes, Postings]]:
        """All terms in the order of their UTF-8, with their postings."""
        for term, entry in self._terms:
            yield term, self.read(entry)


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
    pieces = heapq.merge(
        *(
            _kept(number, reader, mask, ordinals[start : start + len(mask)])
            for number, (reader, mask, start) in enumerate(zip(readers, masks, starts, strict=False))
        )
    )
    _write(directory, envelope, lengths, _joined(pieces))


_Piece = tuple[bytes, int, Postings]  # a term, the number of the segment, what it has of the term


def _kept(number: int, reader: PostingsReader, mask: Keep, ordinals: npt.NDArray[np.uint32]) -> Iterator[_Piece]:
    """The terms of a segment with what is left of their postings, under their new ordinals."""
    for term, (docs, frequencies) in reader:
        stays = mask[docs]
        if stays.any():
            yield term, number, Postings(ordinals[docs[stays]], frequencies[stays])


def _joined(pieces: Iterator[_Piece]) -> Iterator[tuple[bytes, Postings]]:
    for term, group in groupby(pieces, key=itemgetter(0)):
        docs, frequencies = zip(*(postings for _, _, postings in group), strict=True)
        yield term, Postings(np.concatenate(docs), np.concatenate(frequencies))


def _write(
    directory: Directory,
    envelope: EnvelopeWriter,
    lengths: npt.NDArray[np.uint32],
    terms: Iterator[tuple[bytes, Postings]],
) -> None:
    records, dictionary = Spool(directory), TermDictionaryWriter(directory)
    try:
        for names, counts, postings in _batches(terms):
            data, n_bytes = encode(len(lengths), counts, postings)
            records.write_array(data)
            for term, count, size in zip(names, counts.tolist(), n_bytes.tolist(), strict=True):
                dictionary.add(term, count, size)
        dictionary.write(envelope)
        envelope.add_chunks("postings", np.uint8, (records.n_bytes,), records.chunks())
        envelope.add("doc_lengths", lengths)
    finally:
        records.close()
        dictionary.close()


def _batches(
    terms: Iterator[tuple[bytes, Postings]],
) -> Iterator[tuple[list[bytes], npt.NDArray[np.int64], Postings]]:
    """Terms in batches of enough postings to be encoded together: names, numbers of postings, postings."""
    names: list[bytes] = []
    waiting: list[Postings] = []
    n_waiting = 0
    for term, postings in terms:
        names.append(term)
        waiting.append(postings)
        n_waiting += len(postings.docs)
        if n_waiting >= _BATCH_POSTINGS:
            yield names, *_stacked(waiting)
            names, waiting, n_waiting = [], [], 0
    if names:
        yield names, *_stacked(waiting)


def _stacked(waiting: list[Postings]) -> tuple[npt.NDArray[np.int64], Postings]:
    docs, frequencies = zip(*waiting, strict=True)
    counts = np.array([len(each) for each in docs], np.int64)
    return counts, Postings(np.concatenate(docs), np.concatenate(frequencies))
