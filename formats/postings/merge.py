"""Merges the postings of several segments in bounded memory, to temporary files first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quarry.formats.arrays import BoolArray, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader, PostingsSpool
from quarry.formats.postings.term_batches import TermBatch, merge_terms

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
        self._lengths = np.concatenate(lengths)
        self._spool = PostingsSpool(directory, len(self._lengths))

    def prepare(self) -> None:
        """Merge the postings; call it once, on any thread.

        Raises:
            FormatError: a segment is damaged.
        """
        ordinals = (np.cumsum(np.concatenate(self._masks)) - 1).astype(np.uint32)
        starts = offsets_from_sizes([len(mask) for mask in self._masks]).tolist()
        sources = [
            _iterate_kept(reader, mask, ordinals[start : start + len(mask)])
            for reader, mask, start in zip(self._readers, self._masks, starts, strict=False)
        ]
        for batch in merge_terms(sources):
            self._spool.add(batch)

    def write(self, container: ContainerWriter) -> None:
        """Write the sections of the new file; call `prepare` first."""
        self._spool.write(container)
        container.add("doc_lengths", self._lengths)

    def close(self) -> None:
        """Delete the temporary files."""
        self._spool.close()


def _iterate_kept(reader: PostingsReader, mask: BoolArray, ordinals: UInt32Array) -> Iterator[TermBatch]:
    """Yield the terms of a segment in batches, with the kept postings under their new ordinals."""
    keeps_all = bool(mask.all())
    for rows, counts, (docs, frequencies) in reader.batches():
        if keeps_all:
            yield TermBatch(rows, counts, Postings(ordinals[docs], frequencies))
            continue
        stays = mask[docs]
        kept = np.diff(offsets_from_sizes(stays)[offsets_from_sizes(counts)])
        yield TermBatch(rows, kept, Postings(ordinals[docs[stays]], frequencies[stays]))
