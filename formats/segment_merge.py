"""Merges several segments into one without deleted documents; documents are renumbered in order.

`merge_segments` copies frames, columns and lists. `rewrite_documents` gives the documents new metadata, which is
part of a frame and of columns over all documents, so these are written anew; vectors and codes are copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.ids import DocIdsWriter, merge_ids
from quarry.formats.documents.passages import merge_passages
from quarry.formats.documents.store import DocStoreWriter, KnownDictionary, StoredDocument
from quarry.formats.documents.store_merge import merge_documents
from quarry.formats.metadata.columns import MetadataWriter, merge_metadata
from quarry.formats.postings.postings import MergedPostings, PostingsWriter
from quarry.formats.segment import MAX_ROWS, SegmentReader, new_segment, segment_fields
from quarry.formats.vectors.centroids import merge_centroids
from quarry.formats.vectors.inverted_lists import ListRun, RunRows, merge_lists
from quarry.formats.vectors.quantizer import QuantizationError, combine_errors, list_imbalance

__all__ = [
    "Extents",
    "MergeInput",
    "Rewrite",
    "merge_segments",
    "number_run_rows",
    "rewrite_documents",
    "write_vectors",
]


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
    def passages(self) -> BoolArray | None:
        """(n_passages,) bool, the passages of the documents to keep; None: all."""
        return None if self.keep is None else self.reader.passages.flags(self.keep)

    @property
    def n_passages(self) -> int:
        """Passages to keep."""
        return self.reader.passages.n_passages if self.passages is None else int(np.count_nonzero(self.passages))

    @cached_property
    def n_rows(self) -> int:
        """Centroids to keep."""
        row_keep = self.reader.centroids.row_keep(self.passages)
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
    readers, keeps = [each.reader for each in inputs], [each.keep for each in inputs]
    passages = [each.passages for each in inputs]
    with (
        new_segment(directory, is_divided=is_divided(inputs)) as container,
        closing(MergedPostings(directory, [reader.postings for reader in readers], passages)) as merged_postings,
        _run_concurrently(merged_postings.prepare, threads) as prepared,
    ):
        fields = write_vectors(inputs, container, nlist, code_bytes, keep_centroids)
        merge_ids([reader.ids for reader in readers], keeps, container)
        merge_passages([reader.passages for reader in readers], keeps, container)
        merge_metadata(directory, [reader.metadata for reader in readers], keeps, container)
        # Texts last, because dictionaries may take a share of what was written.
        merge_documents(directory, [reader.documents for reader in readers], keeps, container)
        if threads > 1 and container.n_bytes >= directory.limits.sync_bytes:
            container.sync()
        prepared()
        merged_postings.write(container)
        return container.finish(fields)


def is_divided(inputs: Sequence[MergeInput]) -> bool:
    """Return whether a document that is kept has several passages."""
    return sum(each.n_passages for each in inputs) != sum(each.n_docs for each in inputs)


def write_vectors(
    inputs: Sequence[MergeInput],
    container: ContainerWriter,
    nlist: int,
    code_bytes: int,
    keep_centroids: bool,
    reads_all: bool = True,
) -> dict[str, object]:
    """Write centroids and inverted lists, and return the fields of the new segment.

    Args:
        inputs: see `merge_segments`, as for the following three.
        container: the new file.
        nlist: number of lists.
        code_bytes: bytes of a code.
        keep_centroids: whether the centroids are stored.
        reads_all: see `quarry.formats.vectors.centroids.merge_centroids`.
    """
    tables, rows = [each.reader.centroids for each in inputs], [each.n_rows for each in inputs]
    keeps = [each.passages for each in inputs]
    largest_norm = merge_centroids(tables, keeps, container, keep_centroids, reads_all=reads_all)
    fit = None
    if nlist:
        sizes = merge_lists(number_run_rows(inputs), sum(rows), nlist, code_bytes, container)
        fit = combine_errors([each.fit for each in inputs], rows, list_imbalance(sizes))
    return segment_fields(
        n_docs=sum(each.n_docs for each in inputs),
        n_passages=sum(each.n_passages for each in inputs),
        n_rows=sum(rows),
        dim=tables[0].dim,
        largest_norm=largest_norm,
        centroids=tables[0].kind if keep_centroids else "none",
        nlist=nlist,
        code_bytes=code_bytes,
        fit=fit,
    )


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
        keep = each.reader.centroids.row_keep(each.passages)
        numbers = np.arange(first, first + each.reader.n_rows, dtype=np.uint32)
        if keep is not None:
            numbers = np.uint32(first) + np.cumsum(keep, dtype=np.uint32) - np.uint32(1)
        runs += [RunRows(run, numbers, keep) for run in each.runs]
        first += each.n_rows
    return runs


Extents = Sequence[tuple[int, int]]
"""The (start, end) characters of the passages of a document in its full text; (0, 0) of one that is the whole."""

Rewrite = Callable[[str, StoredDocument, Extents | None], tuple[Mapping[str, object], Sequence[Sequence[str]]]]
"""Returns the new metadata of a document, and the terms of each of its passages.

It is given the document's id, what is stored of it, and the extents of its passages, None if it is one passage.
"""


def rewrite_documents(
    directory: Directory,
    inputs: Sequence[MergeInput],
    nlist: int,
    code_bytes: int,
    keep_centroids: bool,
    rewrite: Rewrite,
    known: KnownDictionary,
) -> FileRecord:
    """Write and sync a new segment of the documents that are kept.

    Args:
        directory: the folder of the index.
        inputs: the segments; at least one document is kept.
        nlist: number of lists of the new segment, 0 without.
        code_bytes: bytes of a code, 0 without lists.
        keep_centroids: whether the centroids themselves are stored; all inputs must then have them, of one type.
        rewrite: see `Rewrite`; called in the order of the documents.
        known: see `quarry.formats.documents.store.DocStoreWriter`.

    Raises:
        FormatError: a segment is damaged; no file is left behind.
    """
    with new_segment(directory, is_divided=is_divided(inputs)) as container, ExitStack() as stack:
        fields = write_vectors(inputs, container, nlist, code_bytes, keep_centroids, reads_all=False)
        ids = stack.enter_context(closing(DocIdsWriter(directory)))
        store = stack.enter_context(closing(DocStoreWriter(directory, known)))
        postings = stack.enter_context(closing(PostingsWriter(directory)))
        metadata = stack.enter_context(closing(MetadataWriter(directory)))
        for doc_id, document, extents in _documents(inputs):
            changed, terms = rewrite(doc_id, document, extents)
            ids.add(doc_id)
            store.add(StoredDocument(document.title, document.text, changed, document.spans))
            postings.add_many(terms)
            metadata.add(changed)
            for part in (ids, store, postings, metadata):
                part.spill()
        for part in (ids, postings, metadata, store):
            part.write(container)
        merge_passages([each.reader.passages for each in inputs], [each.keep for each in inputs], container)
        return container.finish({**fields, "fit": None})


def _documents(inputs: Sequence[MergeInput]) -> Iterator[tuple[str, StoredDocument, Extents | None]]:
    """Yield the ids of the documents that are kept, what is stored of each, and the extents of its passages."""
    for each in inputs:
        ordinals = np.arange(each.reader.n_docs) if each.keep is None else np.flatnonzero(each.keep)
        extents = map(each.reader.passages.extents, ordinals.tolist())
        yield from zip(each.reader.ids.read(ordinals), each.reader.documents.read(ordinals), extents, strict=True)
