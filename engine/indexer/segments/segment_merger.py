"""Merges segments into one: which quantizer its lists have, and which rows have to be encoded for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from quarry.engine.indexer.segments.new_quantizer import ListPlan, TrainingRows
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.query_sample import QuerySample
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.directory import Directory
from quarry.formats.documents.store import KnownDictionary
from quarry.formats.manifest import SegmentRecord
from quarry.formats.segment import SegmentReader
from quarry.formats.segment_merge import MergeInput, Rewrite, merge_segments, rewrite_documents
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["Merged", "SegmentMerger", "training_rows"]


@dataclass(frozen=True, eq=False)
class Merged:
    """A merge that is not committed yet.

    Attributes:
        sources: the segments as they were when it began; documents deleted then are left out.
        record: the new segment, durable; None if no document in the sources was live.
        quantizer: the quantizer of its lists; None if it has none.
    """

    sources: tuple[OpenSegment, ...]
    record: SegmentRecord | None
    quantizer: StoredQuantizer | None


class SegmentMerger:
    """Merges segments of an index into new files; existing files do not change.

    Args:
        directory: the folder of the index.
        plan: decides whether a segment has inverted lists; with at least two threads, postings are merged on
            another one.
    """

    def __init__(self, directory: Directory, plan: ListPlan) -> None:
        self._directory = directory
        self._plan = plan

    def merge(
        self,
        sources: Sequence[OpenSegment],
        quantizer: StoredQuantizer | None,
        rewrite: Rewrite | None = None,
    ) -> Merged:
        """Write the live documents of the sources as one segment.

        If it is large enough for inverted lists, the codes of sources that were encoded with `quantizer` are
        copied, and all other rows are encoded with it.

        Args:
            sources: the segments; those without stored centroids have codes of `quantizer`.
            quantizer: the quantizer of the index; None: one is trained if needed, unless documents are rewritten.
            rewrite: changes the metadata of each document; None: nothing is changed.

        Raises:
            FormatError: a source is damaged.
        """
        with ExitStack() as stack:
            inputs = [self._open(source, stack) for source in sources]
            names = [source.record.quantizer for source in sources]
            return Merged(tuple(sources), *self.write(inputs, names, quantizer, rewrite))

    def write(
        self,
        inputs: Sequence[MergeInput],
        names: Sequence[str],
        quantizer: StoredQuantizer | None,
        rewrite: Rewrite | None = None,
    ) -> tuple[SegmentRecord | None, StoredQuantizer | None]:
        """Write the documents to keep of open segments, of this index or not, as one segment; see `merge`.

        Args:
            inputs: the segments.
            names: the names of the quantizers of their codes, "" for segments without lists.
            quantizer: the quantizer of the index; None: one is trained if needed.
            rewrite: see `merge`.

        Returns:
            The new segment, None if no document is kept, and the quantizer of its lists, None if it has none.
        """
        if not any(each.n_docs for each in inputs):
            return None, None
        with ExitStack() as stack:
            chosen = None if rewrite and quantizer is None else self._quantizer(inputs, quantizer)
            return self._write(inputs, names, chosen, stack, rewrite), chosen

    def train(self, sources: Sequence[OpenSegment]) -> StoredQuantizer | None:
        """Train and store a quantizer for the live centroids of the sources; None if they need no lists.

        Raises:
            FormatError: a source is damaged.
        """
        with ExitStack() as stack:
            return self._quantizer([self._open(source, stack) for source in sources], None)

    def _open(self, source: OpenSegment, stack: ExitStack) -> MergeInput:
        """Open a source again, so that it is verified again: it may have been damaged since."""
        reader = stack.enter_context(
            closing(SegmentReader(self._directory, source.record.file, self._plan.settings.dim))
        )
        return MergeInput(reader, None if source.deleted is None else ~source.deleted)

    def _quantizer(self, inputs: Sequence[MergeInput], existing: StoredQuantizer | None) -> StoredQuantizer | None:
        n_rows, seed = sum(each.n_rows for each in inputs), self._plan.settings.seed
        return self._plan.choose(self._directory, existing, n_rows, lambda: training_rows(inputs, seed))

    def _write(
        self,
        inputs: Sequence[MergeInput],
        names: Sequence[str],
        chosen: StoredQuantizer | None,
        stack: ExitStack,
        rewrite: Rewrite | None,
    ) -> SegmentRecord:
        name, nlist, code_bytes = "", 0, 0
        if chosen:
            name, nlist, code_bytes = chosen.record.name, chosen.quantizer.nlist, chosen.quantizer.code_bytes
            inputs = [
                self._with_lists(each, known, chosen, stack) for known, each in zip(names, inputs, strict=True)
            ]
        keep_centroids = not chosen or self._plan.settings.centroids != "none"
        if rewrite is None:
            file = merge_segments(self._directory, inputs, nlist, code_bytes, keep_centroids, self._plan.threads)
        else:
            file = rewrite_documents(
                self._directory, inputs, nlist, code_bytes, keep_centroids, rewrite, self._known_dictionary(inputs)
            )
        n_docs = sum(each.n_docs for each in inputs)
        return SegmentRecord(file=file, tombstones=None, quantizer=name, n_docs=n_docs, n_deleted=0)

    @staticmethod
    def _known_dictionary(inputs: Sequence[MergeInput]) -> KnownDictionary:
        """Return a function that returns the newest dictionary of the sources, whatever its size."""

        def known(_: int) -> bytes:
            documents = inputs[-1].reader.documents
            documents.check_dictionary(documents.n_runs - 1)
            return documents.dictionary(documents.n_runs - 1)

        return known

    def _with_lists(self, each: MergeInput, known: str, chosen: StoredQuantizer, stack: ExitStack) -> MergeInput:
        """Return a source, whose codes are of the quantizer `known`, with its rows in lists of the chosen one."""
        reader = each.reader
        if reader.lists is not None and known == chosen.record.name:
            reader.lists.rows()  # which checks that they are all there
            return replace(each, runs=[reader.lists], fit=reader.fit)
        lists = stack.enter_context(
            closing(InvertedListsWriter(self._directory, chosen.quantizer.nlist, chosen.quantizer.code_bytes))
        )
        coder = VectorCoder(chosen.quantizer, self._plan.threads)
        coder.code_all(reader.centroids.batches(None), lists.add)
        return replace(each, runs=lists.runs(), fit=coder.fit(lists.sizes()))


def training_rows(inputs: Sequence[MergeInput], seed: int) -> TrainingRows:
    """Return the rows of the documents to keep, to train a quantizer on.

    Args:
        inputs: segments that store centroids, or codes that are decoded.
        seed: the seed of the index, for the choice of query-like texts.
    """
    return TrainingRows(
        sum(each.n_passages for each in inputs),
        sum(each.n_rows for each in inputs),
        lambda: chain.from_iterable(each.reader.centroids.stored_batches(each.passages) for each in inputs),
        lambda: _owned_rows(inputs),
        lambda: _query_texts(inputs, seed),
    )


def _query_texts(inputs: Sequence[MergeInput], seed: int) -> list[str]:
    """Return query-like texts of the live documents."""
    sample, first = QuerySample(seed), 0
    places = np.array(sample.places(sum(each.n_docs for each in inputs)), np.int64)
    for each in inputs:
        ordinals = places[(places >= first) & (places < first + each.n_docs)] - first
        for ordinal in (ordinals if each.keep is None else np.flatnonzero(each.keep)[ordinals]).tolist():
            document = each.reader.documents[ordinal]
            sample.add(document.title, document.text)
        first += each.n_docs
    return sample.texts


def _owned_rows(inputs: Sequence[MergeInput]) -> Iterator[tuple[Float32Array, Int64Array]]:
    """Yield the rows of the live documents with numbers of their passages that ascend over all sources."""
    first = 0
    for each in inputs:
        for vectors, owners in each.reader.centroids.owned_batches(each.passages):
            if len(vectors):
                yield vectors, owners + first
        first += each.reader.passages.n_passages
