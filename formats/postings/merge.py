"""Merges the postings of several segments in bounded memory, to temporary files first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader, PostingsSpool, TermBatch
from quarry.formats.postings.term_blocks import argsort_rows, find_first_of_equal, get_term, stack_rows

__all__ = ["MergedPostings"]


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
        self._spool = PostingsSpool(directory, np.concatenate(lengths))

    def prepare(self) -> None:
        """Merge the postings; call it once, on any thread.

        Raises:
            FormatError: a segment is damaged.
        """
        ordinals = (np.cumsum(np.concatenate(self._masks)) - 1).astype(np.uint32)
        starts = offsets_from_sizes([len(mask) for mask in self._masks]).tolist()
        cursors = [
            _Cursor(reader, mask, ordinals[start : start + len(mask)])
            for reader, mask, start in zip(self._readers, self._masks, starts, strict=False)
        ]
        for batch in _merge_cursors(cursors):
            self._spool.add(batch)

    def write(self, container: ContainerWriter) -> None:
        """Write the sections of the new file; call `prepare` first."""
        self._spool.write(container)

    def close(self) -> None:
        """Delete the temporary files."""
        self._spool.close()


class _Cursor:
    """Iterates over the terms of a segment in batches, with the kept postings under their new ordinals."""

    def __init__(self, reader: PostingsReader, mask: BoolArray, ordinals: UInt32Array) -> None:
        self._batches = reader.batches()
        self._mask = None if mask.all() else mask
        self._ordinals = ordinals
        self._left: TermBatch
        self._load()

    @property
    def last(self) -> bytes:
        """The last term of the current batch."""
        return get_term(self._left.rows[-1])

    def take(self, last: bytes) -> TermBatch:
        """Take the terms up to `last` from the current batch."""
        rows, counts, (docs, frequencies) = self._left
        n = bisect_right(range(len(rows)), last, key=lambda number: get_term(rows[number]))
        stop = int(counts[:n].sum())
        taken = TermBatch(rows[:n], counts[:n], Postings(docs[:stop], frequencies[:stop]))
        self._left = TermBatch(rows[n:], counts[n:], Postings(docs[stop:], frequencies[stop:]))
        if n == len(rows):
            self._load()
        return taken

    def _load(self) -> None:
        """Load the next batch, if there is one."""
        batch = next(self._batches, None)
        self.is_done = batch is None
        if batch is not None:
            self._left = self._select_kept(batch)

    def _select_kept(self, batch: TermBatch) -> TermBatch:
        rows, counts, (docs, frequencies) = batch
        if self._mask is None:
            return TermBatch(rows, counts, Postings(self._ordinals[docs], frequencies))
        stays = self._mask[docs]
        kept = np.diff(offsets_from_sizes(stays)[offsets_from_sizes(counts)])
        return TermBatch(rows, kept, Postings(self._ordinals[docs[stays]], frequencies[stays]))


def _merge_cursors(cursors: Sequence[_Cursor]) -> Iterator[TermBatch]:
    """Yield the terms of all segments in order, without those that have no postings."""
    while left := [cursor for cursor in cursors if not cursor.is_done]:
        last = min(cursor.last for cursor in left)
        batch = _merge_batches([cursor.take(last) for cursor in left])
        if len(batch.rows):
            yield batch


def _merge_batches(batches: Sequence[TermBatch]) -> TermBatch:
    """Merge batches of the same range of terms; the postings of a term are in the order of the batches."""
    batches = [batch for batch in batches if len(batch.rows)]
    rows, counts = (
        stack_rows([batch.rows for batch in batches]),
        np.concatenate([batch.counts for batch in batches]),
    )
    postings = Postings(*(np.concatenate([batch.postings[column] for batch in batches]) for column in range(2)))
    if len(batches) > 1:
        rows, counts, postings = _sort_terms(rows, counts, postings)
        firsts = find_first_of_equal(rows)
        rows, counts = rows[firsts], np.add.reduceat(counts, firsts)
    if not counts.all():
        rows, counts = rows[counts > 0], counts[counts > 0]
    return TermBatch(rows, counts, postings)


def _sort_terms(rows: UInt8Array, counts: Int64Array, postings: Postings) -> TermBatch:
    """Sort terms with their postings; the sort is stable."""
    order = argsort_rows(rows)
    starts, counts = (np.cumsum(counts) - counts)[order], counts[order]
    taken = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(postings.docs))
    return TermBatch(rows[order], counts, Postings(postings.docs[taken], postings.frequencies[taken]))
