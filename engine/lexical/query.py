"""A BM25 query whose terms were looked up: scores documents, finds the best, explains scores by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.lexical.close_terms import Expansion
from quarry.engine.lexical.segment_scorer import Scored, SegmentScorer
from quarry.engine.lexical.term_scores import PartScores, look_up
from quarry.engine.scoring.ranking import Exactness, Ranking, merge_rankings
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["Bm25Query", "QueryTerm"]


class QueryTerm(NamedTuple):
    """A term of a query; names are distinct, so terms can be sorted.

    Attributes:
        n_docs: live documents that contain it, in all segments.
        name: the term.
        frequency: how often it occurs in the query; less if it stands for a mistyped term.
        idf: its inverse document frequency in the collection, above 0.
        parts: its scores in each segment.
    """

    n_docs: int
    name: str
    frequency: float
    idf: float
    parts: tuple[PartScores, ...]


class Bm25Query:
    """A query over some segments.

    Args:
        terms: the terms of the query that occur in the segments, rarest first.
        scorers: one for each segment.
        information: sum of the inverse document frequencies of all terms of the query, also of those that do not
            occur.
        expansions: the terms that stand for mistyped ones, the likeliest first, by the latter.
    """

    def __init__(
        self,
        terms: Sequence[QueryTerm],
        scorers: Sequence[SegmentScorer],
        information: float,
        expansions: Mapping[str, Sequence[Expansion]],
    ) -> None:
        self._terms = terms
        self._information = information
        self.mistyped: dict[str, str] = {}
        for mistyped, several in expansions.items():
            for each in several:
                self.mistyped.setdefault(each.name, mistyped)
        self._scorers = scorers
        self._parts = [
            [term.parts[segment].multiply(term.frequency) for term in terms] for segment in range(len(scorers))
        ]

    @property
    def idf(self) -> dict[str, float]:
        """The inverse document frequency of each term."""
        return {term.name: term.idf for term in self._terms}

    def scores(self) -> list[Scored]:
        """Return for each segment the live documents with a term of the query, ascending, and their scores."""
        return [scorer.scores(parts) for scorer, parts in zip(self._scorers, self._parts, strict=True)]

    def top(self, n: int, allowed: AllowedDocs | None = None, keep_ties: bool = False) -> Ranking:
        """Return the n >= 1 best live documents, or fewer if fewer contain a term of the query.

        Args:
            n: number of documents.
            allowed: for each segment the documents that may be found; None: all.
            keep_ties: whether all documents that tie with the last one are kept too.
        """
        each = [None] * len(self._scorers) if allowed is None else allowed
        found = [
            scorer.find_best(parts, n, docs)
            for scorer, parts, docs in zip(self._scorers, self._parts, each, strict=True)
        ]
        ranking = merge_rankings(found, n, keep_ties)
        return ranking._replace(lexical=ranking.scores, exactness=Exactness.EXACT)

    def score_documents(self, segment: int, docs: Int64Array) -> Float32Array:
        """Return the scores of the documents (n,) `docs` of a segment, (n,) float32; 0 without a query term."""
        return look_up(self._parts[segment], docs)

    def shares(self, segment: int, docs: Int64Array) -> Float32Array:
        """Return the share of the query's information that (n,) documents have: (n,) float32, from 0 to 1."""
        found = np.zeros(len(docs), np.float64)
        for term in self._terms:
            found += term.idf * min(1.0, term.frequency) * term.parts[segment].contains(docs)
        return np.minimum(found / max(self._information, 1e-9), 1.0).astype(np.float32)

    def term_scores(self, segment: int, doc: int) -> dict[str, float]:
        """Return the contribution of each term to the score of a document, by term; missing terms are left out."""
        docs = np.array([doc])
        scores = (float(part.look_up(docs)[0]) for part in self._parts[segment])
        return {term.name: score for term, score in zip(self._terms, scores, strict=True) if score > 0}
