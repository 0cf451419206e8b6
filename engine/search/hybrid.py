"""Hybrid search: the candidates of dense and lexical search together, each scored exactly by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

__all__ = ["HybridSearcher"]

_MIN_CANDIDATES = 300  # of each side: as many for 10 hits as for 100, so that the first 10 are the same

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


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
        n = options.candidates or max(usual_candidates(options.k), _MIN_CANDIDATES)
        rankings = self._dense.candidates(vectors, n, n, options, allowed)
        for vector, text, by_vector in zip(host_vectors(vectors), texts, rankings, strict=True):
            query = self._lexical.query(text)
            by_terms = query.top(n, allowed)
            if not self._n_docs:
                yield vector, by_terms, query
                continue
            ranking, n_scored = self._fuse(vector, query, (by_vector, by_terms), options)
            if n_scored == self._count_allowed(allowed):
                ranking = ranking._replace(exactness=Exactness.EXACT)
            yield vector, ranking, query

    def _count_allowed(self, allowed: AllowedDocs) -> int:
        return sum(n if docs is None else docs.n for n, docs in zip(self._n_docs, allowed, strict=True))

    def _fuse(
        self, vector: Floats, query: Bm25Query, sides: tuple[Ranking, Ranking], options: SearchOptions
    ) -> tuple[Ranking, int]:
        """Return the fused ranking, and the number of candidates it was chosen from."""
        parts = [self._score_candidates(vector, query, *sides, number) for number in range(len(self._n_docs))]
        lengths = [len(docs) for docs, _, _ in parts]
        docs, dense, lexical = (np.concatenate(column) for column in zip(*parts, strict=True))
        fused = fuse(dense, lexical, options.fusion, options.dense_weight)
        segments = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((docs, segments, -fused))[: options.k]
        return Ranking(segments[order], docs[order], fused[order], dense[order], lexical[order]), len(docs)

    def _score_candidates(
        self, vector: Floats, query: Bm25Query, by_vector: Ranking, by_terms: Ranking, segment: int
    ) -> tuple[Ints, Floats, Floats]:
        """Return the candidates of one segment, ascending, with their dense and lexical scores."""
        inside = by_vector.segments == segment
        known = by_vector.docs[inside]
        docs = np.union1d(known, by_terms.docs[by_terms.segments == segment])
        dense = np.empty(len(docs), np.float32)
        places = np.searchsorted(docs, known)
        dense[places] = by_vector.scores[inside]
        missing = np.ones(len(docs), bool)
        missing[places] = False
        if missing.any():
            dense[missing] = self._dense.scores(vector, segment, docs[missing])
        return docs, dense, query.score_documents(segment, docs)
