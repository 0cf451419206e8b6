"""Finds the candidates of each partition for a query, and ranks those of all as a single index of them does.

A candidate is a document that may be among the best, with its scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.filtering.filter import Condition
from quarry.engine.lexical.bm25 import Bm25, Bm25Query
from quarry.engine.options import SearchOptions, uncalibrated_candidates
from quarry.engine.scoring.ranking import Exactness, IdOrder, Ranking, best_places, cut_places
from quarry.engine.search.fusion import fuse
from quarry.engine.search.query import Query, join_vectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.snapshot import OpenSegment

__all__ = ["Candidates", "MergedRanking", "Retriever", "merge_candidates", "pool_size", "rank_candidates"]

_MIN_CANDIDATES = 300  # of each side in hybrid mode: as many for 10 hits as for 100, so that the first 10 agree

_COLUMNS = ("segments", "docs", "dense", "lexical", "by_vector", "by_terms")
_Columns = tuple[Int64Array, Int64Array, Float32Array, Float32Array, BoolArray, BoolArray]


def pool_size(options: SearchOptions) -> int:
    """Return the number of candidates that a hybrid search takes of each side."""
    return options.candidates or max(uncalibrated_candidates(options.n_retrieved), _MIN_CANDIDATES)


class Candidates(NamedTuple):
    """The best documents of one partition for one query, by dense score, by BM25 or by both.

    In hybrid mode they are ordered by segment and ordinal, otherwise best first.

    Attributes:
        segments: (n,) int64, number of each document's segment in the partition.
        docs: (n,) int64, ordinals there.
        dense: (n,) float32, exact dense scores; None in lexical mode.
        lexical: (n,) float32, exact BM25 scores; None in dense mode.
        ids: of the documents: where they are read, or these themselves.
        n_allowed: documents of the partition that may be found; 0 unless in hybrid mode.
        exactness: of the ranking by one score.
        by_vector: (n,) bool, which are among the best by dense score; None unless in hybrid mode.
        by_terms: (n,) bool, which are among the best by BM25; None unless in hybrid mode.
        terms: the query's terms with the postings of the partition, if they are needed again.
    """

    segments: Int64Array
    docs: Int64Array
    dense: Float32Array | None
    lexical: Float32Array | None
    ids: IdOrder | Sequence[str]
    n_allowed: int = 0
    exactness: Exactness = Exactness.APPROXIMATE
    by_vector: BoolArray | None = None
    by_terms: BoolArray | None = None
    terms: Bm25Query | None = None

    def read_ids(self, places: Int64Array) -> list[str]:
        """Return the ids of the candidates at these places."""
        if isinstance(self.ids, IdOrder):
            return self.ids.read_ids(self.segments[places], self.docs[places])
        return [self.ids[place] for place in places.tolist()]

    def detached(self) -> Candidates:
        """Return them as values alone, without what belongs to files, for another thread or process."""
        return self._replace(ids=self.read_ids(np.arange(len(self.docs))), terms=None)


class Retriever:
    """Searches one snapshot in any mode; safe to use from several threads.

    Where candidates with equal scores are cut, those with the first ids are kept: so answers are the same however
    the documents are divided among segments and partitions.

    Args:
        segments: of the snapshot.
        dense: searches them by vectors.
    """

    def __init__(self, segments: Sequence[OpenSegment], dense: Searcher) -> None:
        self._dense = dense
        self._n_docs = [segment.record.n_live for segment in segments]
        self._order = IdOrder(segments)

    def rank_by_vectors(
        self, queries: Sequence[Query], options: SearchOptions, allowed: Sequence[AllowedDocs | None]
    ) -> list[Ranking | None]:
        """Return the best documents of each query by its vector; those with one condition are searched at once.

        Args:
            queries: of one search, at least one.
            options: of the search; in mode "lexical" there are no rankings.
            allowed: for each query and segment the documents that may be found; None: all.
        """
        found: list[Ranking | None] = [None] * len(queries)
        if options.mode == "lexical":
            return found
        n = pool_size(options) if options.mode == "hybrid" else None
        groups: dict[Condition | None, list[int]] = {}
        for number, query in enumerate(queries):
            groups.setdefault(query.condition, []).append(number)
        for numbers in groups.values():
            vectors = join_vectors([queries[number] for number in numbers])
            rankings = self._dense.search(vectors, options, allowed[numbers[0]], n_candidates=n, keep_ties=True)
            for number, ranking in zip(numbers, rankings, strict=True):
                found[number] = ranking
        return found

    def find(
        self,
        query: Query,
        by_vector: Ranking | None,
        bm25: Bm25 | None,
        options: SearchOptions,
        allowed: AllowedDocs | None,
    ) -> Candidates:
        """Return the candidates of a query.

        In hybrid mode candidates are the best documents of both sides; those that only one side found are scored
        by the other, so that every candidate has both scores before fusion.

        Args:
            query: with what the mode of the search needs.
            by_vector: the best documents by its vector; None in mode "lexical".
            bm25: lexical scores of the documents; None in mode "dense".
            options: of the search.
            allowed: for each segment the documents that may be found; None: all.
        """
        if bm25 is None:
            assert by_vector is not None
            return self._best(by_vector, options)
        terms, vector = query.look_up(bm25), query.vector
        if by_vector is None or vector is None:
            return self._best(terms.top(options.n_retrieved, allowed, keep_ties=True), options, terms)
        n = pool_size(options)
        sides = self._order.cut(by_vector, n), self._order.cut(terms.top(n, allowed, keep_ties=True), n)
        return self._pool(vector, terms, sides, self._count_allowed(allowed))

    def _count_allowed(self, allowed: AllowedDocs | None) -> int:
        if allowed is None:
            return sum(self._n_docs)
        return sum(n if docs is None else docs.n for n, docs in zip(self._n_docs, allowed, strict=True))

    def _best(self, ranking: Ranking, options: SearchOptions, terms: Bm25Query | None = None) -> Candidates:
        """Return the best documents of a ranking by one score, best first."""
        best = self._order.best(ranking, options.n_retrieved)
        return Candidates(
            segments=best.segments,
            docs=best.docs,
            dense=best.dense,
            lexical=best.lexical,
            exactness=best.exactness,
            ids=self._order,
            terms=terms,
        )

    def _pool(
        self, vector: Float32Array, terms: Bm25Query, sides: tuple[Ranking, Ranking], n_allowed: int
    ) -> Candidates:
        parts = [self._score_segment(vector, terms, *sides, segment) for segment in range(len(self._n_docs))]
        columns = zip(_NO_CANDIDATES, *parts, strict=True)
        segments, docs, dense, lexical, by_vector, by_terms = map(np.concatenate, columns)
        return Candidates(
            segments=segments,
            docs=docs,
            dense=dense,
            lexical=lexical,
            by_vector=by_vector,
            by_terms=by_terms,
            n_allowed=n_allowed,
            ids=self._order,
            terms=terms,
        )

    def _score_segment(
        self, vector: Float32Array, terms: Bm25Query, by_vector: Ranking, by_terms: Ranking, segment: int
    ) -> _Columns:
        """Return the candidates of one segment, ordered by ordinal: the first columns of `Candidates`."""
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
            dense[~is_known] = self._dense.rescorer(segment).scores(vector, docs[~is_known])
        segments = np.full(len(docs), segment, np.int64)
        return segments, docs, dense, terms.score_documents(segment, docs), is_known, has_terms


_NO_CANDIDATES: _Columns = (
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, bool),
    np.empty(0, bool),
)


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
        least_range: of the dense scores, see `quarry.engine.search.fusion.fuse`.
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
