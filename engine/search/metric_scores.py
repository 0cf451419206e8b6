"""Scores of hits in the metric of an index, of which the search itself knows inner products alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.query_vectors import Queries, Vectors, to_host_vectors
from quarry.engine.search.hits.hits import Hits

__all__ = ["metric_queries", "set_metric_scores"]


def metric_queries(metric: Metric, vectors: Queries) -> Queries:
    """Return (n, dim) query vectors as the index compares them: (n, stored_dim); see `Metric.queries`."""
    return vectors if metric.name == "ip" else metric.queries(to_host_vectors(vectors))


def set_metric_scores(metric: Metric, queries: Queries | None, found: Iterable[Hits], *, is_dense: bool) -> None:
    """Replace the dense scores of hits, and the scores of their matches, by those that users know.

    Args:
        metric: of the index.
        queries: (n, stored_dim), one for the hits of each; None: nothing was searched by vectors.
        found: hits of each query; changed.
        is_dense: whether the hits are ranked by dense scores.
    """
    if metric.name != "l2" or queries is None:
        return
    for query, hits in zip(to_host_vectors(queries), found, strict=True):
        for hit in hits:
            if hit.dense_score is not None:
                hit.dense_score = _score(metric, query, hit.dense_score)
            if is_dense:
                hit.score = _score(metric, query, hit.score)
            hit.matches = tuple(replace(match, score=_score(metric, query, match.score)) for match in hit.matches)


def _score(metric: Metric, query: Vectors, product: float) -> float:
    return float(metric.scores(query, np.array([product], np.float32))[0])
