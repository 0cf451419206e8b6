"""nDCG@10 as `bench` and trec_eval define it, without their libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["ndcg_10"]


def ndcg_10(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> float:
    """The mean nDCG@10 over the judged queries, with linear gain.

    A document's gain is its judged score, 0 if it is not judged or judged below 0; the discount of rank r is
    log2(r + 1); equal scores are ranked by document id, descending, as in trec_eval.

    Args:
        qrels: for each query id the judged documents' ids and scores; not empty.
        run: for each query id the documents found and their scores, larger is better; nothing was found for a
            query that is missing.
    """
    total = 0.0
    for query, judged in qrels.items():
        found = sorted(run.get(query, {}).items(), key=lambda item: (item[1], item[0]), reverse=True)
        gains = [judged.get(document, 0) for document, _ in found[:10]]
        best = _discounted(sorted(judged.values(), reverse=True)[:10])
        total += _discounted(gains) / best if best > 0 else 0.0
    return total / len(qrels)


def _discounted(gains: list[int]) -> float:
    return sum(max(gain, 0) / math.log2(rank + 2) for rank, gain in enumerate(gains))
