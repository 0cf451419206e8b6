"""Candidates that a shard returns for one query, with their scores, without texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quarry.engine.scoring.ranking import Exactness
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["ShardCandidates"]


@dataclass(frozen=True, slots=True, eq=False)
class ShardCandidates:
    """The best documents of one shard for one query, by dense score, by BM25 or by both.

    Attributes:
        ids: of the documents.
        segments: (n,) int64, number of each document's segment in the shard.
        docs: (n,) int64, ordinals there.
        dense: (n,) float32, exact dense scores; None in lexical mode.
        lexical: (n,) float32, exact BM25 scores; None in dense mode.
        by_vector: (n,) bool, which are among the best of the shard by dense score.
        by_terms: (n,) bool, which are among the best of the shard by BM25.
        n_allowed: documents of the shard that may be found.
        exactness: of the dense scores' ranking.
    """

    ids: Sequence[str]
    segments: Int64Array
    docs: Int64Array
    dense: Float32Array | None
    lexical: Float32Array | None
    by_vector: BoolArray
    by_terms: BoolArray
    n_allowed: int
    exactness: Exactness

    def read_ids(self, places: Int64Array) -> list[str]:
        """Return the ids of the candidates at these places."""
        return [self.ids[place] for place in places.tolist()]

    def take(self, places: Int64Array) -> ShardCandidates:
        """Return the candidates at these places."""
        return ShardCandidates(
            ids=self.read_ids(places),
            segments=self.segments[places],
            docs=self.docs[places],
            dense=None if self.dense is None else self.dense[places],
            lexical=None if self.lexical is None else self.lexical[places],
            by_vector=self.by_vector[places],
            by_terms=self.by_terms[places],
            n_allowed=self.n_allowed,
            exactness=self.exactness,
        )
