"""Measures of one ranking against the judged documents of its query, as trec_eval defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["measure_ndcg", "measure_recall", "measure_reciprocal_rank"]


def measure_ndcg(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return nDCG@k with linear gain (Järvelin and Kekäläinen 2002, with the discount 1 / log2(rank + 1)).

    Args:
        ranking: ids of documents, best first.
        judged: score of each judged document; others have score 0, as have documents with negative scores.
        k: number of documents that count.
    """
    best = _discounted_gain(sorted((max(0, score) for score in judged.values()), reverse=True)[:k])
    return _discounted_gain([max(0, judged.get(doc_id, 0)) for doc_id in ranking[:k]]) / best if best else 0.0


def measure_recall(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return the share of the documents with score 1 or higher that are among the first k; 0 without any."""
    relevant = {doc_id for doc_id, score in judged.items() if score >= 1}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def measure_reciprocal_rank(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> float:
    """Return 1 / rank of the first document with score 1 or higher, 0 if it is not among the first k."""
    for rank, doc_id in enumerate(ranking[:k], 1):
        if judged.get(doc_id, 0) >= 1:
            return 1 / rank
    return 0.0


def _discounted_gain(gains: Sequence[int]) -> float:
    return float(np.sum(np.array(gains) / np.log2(np.arange(2, len(gains) + 2))))
