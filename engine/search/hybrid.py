"""Hybrid search: the candidates of dense and lexical search together, each scored exactly by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.filtering.allowed import AllowedDocs
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.options import SearchOptions
from quarry.engine.quantization.candidates import usual_candidates
from quarry.engine.scoring.query_vectors import Queries, host_vectors
from quarry.engine.scoring.ranking import Exactness, Ranking
from quarry.engine.search.fusion import fuse
from quarry.engine.search.searcher import Searcher

__all__ = ["HybridSearcher", "Pool", "pool_size"]

_MIN_CANDIDATES = 300  # of each side: as many for 10 hits as for 100, so that the first 10 are the same

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


class Pool(NamedTuple):
    """The candidates of one query, ordered by segment and ordinal, each with both scores.

    Attributes:
        segments: (n,) int64, numbers of the segments.
        docs: (n,) int64, ordinals there.
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores.
        by_vector: (n,) bool, which are among the best by dense score.
        by_terms: (n,) bool, which are among the best by BM25.
    """

    segments: Ints
    docs: Ints
    dense: Floats
    lexical: Floats
    by_vector: Flags
    by_terms: Flags


def pool_size(options: SearchOptions) -> int:
    """Return how many candidates of each side a hybrid search takes."""
    return options.candidates or max(usual_candidates(options.k), _MIN_CANDIDATES)


class HybridSearcher:
    """Combines two searchers over the same snapshot; safe to use from several threads.

    Args:
        dense: ranks by meaning.
        lexical: ranks by words.
        n_docs: of each segment, those that are not deleted.
    """

    def __init__(self, dense: Searcher, lexical: LexicalSearcher, n_docs: Sequence[int]) -> None:
        self._dense = dense
        self._lexical = lexical
        self._n_docs = n_docs

    def search(
        self, vectors: Queries, texts: list[str], options: SearchOptions, allowed: AllowedDocs
    ) -> Iterator[tuple[Floats, Ranking, Bm25Query]]:
        """Rank documents for each query, given as a text and as its vector.

        Candidates are the best documents of both sides; those that only one side found are scored by the other,
        so that every candidate has both scores before fusion.

        Yields:
            The vector of a query, its ranking, and its terms; one query at a time, because terms hold postings.
        """
        for vector, query, pool in self.pools(vectors, texts, options, allowed):
            fused = fuse(pool.dense, pool.lexical, options.fusion, options.dense_weight)
            order = np.lexsort((pool.docs, pool.segments, -fused))[: options.k]
            ranking = Ranking(
                pool.segments[order], pool.docs[order], fused[order], pool.dense[order], pool.lexical[order]
            )
            if len(pool.docs) == self.count_allowed(allowed):
                ranking = ranking._replace(exactness=Exactness.EXACT)
            yield vector, ranking, query

    def pools(
        self,
        vectors: Queries,
        texts: list[str],
        options: SearchOptions,
        allowed: AllowedDocs,
        keep_ties: bool = False,
    ) -> Iterator[tuple[Floats, Bm25Query, Pool]]:
        """Yield for each query its vector, its terms and its candidates, one query at a time.

        Args:
            vectors: (n, dim), of the queries.
            texts: of the queries.
            options: of the search.
            allowed: for each segment the documents that may be found; None: all.
            keep_ties: whether all documents that tie with the last candidate of a side are candidates too.
        """
        n = pool_size(options)
        rankings = self._dense.candidates(vectors, n, n, options, allowed, keep_ties)
        for vector, text, by_vector in zip(host_vectors(vectors), texts, rankings, strict=True):
            query = self._lexical.query(text)
            yield vector, query, self._pool(vector, query, by_vector, query.top(n, allowed, keep_ties))

    def count_allowed(self, allowed: AllowedDocs) -> int:
        """Return the number of documents that may be found."""
        return sum(n if docs is None else docs.n for n, docs in zip(self._n_docs, allowed, strict=True))

    def _pool(self, vector: Floats, query: Bm25Query, by_vector: Ranking, by_terms: Ranking) -> Pool:
        parts = [
            self._score_candidates(vector, query, by_vector, by_terms, number)
            for number in range(len(self._n_docs))
        ]
        return Pool(*(np.concatenate(column) for column in zip(_NO_CANDIDATES, *parts, strict=True)))

    def _score_candidates(
        self, vector: Floats, query: Bm25Query, by_vector: Ranking, by_terms: Ranking, segment: int
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
        return Pool(segments, docs, dense, query.score_documents(segment, docs), is_known, has_terms)


_NO_CANDIDATES = Pool(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, bool),
    np.empty(0, bool),
)
