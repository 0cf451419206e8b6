"""One ranking of the candidates of all partitions by fused scores: the one that a single index of them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quarry.engine.options import SearchOptions
from quarry.engine.scoring.ranking import Exactness, Ranking, best_places, cut_places
from quarry.engine.search.candidates import Candidates, pool_size
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["MergedRanking", "fuse", "merge_candidates", "rank_candidates"]

_RANK_OFFSET = 60  # of reciprocal rank fusion (Cormack et al. 2009)
_COLUMNS = ("segments", "docs", "dense", "lexical", "by_vector", "by_terms")


class MergedRanking(NamedTuple):
    """The best documents of all partitions for one query, best first; equal scores are in the order of their ids.

    Attributes:
        partitions: (n,) int64, number of each document's partition.
        documents: the documents, by segment and ordinal in their partitions.
    """

    partitions: Int64Array
    documents: Ranking

    def of_partition(self, number: int) -> Ranking:
        """Return the documents of a partition, in their order."""
        inside = self.partitions == number
        return self.documents if inside.all() else self.documents.take(np.flatnonzero(inside))


def rank_candidates(candidates: Candidates, options: SearchOptions, least_range: float = 0.0) -> Ranking:
    """Rank the candidates of an index of one partition for one query; see `merge_candidates`."""
    ranking = _score(candidates, options, least_range)
    if options.mode == "hybrid":
        return ranking.take(
            best_places(ranking.scores, options.n_retrieved, candidates.read_ids)[options.n_skipped :]
        )
    return ranking.skip(options.n_skipped) if options.n_skipped else ranking  # they are best first


def merge_candidates(
    found: Mapping[int, Candidates], options: SearchOptions, least_range: float = 0.0
) -> MergedRanking:
    """Rank the candidates of partitions for one query.

    Fused scores depend on all candidates of a query, so they cannot be compared between partitions. In hybrid mode
    both sides are therefore first cut to the candidates that one index would take, and these are fused.

    Args:
        found: candidates by number of the partition.
        options: of the search.
        least_range: of the dense scores, see `fuse`.
    """
    joined = _join(list(found.values()))
    partitions = np.repeat(list(found), [len(each.docs) for each in found.values()])
    if options.mode == "hybrid":
        n = pool_size(options)
        by_vector = _best_of(joined, joined.dense, joined.by_vector, n)
        pool = np.union1d(by_vector, _best_of(joined, joined.lexical, joined.by_terms, n))
        columns = {name: getattr(joined, name)[pool] for name in ("segments", "docs", "dense", "lexical")}
        joined, partitions = joined._replace(**columns, ids=joined.read_ids(pool)), partitions[pool]
    ranking = _score(joined, options, least_range)
    order = best_places(ranking.scores, options.n_retrieved, joined.read_ids)[options.n_skipped :]
    return MergedRanking(partitions[order], ranking.take(order))


def _score(candidates: Candidates, options: SearchOptions, least_range: float) -> Ranking:
    """Return candidates with what they are ranked by, in their order."""
    segments, docs, dense, lexical = candidates[:4]
    if dense is None or lexical is None:
        scores = lexical if dense is None else dense
        assert scores is not None
        return Ranking(segments, docs, scores, dense, lexical, candidates.exactness)
    fused = fuse(dense, lexical, options.fusion, options.fusion_weight, least_range)
    exactness = Exactness.EXACT if len(docs) == candidates.n_allowed else Exactness.APPROXIMATE
    return Ranking(segments, docs, fused, dense, lexical, exactness)


def _best_of(joined: Candidates, scores: Float32Array | None, side: BoolArray | None, n: int) -> Int64Array:
    """Return the places of the n best candidates of a side, ascending."""
    assert scores is not None
    assert side is not None
    places = np.flatnonzero(side)
    return places[cut_places(scores[places], n, lambda cut: joined.read_ids(places[cut]))]


def _join(parts: Sequence[Candidates]) -> Candidates:
    def column(name: str) -> Any:  # noqa: ANN401  # an array, or None
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        return np.concatenate(values) if values else None

    return Candidates(
        **{name: column(name) for name in _COLUMNS},
        n_allowed=sum(each.n_allowed for each in parts),
        exactness=Exactness.weakest(each.exactness for each in parts),
        ids=[doc_id for each in parts for doc_id in each.read_ids(np.arange(len(each.docs)))],
    )


def fuse(
    dense: Float32Array,
    lexical: Float32Array,
    fusion: str,
    dense_weight: float,
    least_range: float = 0.0,
) -> Float32Array:
    """Combine the scores of one query's candidates.

    "linear" is the interpolation of Luan et al. 2021 (section 6, "hybrid"), of scores that are min-max normalized
    over the candidates: weight x dense + (1 - weight) x lexical. Where dense scores hardly differ, a full scale
    would turn small differences into large ones; so their range is `least_range` at least.

    "rrf" is reciprocal rank fusion (Cormack et al. 2009): the sum over both rankings of 1 / (60 + rank); a
    document without a term of the query has no rank in the lexical ranking.

    Args:
        dense: (n,) float32, exact dense scores.
        lexical: (n,) float32, exact BM25 scores, 0 for documents without a term of the query.
        fusion: "linear" or "rrf".
        dense_weight: weight of the dense scores in "linear", from 0 to 1.
        least_range: the least difference of dense scores that is scaled to 1, in their unit.

    Returns:
        (n,) float32, larger is better; comparable within the query only.
    """
    if fusion == "rrf":
        return _reciprocal_ranks(dense) + np.where(lexical > 0, _reciprocal_ranks(lexical), np.float32(0))
    weight = np.float32(dense_weight)
    mixed: Float32Array = weight * _normalize_min_max(dense, least_range) + (1 - weight) * _normalize_min_max(
        lexical
    )
    return mixed


def _normalize_min_max(scores: Float32Array, least_range: float = 0.0) -> Float32Array:
    """Scale scores to 0..1, or less if their range is small; equal ones become 1 if they are positive, else 0."""
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if low == high:
        return (scores > 0).astype(np.float32)
    normalized: Float32Array = (scores - low) / max(high - low, np.float32(least_range))
    return normalized


def _reciprocal_ranks(scores: Float32Array) -> Float32Array:
    """Return 1 / (60 + rank), with rank 1 for the best document; equal scores share the better rank."""
    descending = np.sort(-scores)
    ranks = np.searchsorted(descending, -scores, side="left") + 1
    return (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
