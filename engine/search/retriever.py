"""Retrieves documents for queries: by vectors, by terms, or by both with fused scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.query_words import QueryWords
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.options import SearchOptions, uncalibrated_candidates
from quarry.engine.scoring.query_vectors import Queries, Vectors, to_host_vectors
from quarry.engine.scoring.ranking import Exactness, Ranking
from quarry.engine.search.fusion import fuse
from quarry.engine.search.id_order import IdOrder, best_places
from quarry.engine.search.relevance import QueryRelevance
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.snapshot import OpenSegment

__all__ = ["Answer", "Pool", "Retriever", "pool_size"]

_MIN_CANDIDATES = 300  # of each side in hybrid mode: as many for 10 hits as for 100, so that the first 10 agree


class Answer(NamedTuple):
    """The documents found for one query.

    Attributes:
        ranking: the documents, best first.
        vector: (dim,) float32, the query's vector in main memory; None in lexical mode.
        terms: the query's terms with their postings; None in dense mode.
        words: the query's words; None if the query is a vector.
        relevance: the model of relevance, prepared for the query; None without a calibration.
    """

    ranking: Ranking
    vector: Vectors | None = None
    terms: Bm25Query | None = None
    words: QueryWords | None = None
    relevance: QueryRelevance | None = None


class Pool(NamedTuple):
    """The candidates of one hybrid query, ordered by segment and ordinal, each with both scores.

    Attributes:
        segments: (n,) int64, numbers of the segments.
        docs: (n,) int64, ordinals in the segments.
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores.
        by_vector: (n,) bool, whether it is among the best by dense score.
        by_terms: (n,) bool, whether it is among the best by BM25.
    """

    segments: Int64Array
    docs: Int64Array
    dense: Float32Array
    lexical: Float32Array
    by_vector: BoolArray
    by_terms: BoolArray


def pool_size(options: SearchOptions) -> int:
    """Return the number of candidates that a hybrid search takes of each side."""
    return options.candidates or max(uncalibrated_candidates(options.n_retrieved), _MIN_CANDIDATES)


class Retriever:
    """Searches one snapshot in any mode; safe to use from several threads.

    Documents with equal scores are in the order of their ids, and where candidates are cut, those with the first
    ids are kept: so answers are the same however the documents are divided among segments and shards.
    """

    def __init__(self, segments: Sequence[OpenSegment], dense: Searcher, lexical: LexicalSearcher) -> None:
        self._dense = dense
        self._lexical = lexical
        self._n_docs = [segment.record.n_live for segment in segments]
        self._order = IdOrder(segments)

    def search_dense(
        self, vectors: Queries, options: SearchOptions, allowed: AllowedDocs, texts: list[str] | None = None
    ) -> Iterator[Answer]:
        """Yield the answer of each of (n, dim) query vectors, with the words of the texts they are of, if any."""
        rankings = self.rank_dense(vectors, options, allowed)
        for number, (vector, ranking) in enumerate(zip(to_host_vectors(vectors), rankings, strict=True)):
            words = None if texts is None else self._lexical.words(texts[number], options)
            yield Answer(ranking.skip(options.n_skipped), vector, words=words)

    def search_lexical(self, texts: list[str], options: SearchOptions, allowed: AllowedDocs) -> Iterator[Answer]:
        """Yield the answer of each text, one after the other, since terms hold postings in memory."""
        for text in texts:
            terms = self._lexical.query(text, options)
            ranking = self.rank_lexical(terms, options, allowed)
            yield Answer(
                ranking.skip(options.n_skipped), terms=terms, words=self._lexical.words(text, options, terms)
            )

    def search_hybrid(
        self, texts: list[str], vectors: Queries, options: SearchOptions, allowed: AllowedDocs
    ) -> Iterator[Answer]:
        """Yield the answer of each query, given as a text and as its vector."""
        pools = self.find_pools(texts, vectors, options, allowed)
        for text, (vector, terms, pool) in zip(texts, pools, strict=True):
            fused = fuse(pool.dense, pool.lexical, options.fusion, options.fusion_weight)
            order = best_places(fused, options.n_retrieved, self._order.reader_of(pool.segments, pool.docs))
            order = order[options.n_skipped :]
            ranking = Ranking(
                pool.segments[order], pool.docs[order], fused[order], pool.dense[order], pool.lexical[order]
            )
            if len(pool.docs) == self._count_allowed(allowed):
                ranking = ranking._replace(exactness=Exactness.EXACT)
            yield Answer(ranking, vector, terms, self._lexical.words(text, options, terms))

    def find_pools(
        self,
        texts: list[str],
        vectors: Queries,
        options: SearchOptions,
        allowed: AllowedDocs,
    ) -> Iterator[tuple[Float32Array, Bm25Query, Pool]]:
        """Yield the vector, the terms and the candidates of each query, given as a text and as its vector.

        Candidates are the best documents of both sides; those that only one side found are scored by the other, so
        that every candidate has both scores before fusion.

        Args:
            texts: of the queries.
            vectors: (n, dim), of the queries.
            options: options of the search.
            allowed: for each segment the documents that may be found; None: all.
        """
        n = pool_size(options)
        rankings = self._dense.search(vectors, options, allowed, n_candidates=n, keep_ties=True)
        for vector, text, by_vector in zip(to_host_vectors(vectors), texts, rankings, strict=True):
            terms = self._lexical.query(text, options)
            by_terms = terms.top(n, allowed, keep_ties=True)
            sides = self._order.cut(by_vector, n), self._order.cut(by_terms, n)
            yield vector, terms, self._pool(vector, terms, *sides)

    def rank_dense(self, vectors: Queries, options: SearchOptions, allowed: AllowedDocs) -> list[Ranking]:
        """Return the best `options.n_retrieved` documents by dense score for each of (n, dim) query vectors."""
        rankings = self._dense.search(vectors, options, allowed, keep_ties=True)
        return [self._order.best(each, options.n_retrieved) for each in rankings]

    def rank_lexical(self, terms: Bm25Query, options: SearchOptions, allowed: AllowedDocs) -> Ranking:
        """Return the best `options.n_retrieved` documents by BM25 for the terms of a query."""
        return self._order.best(terms.top(options.n_retrieved, allowed, keep_ties=True), options.n_retrieved)

    def _count_allowed(self, allowed: AllowedDocs) -> int:
        return sum(n if docs is None else docs.n for n, docs in zip(self._n_docs, allowed, strict=True))

    def _pool(self, vector: Float32Array, terms: Bm25Query, by_vector: Ranking, by_terms: Ranking) -> Pool:
        parts = [
            self._score_candidates(vector, terms, by_vector, by_terms, segment)
            for segment in range(len(self._n_docs))
        ]
        return Pool(*(np.concatenate(column) for column in zip(_NO_CANDIDATES, *parts, strict=True)))

    def _score_candidates(
        self, vector: Float32Array, terms: Bm25Query, by_vector: Ranking, by_terms: Ranking, segment: int
    ) -> Pool:
        """Return the candidates of one segment."""
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
        return Pool(segments, docs, dense, terms.score_documents(segment, docs), is_known, has_terms)


_NO_CANDIDATES = Pool(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, bool),
    np.empty(0, bool),
)
