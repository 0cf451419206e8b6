"""Several segments written as one, what is deleted left out: documents keep their order and are numbered anew."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from formats.centroids import merge_centroids
from formats.coding_fit import CodingFit, imbalance_of, joined_fit
from formats.directory import Directory
from formats.doc_ids import merge_ids
from formats.doc_store_merge import merge_documents
from formats.envelope import EnvelopeWriter, FileKind, FileRecord
from formats.inverted_lists import ListRun, RunRows, merge_lists
from formats.metadata_columns import merge_metadata
from formats.postings import merge_postings
from formats.segment import MAX_ROWS, SegmentReader, segment_fields

__all__ = ["MergeInput", "merge_segments"]

Keep = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MergeInput:
    """A segment to be merged with others.

    Attributes:
        reader: the segment. Every chunk that its reader has not touched before is verified on the way, so it is
            best opened for the merge.
        keep: (n_docs,) bool, False where a document is left out; None: all stay.
        runs: all rows of the segment in the lists of the new segment's quantizer; empty for a segment without.
        fit: of that quantizer to them, where it is known.
    """

    reader: SegmentReader
    keep: Keep | None
    runs: Sequence[ListRun] = ()
    fit: CodingFit | None = None

    @property
    def n_docs(self) -> int:
        """Documents that stay."""
        return self.reader.n_docs if self.keep is None else int(np.count_nonzero(self.keep))

    @cached_property
    def n_rows(self) -> int:
        """Centroids that stay."""
        row_keep = self.reader.centroids.row_keep(self.keep)
        return self.reader.n_rows if row_keep is None else int(np.count_nonzero(row_keep))


def merge_segments(
    directory: Directory, inputs: Sequence[MergeInput], nlist: int, code_bytes: int, keep_centroids: bool
) -> FileRecord:
    """Write a new segment, durably.

    Args:
        directory: where.
        inputs: the segments; at least one document of theirs stays.
        nlist: number of lists of the new segment, 0 without.
        code_bytes: bytes of a code, 0 without lists.
        keep_centroids: whether the centroids themselves are stored; then all inputs have them, of one type.

    Raises:
        FormatError: a segment is damaged; nothing is left behind.
        OverflowError: more rows than a segment can hold.
    """
    n_rows = sum(each.n_rows for each in inputs)
    if n_rows > MAX_ROWS:
        raise OverflowError(f"a segment holds at most {MAX_ROWS} centroids")
    segment_id = secrets.token_bytes(16)
    name = f"{segment_id.hex()}.seg"
    envelope = EnvelopeWriter(directory, name, FileKind.SEGMENT, segment_id)
    try:
        largest_norm = _write(directory, inputs, envelope, keep_centroids)
        fit = None
        if nlist:
            sizes = merge_lists(_rows_of_runs(inputs), n_rows, nlist, code_bytes, envelope)
            fit = joined_fit([each.fit for each in inputs], [each.n_rows for each in inputs], imbalance_of(sizes))
        table = inputs[0].reader.centroids
        return envelope.finish(
            segment_fields(
                n_docs=sum(each.n_docs for each in inputs),
                n_rows=n_rows,
                dim=table.dim,
                largest_norm=largest_norm,
                centroids=table.kind if keep_centroids else "none",
                nlist=nlist,
                code_bytes=code_bytes,
                fit=fit,
            )
        )
    except BaseException:
        envelope.abandon()
        directory.delete(name)
        raise


def _write(
    directory: Directory, inputs: Sequence[MergeInput], envelope: EnvelopeWriter, keep_centroids: bool
) -> float:
    """Write all sections but the lists; a length that no centroid exceeds."""
    readers, keeps = [each.reader for each in inputs], [each.keep for each in inputs]
    largest_norm = merge_centroids([reader.centroids for reader in readers], keeps, envelope, keep_centroids)
    merge_ids([reader.ids for reader in readers], keeps, envelope)
    merge_postings(directory, [reader.postings for reader in readers], keeps, envelope)
    merge_metadata(directory, [reader.metadata for reader in readers], keeps, envelope)
    merge_documents(directory, [reader.documents for reader in readers], keeps, envelope)
    return largest_norm


def _rows_of_runs(inputs: Sequence[MergeInput]) -> list[RunRows]:
    runs, first = [], 0
    for each in inputs:
        keep = each.reader.centroids.row_keep(each.keep)
        numbers = np.arange(first, first + each.reader.n_rows, dtype=np.uint32)
        if keep is not None:
            numbers = np.uint32(first) + np.cumsum(keep, dtype=np.uint32) - np.uint32(1)
        runs += [RunRows(run, numbers, keep) for run in each.runs]
        first += each.n_rows
    return runs
