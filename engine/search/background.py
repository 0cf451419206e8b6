"""The background of a collection: vectors of random documents, to see how a query scores with them.

The documents are those whose ids have the smallest hashes. So the sample is the same however the documents are
divided into segments and shards, and it is read from the beginning of the sorted hashes of each segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.search.searcher import Searcher
from quarry.formats.snapshot import OpenSegment

__all__ = ["BackgroundSample", "merge_samples", "sample_background"]

_N_DOCUMENTS = 256

Floats = npt.NDArray[np.float32]


class BackgroundSample(NamedTuple):
    """Vectors of random documents, one of each.

    Attributes:
        hashes: (n,) uint64, hashes of the documents' ids, ascending.
        vectors: (n, dim) float32.
    """

    hashes: npt.NDArray[np.uint64]
    vectors: Floats

    @staticmethod
    def empty() -> BackgroundSample:
        """Return the sample of a collection without documents."""
        return BackgroundSample(np.empty(0, np.uint64), np.empty((0, 0), np.float32))

    def spread(self, query: Floats) -> float:
        """Return the standard deviation of the inner products with a (dim,) query; 0 without documents."""
        return float((self.vectors @ query).std(dtype=np.float64)) if len(self.vectors) else 0.0


def sample_background(segments: Sequence[OpenSegment], searcher: Searcher) -> BackgroundSample:
    """Read the sample of some segments.

    Args:
        segments: with the documents that are deleted.
        searcher: of the same segments.

    Raises:
        FormatError: a segment is damaged.
    """
    samples = []
    for number, segment in enumerate(segments):
        hashes, docs = _first_live(segment)
        samples.append(BackgroundSample(hashes, searcher.row_vectors(number, docs, hashes)))
    return merge_samples(samples)


def merge_samples(samples: Iterable[BackgroundSample]) -> BackgroundSample:
    """Return the sample of several parts of a collection together, given those of the parts."""
    filled = [sample for sample in samples if len(sample.hashes)]
    if not filled:
        return BackgroundSample.empty()
    hashes = np.concatenate([sample.hashes for sample in filled])
    order = np.argsort(hashes, kind="stable")[:_N_DOCUMENTS]
    return BackgroundSample(hashes[order], np.concatenate([sample.vectors for sample in filled])[order])


def _first_live(segment: OpenSegment) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return hashes and ordinals of the live documents of a segment with the smallest hashes."""
    ids = segment.reader.ids
    hashes, docs = np.empty(0, np.uint64), np.empty(0, np.int64)
    for low in range(0, ids.n_docs, _N_DOCUMENTS):
        more, ordinals = ids.by_hash(low, min(low + _N_DOCUMENTS, ids.n_docs))
        if segment.deleted is not None:
            live = ~segment.deleted[ordinals]
            more, ordinals = more[live], ordinals[live]
        hashes, docs = np.append(hashes, more), np.append(docs, ordinals)
        if len(hashes) >= _N_DOCUMENTS:
            break
    return hashes[:_N_DOCUMENTS], docs[:_N_DOCUMENTS]
