"""Several segments to one: which quantizer its lists take, and what has to be coded for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.trained import trained_quantizer
from quarry.engine.indexer.segment_builder import wants_lists
from quarry.engine.quantization.training import VectorCoder, train_lists, train_on
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import IndexSettings, SegmentRecord
from quarry.formats.segment import SegmentReader
from quarry.formats.segment_merge import MergeInput, merge_segments
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import StoredQuantizer, write_quantizer

__all__ = ["Merged", "SegmentMerger"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Merged:
    """A merge that is done, and not committed yet.

    Attributes:
        sources: the segments as they were when it began; what was deleted then is left out.
        record: the new segment, durable; None where nothing in the sources was live.
        quantizer: of its lists; None where it has none.
    """

    sources: tuple[OpenSegment, ...]
    record: SegmentRecord | None
    quantizer: StoredQuantizer | None


class SegmentMerger:
    """Merges segments of an index into new files; it changes nothing that is there.

    Args:
        directory: of the index.
        settings: of the index.
        threads: for training and coding; from 2 on also one for words.
        encoder: encoder of the documents, whose quantizer is used if it has one; None: it is not known.
    """

    def __init__(
        self, directory: Directory, settings: IndexSettings, threads: int, encoder: Encoder | None = None
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._threads = threads
        self._encoder = encoder

    def merge(self, sources: Sequence[OpenSegment], quantizer: StoredQuantizer | None) -> Merged:
        """Write the live documents of the sources as one segment.

        Where it is large enough for inverted lists, the codes of those sources that were made with `quantizer`
        are taken over, and all other rows are coded with it.

        Args:
            sources: the segments; of those without stored centroids the codes are `quantizer`'s.
            quantizer: of the index; None: one is trained if one is needed.

        Raises:
            FormatError: a source is damaged.
        """
        with ExitStack() as stack:
            inputs = [self._opened(source, stack) for source in sources]
            if not any(each.n_docs for each in inputs):
                return Merged(tuple(sources), None, None)
            chosen = self._quantizer(inputs, quantizer)
            record = self._write(sources, inputs, chosen, stack)
        return Merged(tuple(sources), record, chosen)

    def train(self, sources: Sequence[OpenSegment]) -> StoredQuantizer | None:
        """Train and store a quantizer for the live centroids of the sources; None where they need no lists.

        Raises:
            FormatError: a source is damaged.
        """
        with ExitStack() as stack:
            return self._quantizer([self._opened(source, stack) for source in sources], None)

    def _opened(self, source: OpenSegment, stack: ExitStack) -> MergeInput:
        """A source, opened once more: what was verified long ago may have rotted since."""
        reader = stack.enter_context(
            closing(SegmentReader(self._directory, source.record.file, self._settings.dim))
        )
        return MergeInput(reader, None if source.deleted is None else ~source.deleted)

    def _quantizer(self, inputs: Sequence[MergeInput], existing: StoredQuantizer | None) -> StoredQuantizer | None:
        n_rows = sum(each.n_rows for each in inputs)
        codes = None if existing else trained_quantizer(self._encoder, self._settings.code_bytes)
        if not wants_lists(self._settings, n_rows, bool(existing or codes)):
            return None
        if existing:
            return existing
        batches = chain.from_iterable(each.reader.centroids.batches(each.keep) for each in inputs)
        if codes is None:
            trained = train_on(batches, n_rows, self._settings, self._threads)
        else:
            trained = train_lists(codes, batches, n_rows, self._settings, self._threads)
        return StoredQuantizer(trained, write_quantizer(self._directory, trained))

    def _write(
        self,
        sources: Sequence[OpenSegment],
        inputs: Sequence[MergeInput],
        chosen: StoredQuantizer | None,
        stack: ExitStack,
    ) -> SegmentRecord:
        name, nlist, code_bytes = "", 0, 0
        if chosen:
            name, nlist, code_bytes = chosen.record.name, chosen.quantizer.nlist, chosen.quantizer.code_bytes
            inputs = [
                self._listed(each, source.record, chosen, stack)
                for source, each in zip(sources, inputs, strict=True)
            ]
        keep_centroids = not chosen or self._settings.centroids != "none"
        file = merge_segments(self._directory, inputs, nlist, code_bytes, keep_centroids, self._threads)
        n_docs = sum(each.n_docs for each in inputs)
        return SegmentRecord(file=file, tombstones=None, quantizer=name, n_docs=n_docs, n_deleted=0)

    def _listed(
        self, each: MergeInput, record: SegmentRecord, chosen: StoredQuantizer, stack: ExitStack
    ) -> MergeInput:
        """A source with its rows in lists of the chosen quantizer."""
        reader = each.reader
        if reader.lists is not None and record.quantizer == chosen.record.name:
            reader.lists.rows()  # which checks that they are all there
            return replace(each, runs=[reader.lists], fit=reader.fit)
        lists = stack.enter_context(
            closing(InvertedListsWriter(self._directory, chosen.quantizer.nlist, chosen.quantizer.code_bytes))
        )
        coder = VectorCoder(chosen.quantizer, self._threads)
        for batch in reader.centroids.batches(None):
            lists.add(*coder.code(batch))
        return replace(each, runs=lists.runs(), fit=coder.fit(lists.sizes()))
