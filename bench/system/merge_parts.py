"""What each part of a merge takes: one after the other on one thread, into a file that is thrown away."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind
from quarry.formats.container.spool import make_temporary_name
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.ids import merge_ids
from quarry.formats.documents.store_merge import merge_documents
from quarry.formats.metadata.columns import merge_metadata
from quarry.formats.postings.merge import MergedPostings
from quarry.formats.segment import SegmentReader
from quarry.formats.segment_merge import MergeInput, number_run_rows
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.centroids import merge_centroids
from quarry.formats.vectors.inverted_lists import merge_lists
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["merge_parts"]


def merge_parts(directory: Directory, sources: Sequence[OpenSegment], quantizer: Quantizer) -> dict[str, float]:
    """Merge segments that store centroids and were coded with `quantizer`.

    Returns:
        Seconds for centroids, lists, ids, metadata, texts, words and sync. They include reading and verifying what
        is merged, and, but for sync, no waiting for the disk.
    """
    envelope = ContainerWriter(directory, make_temporary_name(), FileKind.SEGMENT, secrets.token_bytes(16))
    try:
        with ExitStack() as stack:
            inputs = [_opened(directory, source, quantizer.input_dim, stack) for source in sources]
            merge = _Parts(directory, inputs, quantizer, envelope)
            return {part: _timed(work) for part, work in merge.works().items()}
    finally:
        envelope.discard()


def _opened(directory: Directory, source: OpenSegment, dim: int, stack: ExitStack) -> MergeInput:
    reader = stack.enter_context(closing(SegmentReader(directory, source.record.file, dim)))
    keep = None if source.deleted is None else ~source.deleted
    return MergeInput(reader, keep, [reader.lists] if reader.lists else ())


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class _Parts:
    def __init__(
        self, directory: Directory, inputs: Sequence[MergeInput], quantizer: Quantizer, envelope: ContainerWriter
    ) -> None:
        self._directory = directory
        self._inputs = inputs
        self._readers = [each.reader for each in inputs]
        self._keeps = [each.keep for each in inputs]
        self._quantizer = quantizer
        self._envelope = envelope

    def works(self) -> dict[str, Callable[[], object]]:
        """The parts in the order of a merge."""
        directory, readers, keeps, envelope = self._directory, self._readers, self._keeps, self._envelope
        return {
            "centroids": lambda: merge_centroids([each.centroids for each in readers], keeps, envelope, True),
            "lists": self._merge_lists,
            "ids": lambda: merge_ids([each.ids for each in readers], keeps, envelope),
            "metadata": lambda: merge_metadata(directory, [each.metadata for each in readers], keeps, envelope),
            "texts": lambda: merge_documents(directory, [each.documents for each in readers], keeps, envelope),
            "words": self._merge_words,
            "sync": envelope.sync,
        }

    def _merge_lists(self) -> None:
        n_rows = sum(each.n_rows for each in self._inputs)
        runs, quantizer = number_run_rows(self._inputs), self._quantizer
        merge_lists(runs, n_rows, quantizer.nlist, quantizer.code_bytes, self._envelope)

    def _merge_words(self) -> None:
        readers = [each.postings for each in self._readers]
        with closing(MergedPostings(self._directory, readers, self._keeps)) as merged:
            merged.prepare()
            merged.write(self._envelope)
