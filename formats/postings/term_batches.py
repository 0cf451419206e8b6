"""Terms in order with their postings, many at a time, and the merge of several such streams."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.term_blocks import argsort_rows, find_first_of_equal, get_term, stack_rows

__all__ = ["TermBatch", "join_batches", "merge_terms"]

_GATHERED_POSTINGS = 1 << 17  # at a time, by their places, which take four times the memory of the postings


class TermBatch(NamedTuple):
    """Terms in order, with their postings.

    Attributes:
        rows: (n_terms, width) uint8, the terms, ascending (see `quarry.formats.postings.term_blocks`).
        counts: (n_terms,) int64, the number of postings of each.
        postings: the postings of all terms, concatenated.
    """

    rows: UInt8Array
    counts: Int64Array
    postings: Postings

    def terms(self) -> Iterator[tuple[bytes, Postings]]:
        """Yield the terms, each with its postings."""
        docs, frequencies = self.postings
        start = 0
        for row, stop in zip(self.rows, np.cumsum(self.counts).tolist(), strict=True):
            yield get_term(row), Postings(docs[start:stop], frequencies[start:stop])
            start = stop


def merge_terms(
    sources: Sequence[Iterator[TermBatch]], n_gathered: int = _GATHERED_POSTINGS
) -> Iterator[TermBatch]:
    """Yield the terms of all sources in order, without those that have no postings.

    Takes the memory of a batch of each source, and of as many merged postings.

    Args:
        sources: batches whose terms ascend; of one term, the postings of a source are before those of the next.
        n_gathered: postings that are sorted at a time.
    """
    cursors = [_Cursor(source) for source in sources]
    while left := [cursor for cursor in cursors if not cursor.is_done]:
        last = min(cursor.last for cursor in left)
        batch = _merge_batches([cursor.take(last) for cursor in left], n_gathered)
        if len(batch.rows):
            yield batch
        del batch  # before the next one is made: frequent terms are large


def join_batches(batches: Sequence[TermBatch]) -> TermBatch:
    """Return several batches, at least one, as one; the terms are not sorted."""
    if len(batches) == 1:
        return batches[0]
    rows = stack_rows([batch.rows for batch in batches])
    counts = np.concatenate([batch.counts for batch in batches])
    docs, frequencies = (np.concatenate(column) for column in zip(*(b.postings for b in batches), strict=True))
    return TermBatch(rows, counts, Postings(docs, frequencies))


class _Cursor:
    """The terms of a source that were not taken yet."""

    def __init__(self, batches: Iterator[TermBatch]) -> None:
        self._batches = batches
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
            self._left = batch


def _merge_batches(batches: Sequence[TermBatch], n_gathered: int) -> TermBatch:
    """Merge batches of the same range of terms; the postings of a term are in the order of the batches."""
    batches = [batch for batch in batches if len(batch.rows)]
    rows, counts, postings = join_batches(batches)
    if len(batches) > 1:
        rows, counts, postings = _sort_terms(rows, counts, postings, n_gathered)
        firsts = find_first_of_equal(rows)
        rows, counts = rows[firsts], np.add.reduceat(counts, firsts)
    if not counts.all():
        rows, counts = rows[counts > 0], counts[counts > 0]
    return TermBatch(rows, counts, postings)


def _sort_terms(rows: UInt8Array, counts: Int64Array, postings: Postings, n_gathered: int) -> TermBatch:
    """Sort terms with their postings; the sort is stable."""
    order = argsort_rows(rows)
    starts, counts = (np.cumsum(counts) - counts)[order], counts[order]
    return TermBatch(rows[order], counts, _gather(postings, starts, counts, n_gathered))


def _gather(postings: Postings, starts: Int64Array, counts: Int64Array, n_at_once: int) -> Postings:
    """Return `counts` postings from each of `starts`, which are all postings in another order."""
    ends = np.cumsum(counts)
    firsts = ends - counts
    gathered = Postings(*map(np.empty_like, postings))
    low = 0
    while low < len(counts):
        high = max(low + 1, int(ends.searchsorted(firsts[low] + n_at_once, "right")))
        into = slice(int(firsts[low]), int(ends[high - 1]))
        taken: slice | Int64Array = slice(int(starts[low]), int(starts[low] + counts[low]))
        if high > low + 1:
            some = slice(low, high)
            taken = np.repeat(starts[some] - firsts[some], counts[some]) + np.arange(into.start, into.stop)
        for column, parts in zip(postings, gathered, strict=True):
            parts[into] = column[taken]
        low = high
    return gathered
