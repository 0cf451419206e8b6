"""Merges several segments into one without deleted documents; documents are renumbered in order."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.ids import merge_ids
from quarry.formats.documents.store_merge import merge_documents
from quarry.formats.metadata.columns import merge_metadata
from quarry.formats.postings.merge import MergedPostings
from quarry.formats.segment import MAX_ROWS, SegmentReader, segment_fields
from quarry.formats.vectors.centroids import merge_centroids
from quarry.formats.vectors.inverted_lists import ListRun, RunRows, merge_lists
from quarry.formats.vectors.quantization_error import QuantizationError, combine_errors, list_imbalance

__all__ = ["MergeInput", "merge_segments", "number_run_rows"]


@dataclass(frozen=True, eq=False)
class MergeInput:
    """A segment to be merged with others.

    Attributes:
        reader: the segment. Each chunk is verified unless this reader has verified it before, so a reader should
            be opened for the merge.
        keep: (n_docs,) bool, False if a document is left out; None: keep all.
        runs: all rows of the segment in the lists of the new segment's quantizer; empty if it has none.
        fit: their quantization error, if known.
    """

    reader: SegmentReader
    keep: BoolArray | None
    runs: Sequence[ListRun] = ()
    fit: QuantizationError | None = None

    @property
    def n_docs(self) -> int:
        """Documents to keep."""
        return self.reader.n_docs if self.keep is None else int(np.count_nonzero(self.keep))

    @cached_property
    def n_rows(self) -> int:
        """Centroids to keep."""
        row_keep = self.reader.centroids.row_keep(self.keep)
        return self.reader.n_rows if row_keep is None else int(np.count_nonzero(row_keep))


def merge_segments(
    directory: Directory,
    inputs: Sequence[MergeInput],
    nlist: int,
    code_bytes: int,
    keep_centroids: bool,
    threads: int = 1,
) -> FileRecord:
    """Write and sync a new segment.

    Args:
        directory: the folder of the index.
        inputs: the segments; at least one document is kept.
        nlist: number of lists of the new segment, 0 without.
        code_bytes: bytes of a code, 0 without lists.
        keep_centroids: whether the centroids themselves are stored; all inputs must then have them, of one type.
        threads: with 2 or more, postings are merged on another thread. The file is the same.

    Raises:
        FormatError: a segment is damaged; no file is left behind.
        OverflowError: more rows than a segment can hold.
    """
    if sum(each.n_rows for each in inputs) > MAX_ROWS:
        raise OverflowError(f"a segment holds at most {MAX_ROWS} centroids")
    segment_id = secrets.token_bytes(16)
    container = ContainerWriter(directory, f"{segment_id.hex()}.seg", FileKind.SEGMENT, segment_id)
    try:
        merge = _SegmentMerge(directory, inputs, container)
        return container.finish(merge.write(nlist, code_bytes, keep_centroids, threads))
    finally:
        container.discard()


class _SegmentMerge:
    """Writes the sections of one new segment."""

    def __init__(self, directory: Directory, inputs: Sequence[MergeInput], container: ContainerWriter) -> None:
        self._directory = directory
        self._inputs = inputs
        self._readers = [each.reader for each in inputs]
        self._keeps = [each.keep for each in inputs]
        self._container = container
        self._n_rows = sum(each.n_rows for each in inputs)

    def write(self, nlist: int, code_bytes: int, keep_centroids: bool, threads: int) -> dict[str, object]:
        """Write all sections and return the fields of the new segment."""
        merged_postings = MergedPostings(
            self._directory, [reader.postings for reader in self._readers], self._keeps
        )
        with closing(merged_postings), _run_concurrently(merged_postings.prepare, threads) as prepared:
            largest_norm = self._write_vectors(keep_centroids)
            fit = self._write_lists(nlist, code_bytes) if nlist else None
            self._write_documents()
            if threads > 1 and self._container.n_bytes >= self._directory.limits.sync_bytes:
                self._container.sync()
            prepared()
            merged_postings.write(self._container)
        table = self._readers[0].centroids
        return segment_fields(
            n_docs=sum(each.n_docs for each in self._inputs),
            n_rows=self._n_rows,
            dim=table.dim,
            largest_norm=largest_norm,
            centroids=table.kind if keep_centroids else "none",
            nlist=nlist,
            code_bytes=code_bytes,
            fit=fit,
        )

    def _write_vectors(self, keep_centroids: bool) -> float:
        """Write the centroids and return an upper bound of their norms."""
        tables = [reader.centroids for reader in self._readers]
        return merge_centroids(tables, self._keeps, self._container, keep_centroids)

    def _write_lists(self, nlist: int, code_bytes: int) -> QuantizationError | None:
        sizes = merge_lists(number_run_rows(self._inputs), self._n_rows, nlist, code_bytes, self._container)
        fits, rows = [each.fit for each in self._inputs], [each.n_rows for each in self._inputs]
        return combine_errors(fits, rows, list_imbalance(sizes))

    def _write_documents(self) -> None:
        """Write ids, metadata and texts; texts last, because dictionaries may take a share of what was written."""
        directory, keeps, container = self._directory, self._keeps, self._container
        merge_ids([reader.ids for reader in self._readers], keeps, container)
        merge_metadata(directory, [reader.metadata for reader in self._readers], keeps, container)
        merge_documents(directory, [reader.documents for reader in self._readers], keeps, container)


@contextlib.contextmanager
def _run_concurrently(work: Callable[[], None], threads: int) -> Iterator[Callable[[], None]]:
    """Start `work` on another thread if two are allowed; yield a function that waits for it, or does it.

    When the block ends, also by an error, the thread has ended.
    """
    if threads < 2:
        yield work
        return
    with ThreadPoolExecutor(1, "quarry-merge-postings") as pool:
        try:
            future = pool.submit(work)
        except RuntimeError:  # no thread can be started, or the interpreter is exiting
            yield work
            return
        yield future.result


def number_run_rows(inputs: Sequence[MergeInput]) -> list[RunRows]:
    """Return the runs of all inputs with the ordinals of their rows in the new segment."""
    runs, first = [], 0
    for each in inputs:
        keep = each.reader.centroids.row_keep(each.keep)
        numbers = np.arange(first, first + each.reader.n_rows, dtype=np.uint32)
        if keep is not None:
            numbers = np.uint32(first) + np.cumsum(keep, dtype=np.uint32) - np.uint32(1)
        runs += [RunRows(run, numbers, keep) for run in each.runs]
        first += each.n_rows
    return runs
