"""Finds the candidates of one partition for queries: by vectors, by terms, or by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.engine.scoring.ranking import Ranking
from quarry.engine.search.candidates import Candidates, pool_size
from quarry.engine.search.id_order import IdOrder
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.snapshot import OpenSegment

__all__ = ["Retriever"]

_Columns = tuple[Int64Array, Int64Array, Float32Array, Float32Array, BoolArray, BoolArray]


class Retriever:
    """Searches one snapshot in any mode; safe to use from several threads.

    Where candidates with equal scores are cut, those with the first ids are kept: so answers are the same however
    the documents are divided among segments and partitions.

    Attributes:
        lexical: turns texts into queries.
    """

    def __init__(self, segments: Sequence[OpenSegment], dense: Searcher, lexical: LexicalSearcher) -> None:
        self.lexical = lexical
        self._dense = dense
        self._n_docs = [segment.record.n_live for segment in segments]
        self._order = IdOrder(segments)

    def find(
        self, texts: list[str] | None, vectors: Queries | None, options: SearchOptions, allowed: AllowedDocs
    ) -> Iterator[Candidates]:
        """Yield the candidates of each query, one after the other, since terms hold postings in memory.

        In hybrid mode candidates are the best documents of both sides; those that only one side found are scored
        by the other, so that every candidate has both scores before fusion.

        Args:
            texts: of the queries; None: the mode is "dense".
            vectors: (n, dim), of the queries; None: the mode is "lexical".
            options: of the search.
            allowed: for each segment the documents that may be found; None: all.
        """
        if options.mode == "hybrid":
            assert texts is not None
            assert vectors is not None
            n, n_allowed = pool_size(options), self._count_allowed(allowed)
            rankings = self._dense.search(vectors, options, allowed, n_candidates=n, keep_ties=True)
            for vector, text, by_vector in zip(to_host_vectors(vectors), texts, rankings, strict=True):
                terms = self.lexical.query(text, options)
                sides = self._order.cut(by_vector, n), self._order.cut(terms.top(n, allowed, keep_ties=True), n)
                yield self._pool(vector, terms, sides, n_allowed)
        elif vectors is not None:
            for ranking in self._dense.search(vectors, options, allowed, keep_ties=True):
                yield self._best(ranking, options)
        elif texts is not None:
            for text in texts:
                terms = self.lexical.query(text, options)
                yield self._best(terms.top(options.n_retrieved, allowed, keep_ties=True), options, terms)

    def _count_allowed(self, allowed: AllowedDocs) -> int:
        return sum(n if docs is None else docs.n for n, docs in zip(self._n_docs, allowed, strict=True))

    def _best(self, ranking: Ranking, options: SearchOptions, terms: Bm25Query | None = None) -> Candidates:
        """Return the best documents of a ranking by one score, best first."""
        best = self._order.best(ranking, options.n_retrieved)
        return Candidates(
            segments=best.segments,
            docs=best.docs,
            dense=best.dense,
            lexical=best.lexical,
            exactness=best.exactness,
            ids=self._order,
            terms=terms,
        )

    def _pool(
        self, vector: Float32Array, terms: Bm25Query, sides: tuple[Ranking, Ranking], n_allowed: int
    ) -> Candidates:
        parts = [self._score_segment(vector, terms, *sides, segment) for segment in range(len(self._n_docs))]
        columns = zip(_NO_CANDIDATES, *parts, strict=True)
        segments, docs, dense, lexical, by_vector, by_terms = map(np.concatenate, columns)
        return Candidates(
            segments=segments,
            docs=docs,
            dense=dense,
            lexical=lexical,
            by_vector=by_vector,
            by_terms=by_terms,
            n_allowed=n_allowed,
            ids=self._order,
            terms=terms,
        )

    def _score_segment(
        self, vector: Float32Array, terms: Bm25Query, by_vector: Ranking, by_terms: Ranking, segment: int
    ) -> _Columns:
        """Return the candidates of one segment, ordered by ordinal: the first columns of `Candidates`."""
        inside = by_vector.segments == segment
        known, with_terms = by_vector.docs[inside], by_terms.docs[by_terms.segments == segment]
        docs = np.union1d(known, with_terms)
        dense = np.empty(len(docs), np.float32)
        places = np.searchsorted(docs, known)
        dense[places] = by_vector.scores[inside]
        is_known, has_terms = np.zeros(len(docs), bool), np.zeros(len(docs), bool)
        is_known[places] = True
        has_terms[np.searchsorted(docs, with_terms)] = True
        if not is_known.all():
            dense[~is_known] = self._dense.scores(vector, segment, docs[~is_known])
        segments = np.full(len(docs), segment, np.int64)
        return segments, docs, dense, terms.score_documents(segment, docs), is_known, has_terms


_NO_CANDIDATES: _Columns = (
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, bool),
    np.empty(0, bool),
)
