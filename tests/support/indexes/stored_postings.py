"""Reads the postings of a segment term by term."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.postings.term_blocks import get_term


def iterate_postings(reader: PostingsReader) -> Iterator[tuple[bytes, Postings]]:
    """Yield all terms in the order of their UTF-8, with their postings."""
    for rows, counts, (docs, frequencies) in reader.batches():
        ends = np.cumsum(counts)
        for row, low, high in zip(rows, (ends - counts).tolist(), ends.tolist(), strict=True):
            yield get_term(row), Postings(docs[low:high], frequencies[low:high])
