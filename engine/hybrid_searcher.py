"""Hybrid search: the candidates of dense and lexical search together, each scored exactly by both."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.found import Found
from engine.fusion import fuse
from engine.lexical_searcher import LexicalSearcher
from engine.options import SearchOptions
from engine.searcher import Searcher, n_candidates

__all__ = ["HybridSearcher"]

_MIN_CANDIDATES = 400  # of each side: as many for 10 hits as for 100, so that the first 10 are the same

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class HybridSearcher:
    """Combines two searchers over the same snapshot; safe to use from several threads."""

    def __init__(self, dense: Searcher, lexical: LexicalSearcher, n_segments: int) -> None:
        self._dense = dense
        self._lexical = lexical
        self._n_segments = n_segments

    def search(self, vectors: Floats, texts: list[str], options: SearchOptions) -> list[list[Found]]:
        """The best documents for each query, given as a text and as its vector, best first.

        Candidates are the best of both sides; those that only one side found are scored by the other, so that
        every document has both scores when they are fused.
        """
        n = max(n_candidates(options), _MIN_CANDIDATES) if options.candidates is None else options.candidates
        by_vector = self._dense.search(vectors, n, options)
        answers = []
        for vector, text, found in zip(vectors, texts, by_vector, strict=True):
            terms = self._lexical.terms(text)
            scored = self._scored(vector, terms, found, self._lexical.search(terms, n))
            answers.append(_ranked(scored, options))
        return answers

    def _scored(
        self, vector: Floats, terms: list[str], by_vector: list[Found], by_terms: list[Found]
    ) -> list[Found]:
        """All candidates with both scores."""
        scored = []
        for segment in range(self._n_segments):
            dense = {each.doc: each.score for each in by_vector if each.segment == segment}
            only_lexical = {each.doc for each in by_terms if each.segment == segment} - dense.keys()
            extra = np.array(sorted(only_lexical), np.int64)
            dense |= zip(extra.tolist(), self._dense.scores(vector, segment, extra).tolist(), strict=True)
            docs = np.array(sorted(dense), np.int64)
            lexical = self._lexical.scores(terms, segment, docs).tolist()
            pairs = zip(docs.tolist(), lexical, strict=True)
            scored += [Found(segment, doc, 0.0, dense[doc], score) for doc, score in pairs]
        return scored


def _ranked(scored: list[Found], options: SearchOptions) -> list[Found]:
    dense = np.array([each.dense for each in scored], np.float32)
    lexical = np.array([each.lexical for each in scored], np.float32)
    fused = fuse(dense, lexical, options.fusion, options.dense_weight)
    ranked = [each._replace(score=score) for each, score in zip(scored, fused.tolist(), strict=True)]
    ranked.sort(key=lambda each: (-each.score, each.segment, each.doc))
    return ranked[: options.k]
