"""Candidates: the documents of one partition that may be among the best for one query, with their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.lexical.query import Bm25Query
from quarry.engine.options import SearchOptions, uncalibrated_candidates
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.id_order import IdOrder
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["Candidates", "pool_size"]

_MIN_CANDIDATES = 300  # of each side in hybrid mode: as many for 10 hits as for 100, so that the first 10 agree


def pool_size(options: SearchOptions) -> int:
    """Return the number of candidates that a hybrid search takes of each side."""
    return options.candidates or max(uncalibrated_candidates(options.n_retrieved), _MIN_CANDIDATES)


class Candidates(NamedTuple):
    """The best documents of one partition for one query, by dense score, by BM25 or by both.

    In hybrid mode they are ordered by segment and ordinal, otherwise best first.

    Attributes:
        segments: (n,) int64, number of each document's segment in the partition.
        docs: (n,) int64, ordinals there.
        dense: (n,) float32, exact dense scores; None in lexical mode.
        lexical: (n,) float32, exact BM25 scores; None in dense mode.
        ids: of the documents: where they are read, or these themselves.
        n_allowed: documents of the partition that may be found; 0 unless in hybrid mode.
        exactness: of the ranking by one score.
        by_vector: (n,) bool, which are among the best by dense score; None unless in hybrid mode.
        by_terms: (n,) bool, which are among the best by BM25; None unless in hybrid mode.
        terms: the query's terms with the postings of the partition, if they are needed again.
    """

    segments: Int64Array
    docs: Int64Array
    dense: Float32Array | None
    lexical: Float32Array | None
    ids: IdOrder | Sequence[str]
    n_allowed: int = 0
    exactness: Exactness = Exactness.APPROXIMATE
    by_vector: BoolArray | None = None
    by_terms: BoolArray | None = None
    terms: Bm25Query | None = None

    def read_ids(self, places: Int64Array) -> list[str]:
        """Return the ids of the candidates at these places."""
        if isinstance(self.ids, IdOrder):
            return self.ids.read_ids(self.segments[places], self.docs[places])
        return [self.ids[place] for place in places.tolist()]

    def detached(self) -> Candidates:
        """Return them as values alone, without what belongs to files, for another thread or process."""
        return self._replace(ids=self.read_ids(np.arange(len(self.docs))), terms=None)
