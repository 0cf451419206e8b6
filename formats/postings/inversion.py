"""Sort-based inversion in bounded memory: from the terms of documents to the postings of terms.

Terms are buffered in memory up to a limit, then sorted and written to a temporary file as a run; in the end the
runs are merged. A run consists of pages of terms with their postings, so that a merge needs one page of every run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import msgpack
import numpy as np

from quarry.formats.arrays import Int64Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.spool import Spool
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.term_batches import TermBatch, merge_terms
from quarry.formats.postings.term_blocks import MAX_TERM_BYTES, split_into_rows

__all__ = ["PostingRuns"]

_OCCURRENCE_BYTES = 24  # of a term in a document: its number, and its keys while a run is sorted
_NEW_TERM_BYTES = 200  # of the first occurrence of a term in a run


class PostingRuns:
    """Collects the terms of documents in order and returns the postings of terms in order.

    Attributes:
        n_docs: documents so far.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.n_docs = 0
        self._runs: list[tuple[int, int]] = []
        self._pages = Spool(directory)
        self._lengths, self._occurrences, self._numbers = self._empty_buffer()

    def _empty_buffer(self) -> tuple[array[int], array[int], _TermNumbers]:
        """Return an empty buffer: the numbers of terms of its documents, the occurrences, the term numbers."""
        return array("I"), array("I"), _TermNumbers()

    def add(self, terms: Sequence[str]) -> None:
        """Append the terms of the next document.

        Raises:
            ValueError: a term is empty or longer than 255 bytes of UTF-8.
        """
        self.add_many([terms])

    def add_many(self, documents: Sequence[Sequence[str]]) -> None:
        """Append the terms of the next documents.

        Raises:
            ValueError: a term is empty or longer than 255 bytes of UTF-8.
        """
        self._occurrences.extend(map(self._numbers.__getitem__, chain.from_iterable(documents)))
        self.n_docs += len(documents)
        if self._occurrences:  # documents before the first term need no place in a run
            self._lengths.extend(map(len, documents))

    def spill(self) -> None:
        """Write the buffer to a temporary file if it exceeds its limit; after an error it stays in memory."""
        n_bytes = len(self._occurrences) * _OCCURRENCE_BYTES + len(self._numbers) * _NEW_TERM_BYTES
        if n_bytes > self._directory.limits.posting_bytes:
            self._spill()

    def merged(self) -> Iterator[TermBatch]:
        """Yield all terms so far in the order of their UTF-8, with their postings."""
        if self._occurrences:
            self._spill()
        return merge_terms([self._read_run(run) for run in self._runs])

    def close(self) -> None:
        """Delete the temporary file."""
        self._pages.close()

    def _spill(self) -> None:
        """Sort the buffer and append it to the temporary file as a run.

        Data that a failed attempt has written to the file belong to no run.
        """
        terms = sorted(self._numbers)
        lengths = np.frombuffer(self._lengths, np.uintc)
        doc_bits = max(1, (len(lengths) - 1).bit_length())
        # a key is the rank of a term and the document; keys of half the size are sorted in less than half the time
        kind = np.dtype(np.uint32 if len(terms) <= 1 << 32 - doc_bits else np.uint64)
        ranks = np.empty(len(terms), kind)
        ranks[np.fromiter(map(self._numbers.__getitem__, terms), np.int64, len(terms))] = np.arange(len(terms))
        keys = ranks[np.frombuffer(self._occurrences, np.uintc)]
        keys <<= kind.type(doc_bits)
        keys |= np.repeat(np.arange(len(lengths), dtype=kind), lengths)
        keys.sort()
        places = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        frequencies = np.full(len(places), len(keys) - places[-1], np.uint32)
        np.subtract(places[1:], places[:-1], out=frequencies[:-1], casting="unsafe")
        keys = keys[places]
        del places
        firsts = np.searchsorted(keys, np.arange(len(terms), dtype=kind) << kind.type(doc_bits))
        counts = np.diff(firsts, append=len(keys))
        keys &= kind.type((1 << doc_bits) - 1)
        docs = keys.astype(np.uint32)
        docs += np.uint32(self.n_docs - len(lengths))
        begun = self._empty_buffer()  # allocated before the run is added, so that no MemoryError can follow
        self._runs.append(self._write_run(terms, counts, Postings(docs, frequencies)))
        self._lengths, self._occurrences, self._numbers = begun

    def _write_run(self, terms: list[str], counts: Int64Array, postings: Postings) -> tuple[int, int]:
        """Write pages of whole terms with about equal numbers of postings; return the start and end of the run."""
        offset = self._pages.n_bytes
        ends = np.cumsum(counts)
        last_terms = np.flatnonzero(np.diff(ends // self._directory.limits.page_postings, append=-1)) + 1
        for low, high in pairwise([0, *last_terms.tolist()]):
            some = slice(int(ends[low] - counts[low]), int(ends[high - 1]))
            names = [term.encode() for term in terms[low:high]]
            page: bytes = msgpack.packb(
                [
                    b"".join(names),
                    bytes(map(len, names)),
                    counts[low:high].tobytes(),
                    *(column[some].tobytes() for column in postings),
                ]
            )
            self._pages.write(len(page).to_bytes(8, "little") + page)
        return offset, self._pages.n_bytes

    def _read_run(self, run: tuple[int, int]) -> Iterator[TermBatch]:
        offset, end = run
        while offset < end:
            n_bytes = int.from_bytes(self._pages.read(offset, 8), "little")
            joined, sizes, counts, docs, frequencies = msgpack.unpackb(self._pages.read(offset + 8, n_bytes))
            yield TermBatch(
                split_into_rows(joined, np.frombuffer(sizes, np.uint8)),
                np.frombuffer(counts, np.int64),
                Postings(np.frombuffer(docs, np.uint32), np.frombuffer(frequencies, np.uint32)),
            )
            offset += 8 + n_bytes


class _TermNumbers(dict[str, int]):
    """Assigns numbers to new terms."""

    def __missing__(self, term: str) -> int:
        if not 0 < len(term.encode()) <= MAX_TERM_BYTES:
            raise ValueError(f"a term of {len(term.encode())} bytes, and 1 to {MAX_TERM_BYTES} can be stored")
        number = self[term] = len(self)
        return number
