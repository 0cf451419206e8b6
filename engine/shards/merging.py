"""One ranking of the candidates of all shards: the one that a single index of the same documents has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from quarry.engine.options import SearchOptions
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.fusion import fuse
from quarry.engine.search.id_order import best_places, cut_places
from quarry.engine.search.retriever import pool_size
from quarry.engine.shards.candidates import ShardCandidates
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["MergedRanking", "merge_candidates"]


class MergedRanking(NamedTuple):
    """The best documents of all shards for one query, best first; equal scores are in the order of their ids.

    Attributes:
        shards: (n,) int64, number of each document's shard.
        ids: of the documents.
        segments: (n,) int64, numbers of their segments in their shards.
        docs: (n,) int64, ordinals there.
        scores: (n,) float32, what they are ranked by.
        dense: (n,) float32, exact dense scores; None in lexical mode.
        lexical: (n,) float32, exact BM25 scores; None in dense mode.
        exactness: what is known about all other documents of these shards.
    """

    shards: Int64Array
    ids: Sequence[str]
    segments: Int64Array
    docs: Int64Array
    scores: Float32Array
    dense: Float32Array | None
    lexical: Float32Array | None
    exactness: Exactness


def merge_candidates(found: Mapping[int, ShardCandidates], options: SearchOptions) -> MergedRanking:
    """Rank the candidates of shards for one query.

    Fused scores depend on all candidates of a query, so they cannot be compared between shards. In hybrid mode
    both sides are therefore first cut to the candidates that one index would take, and these are fused.

    Args:
        found: candidates by number of the shard.
        options: of the search.
    """
    joined = _join(found)
    shards = np.repeat(list(found), [len(each.ids) for each in found.values()]).astype(np.int64)
    exactness = Exactness.weakest(each.exactness for each in found.values())
    if options.mode == "hybrid":
        pool = _pool(joined, pool_size(options))
        joined, shards = joined.take(pool), shards[pool]
        assert joined.dense is not None
        assert joined.lexical is not None
        scores = fuse(joined.dense, joined.lexical, options.fusion, options.fusion_weight)
        exactness = Exactness.EXACT if len(pool) == joined.n_allowed else Exactness.APPROXIMATE
    else:
        chosen = joined.dense if options.mode == "dense" else joined.lexical
        assert chosen is not None
        scores = chosen
    order = best_places(scores, options.n_retrieved, joined.read_ids)[options.n_skipped :]
    best = joined.take(order)
    return MergedRanking(
        shards[order], best.ids, best.segments, best.docs, scores[order], best.dense, best.lexical, exactness
    )


def _pool(joined: ShardCandidates, n: int) -> Int64Array:
    """Return the places of the n best candidates of each side, ascending."""
    assert joined.dense is not None
    assert joined.lexical is not None
    by_vector = _best_of(joined, joined.dense, joined.by_vector, n)
    by_terms = _best_of(joined, joined.lexical, joined.by_terms, n)
    return np.union1d(by_vector, by_terms)


def _best_of(joined: ShardCandidates, scores: Float32Array, side: BoolArray, n: int) -> Int64Array:
    places = np.flatnonzero(side)
    return places[cut_places(scores[places], n, lambda cut: joined.read_ids(places[cut]))]


def _join(found: Mapping[int, ShardCandidates]) -> ShardCandidates:
    parts = list(found.values())
    dense = [each.dense for each in parts if each.dense is not None]
    lexical = [each.lexical for each in parts if each.lexical is not None]
    return ShardCandidates(
        ids=[doc_id for each in parts for doc_id in each.ids],
        segments=np.concatenate([each.segments for each in parts]),
        docs=np.concatenate([each.docs for each in parts]),
        dense=np.concatenate(dense) if dense else None,
        lexical=np.concatenate(lexical) if lexical else None,
        by_vector=np.concatenate([each.by_vector for each in parts]),
        by_terms=np.concatenate([each.by_terms for each in parts]),
        n_allowed=sum(each.n_allowed for each in parts),
        exactness=Exactness.weakest(each.exactness for each in parts),
    )
