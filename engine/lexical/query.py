"""A query whose terms have been looked up: scores documents, finds the best, says what each term adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.filtering.allowed import AllowedDocs
from quarry.engine.lexical.segment_scorer import Floats, Ints, Scored, SegmentScorer, TermPart, looked_up
from quarry.engine.scoring.ranking import Exactness, Ranking, ranked

__all__ = ["Bm25Query", "QueryTerm"]


class QueryTerm(NamedTuple):
    """A term of a query; no two have the same name, so they can be sorted.

    Attributes:
        n_docs: live documents that have it, in all segments.
        name: the term.
        times: how many times it is in the query.
        parts: what it adds in each segment.
    """

    n_docs: int
    name: str
    times: int
    parts: tuple[TermPart, ...]


class Bm25Query:
    """A query over some segments.

    Args:
        terms: the terms of the query that occur there, the rarest first.
        scorers: one for each segment.
    """

    def __init__(self, terms: Sequence[QueryTerm], scorers: Sequence[SegmentScorer]) -> None:
        self._terms = terms
        self._scorers = scorers
        self._parts = [
            [term.parts[segment].repeated(term.times) for term in terms] for segment in range(len(scorers))
        ]

    def scores(self) -> list[Scored]:
        """For each segment the live documents with a term of the query, ascending, and their scores."""
        return [scorer.scores(parts) for scorer, parts in zip(self._scorers, self._parts, strict=True)]

    def top(self, n: int, allowed: AllowedDocs | None = None, keep_ties: bool = False) -> Ranking:
        """The n >= 1 best live documents; fewer where fewer have a term of the query.

        Args:
            n: how many.
            allowed: for each segment the documents that may be found; None: all.
            keep_ties: whether all documents that tie with the last one are kept too.
        """
        each = [None] * len(self._scorers) if allowed is None else allowed
        found = [
            scorer.best(parts, n, docs)
            for scorer, parts, docs in zip(self._scorers, self._parts, each, strict=True)
        ]
        ranking = ranked(found, n, keep_ties)
        return ranking._replace(lexical=ranking.scores, exactness=Exactness.EXACT)

    def score_documents(self, segment: int, docs: Ints) -> Floats:
        """(n,) float32, the scores of the documents (n,) `docs` of one segment: 0 where they have no term."""
        return looked_up(self._parts[segment], docs)

    def term_scores(self, segment: int, doc: int) -> dict[str, float]:
        """What each of the query's terms adds to the score of a document; terms that it lacks are left out."""
        place = np.array([doc])
        added = (float(part.looked_up(place)[0]) for part in self._parts[segment])
        return {term.name: score for term, score in zip(self._terms, added, strict=True) if score > 0}
