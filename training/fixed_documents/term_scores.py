"""BM25 scores of a whole source of documents for its queries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.training.data.example_store import ExampleStore

__all__ = ["TermScores"]

Floats = npt.NDArray[np.float32]


class TermScores:
    """Scores documents by BM25 as `quarry.engine.lexical.bm25` defines it, and divides by the query's best score.

    Memory: 12 bytes for each different term of a document.

    Args:
        store: documents and queries.
        analyzer: makes terms of both.
    """

    def __init__(self, store: ExampleStore, analyzer: Analyzer) -> None:
        self._store, self._analyzer, self._n_documents = store, analyzer, store.n_documents
        self._terms: dict[str, int] = {}
        terms: list[int] = []
        documents: list[int] = []
        frequencies: list[int] = []
        lengths = np.zeros(store.n_documents, np.float64)
        for document in range(store.n_documents):
            counts = Counter(analyzer.terms(store.document(document)))
            lengths[document] = counts.total()
            terms += [self._terms.setdefault(term, len(self._terms)) for term in counts]
            frequencies += counts.values()
            documents += [document] * len(counts)
        order = np.argsort(np.array(terms, np.int64), kind="stable")
        self._documents = np.array(documents, np.int32)[order]
        found = np.array(frequencies, np.float64)[order]
        n_with_term = np.bincount(np.array(terms, np.int64), minlength=len(self._terms))
        self._starts = np.concatenate([[0], np.cumsum(n_with_term)])
        idf = np.log1p((store.n_documents - n_with_term + 0.5) / (n_with_term + 0.5))
        norms = DEFAULT_K1 * (1 - DEFAULT_B + DEFAULT_B * lengths / max(lengths.mean(), 1e-9))
        weights = np.repeat(idf, n_with_term) * found / (found + norms[self._documents])
        self._weights: Floats = weights.astype(np.float32)

    def scores(self, examples: npt.NDArray[np.int64]) -> Floats:
        """Score all documents for the queries of some examples.

        Args:
            examples: (n,) int64, their numbers.

        Returns:
            (n, n_documents) float32 from 0 to 1; all 0 for a query without a term of any document.
        """
        found = np.zeros((len(examples), self._n_documents), np.float32)
        for row, example in zip(found, examples.tolist(), strict=True):
            found_terms = {self._terms.get(term, -1) for term in self._analyzer.terms(self._store.query(example))}
            for term in sorted(found_terms - {-1}):  # sums of one order are the same in every process
                low, high = self._starts[term : term + 2]
                row[self._documents[low:high]] += self._weights[low:high]
        best: Floats = found.max(axis=1, keepdims=True)
        found /= np.maximum(best, np.finfo(np.float32).tiny)
        return found
