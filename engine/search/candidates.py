"""Finds the candidates of each partition for a query, and ranks those of all as a single index of them does.

A candidate is a passage that may be among the best, with its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.filtering.filter import Condition
from quarry.engine.lexical.bm25 import Bm25, Bm25Query
from quarry.engine.options import SearchOptions, uncalibrated_candidates
from quarry.engine.scoring.ranking import Exactness, IdOrder, Key, Ranking, best_places, cut_places
from quarry.engine.search.fusion import fuse
from quarry.engine.search.query import Query, join_vectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.metadata.values import Scalar
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "Candidates",
    "MergedRanking",
    "Retriever",
    "best_of_each",
    "find_scale",
    "merge_candidates",
    "merge_pool",
    "pool_size",
    "rank_candidates",
]

_DEEPENING = 4  # factor of the number of passages that are looked for, if the first are of too few documents
_MIN_CANDIDATES = 300  # of each side in hybrid mode: as many for 10 hits as for 100, so that the first 10 agree

_COLUMNS = ("segments", "docs", "dense", "lexical", "by_vector", "by_terms")
_Columns = tuple[Int64Array, Int64Array, Float32Array, Float32Array, BoolArray, BoolArray]


def pool_size(options: SearchOptions) -> int:
    """Return the number of candidates that a hybrid search takes of each side."""
    return options.candidates or max(uncalibrated_candidates(options.n_retrieved), _MIN_CANDIDATES)


def _document_keys(segments: Int64Array, documents: Int64Array) -> Int64Array:
    """Return a number for each document of a partition that no other has, below 2^48: (n,) int64.

    Args:
        segments: (n,) int64, numbers of their segments, below 2^16.
        documents: (n,) int64, ordinals there, below 2^32.
    """
    return segments << 32 | documents


def best_of_each(scores: Float32Array, documents: Int64Array) -> Int64Array:
    """Return the places of the best passage of each document, ascending; the first of equal ones.

    Args:
        scores: (n,) float32, of passages.
        documents: (n,) int64, a number of the document of each.
    """
    if len(set(documents.tolist())) == len(documents):
        return np.arange(len(documents))
    order = np.lexsort((-scores, documents))
    is_first = np.ones(len(order), bool)
    is_first[1:] = documents[order[1:]] != documents[order[:-1]]
    return np.sort(order[is_first])


class Candidates(NamedTuple):
    """The best passages of one partition for one query, by dense score, by BM25 or by both.

    In hybrid mode they are ordered by segment and ordinal, otherwise best first; and if documents are searched for
    they are then the best passage of each.

    Attributes:
        segments: (n,) int64, number of each passage's segment in the partition.
        docs: (n,) int64, ordinals there.
        dense: (n,) float32, exact dense scores; None in lexical mode.
        lexical: (n,) float32, exact BM25 scores; None in dense mode.
        keys: what orders passages with equal scores: where they are read, or these themselves.
        n_allowed: passages of the partition that may be found; 0 unless in hybrid mode.
        n_documents: documents that these belong to; 0 unless in hybrid mode.
        exactness: the exactness of the ranking by one score.
        by_vector: (n,) bool, which are among the best by dense score; None unless in hybrid mode.
        by_terms: (n,) bool, which are among the best by BM25; None unless in hybrid mode.
        terms: the query's terms with the postings of the partition, if they are needed again.
        documents: (n,) int64, a number of the document that each passage belongs to, if only the best passage of
            each is wanted; None: every passage is.
    """

    segments: Int64Array
    docs: Int64Array
    dense: Float32Array | None
    lexical: Float32Array | None
    keys: IdOrder | Sequence[Key]
    n_allowed: int = 0
    n_documents: int = 0
    exactness: Exactness = Exactness.APPROXIMATE
    by_vector: BoolArray | None = None
    by_terms: BoolArray | None = None
    terms: Bm25Query | None = None
    documents: Int64Array | None = None

    def read_keys(self, places: Int64Array) -> list[Key]:
        """Return the keys of the candidates at these places."""
        if isinstance(self.keys, IdOrder):
            return self.keys.read_keys(self.segments[places], self.docs[places])
        return [self.keys[place] for place in places.tolist()]

    def detached(self) -> Candidates:
        """Return them as values alone, without what belongs to files, for another thread or process."""
        return self._replace(keys=self.read_keys(np.arange(len(self.docs))), terms=None)


def _for_passages(options: SearchOptions, n: int) -> tuple[SearchOptions, int | None]:
    """Return the options of a search by vectors for n passages, and the number of candidates if all are kept."""
    return (options, n) if options.mode == "hybrid" else (options.for_hits(n), None)


class Retriever:
    """Searches one snapshot in any mode; safe to use from several threads.

    Where candidates with equal scores are cut, those with the first ids are kept: so answers are the same however
    the documents are divided among segments and partitions.

    Args:
        segments: the segments of the snapshot.
        dense: searches them by vectors.
    """

    def __init__(self, segments: Sequence[OpenSegment], dense: Searcher) -> None:
        self._dense = dense
        self._n_live = [(segment.n_live_passages, segment.record.n_live) for segment in segments]
        self._passages = [segment.reader.passages for segment in segments]
        n_docs = sum(table.n_docs for table in self._passages)
        n_passages = sum(table.n_passages for table in self._passages)
        self._is_divided = n_passages > n_docs
        self._per_document = max(1, min(_DEEPENING, round(n_passages / max(1, n_docs))))
        self._order = IdOrder(segments)

    def rank_by_vectors(
        self, queries: Sequence[Query], options: SearchOptions, allowed: Sequence[AllowedDocs | None]
    ) -> list[Ranking | None]:
        """Return the best passages of each query by its vector; those with one condition are searched at once.

        Args:
            queries: the queries of one search, at least one.
            options: the options of the search; in mode "lexical" there are no rankings.
            allowed: for each query and segment the passages that may be found; None: all.
        """
        all_rankings: list[Ranking | None] = [None] * len(queries)
        if options.mode == "lexical":
            return all_rankings
        groups: dict[Condition | None, list[int]] = {}
        for number, query in enumerate(queries):
            groups.setdefault(query.condition, []).append(number)
        for numbers in groups.values():
            vectors = join_vectors([queries[number] for number in numbers])
            how, n = _for_passages(options, self._depth(options))
            rankings = self._dense.search(vectors, how, allowed[numbers[0]], n_candidates=n, keep_ties=True)
            for number, ranking in zip(numbers, rankings, strict=True):
                all_rankings[number] = ranking
        return all_rankings

    def find(
        self,
        query: Query,
        by_vector: Ranking | None,
        bm25: Bm25 | None,
        options: SearchOptions,
        allowed: AllowedDocs | None,
    ) -> Candidates:
        """Return the candidates of a query.

        In hybrid mode candidates are the best passages of both sides; those that only one side found are scored
        by the other, so that every candidate has both scores before fusion.

        Args:
            query: with what the mode of the search needs.
            by_vector: the best passages by its vector; None in mode "lexical".
            bm25: lexical scores of the passages; None in mode "dense".
            options: the options of the search.
            allowed: for each segment the passages that may be found; None: all.
        """
        n, vector = self._depth(options), query.vector
        n_allowed, n_documents = self._count(allowed)
        n_wanted = min(options.n_retrieved, n_documents)
        if by_vector is not None:
            assert vector is not None
            own = vector[np.newaxis]

            def search_again(n: int) -> Ranking:
                how, n_candidates = _for_passages(options, n)
                return self._dense.search(own, how, allowed, n_candidates=n_candidates, keep_ties=True)[0]

            by_vector = self._deepen(by_vector, n, n_wanted, options, search_again)
        if bm25 is None:
            assert by_vector is not None
            return self._best(by_vector, options)
        terms = query.look_up(bm25)

        def search(n: int) -> Ranking:
            return terms.top(n, allowed, keep_ties=True)

        by_terms = self._deepen(search(n), n, n_wanted, options, search)
        if by_vector is None or vector is None:
            return self._best(by_terms, options, terms)
        candidates = self._pool(vector, terms, (by_vector, by_terms), options)
        return candidates._replace(n_allowed=n_allowed, n_documents=n_documents)

    def _finds_documents(self, options: SearchOptions) -> bool:
        """Return whether only the best passage of each document is wanted, and a document has several."""
        return self._is_divided and options.unit == "document"

    def _depth(self, options: SearchOptions) -> int:
        """Return the number of passages that are looked for at first."""
        if options.mode == "hybrid":
            return pool_size(options)
        return options.n_retrieved * (self._per_document if self._finds_documents(options) else 1)

    def _deepen(
        self, ranking: Ranking, n: int, n_wanted: int, options: SearchOptions, search: Callable[[int], Ranking]
    ) -> Ranking:
        """Return a ranking, or a deeper one if it is of too few documents; in hybrid mode the best n of it alone.

        Args:
            ranking: the best n passages, and those that tie with the last.
            n: number of passages.
            n_wanted: number of documents.
            options: the options of the search.
            search: returns a ranking like it of another number of passages.
        """
        while True:
            n_found = len(ranking.docs)
            if options.mode == "hybrid":
                ranking = self._order.cut(ranking, n)
            if not self._finds_documents(options) or n_found < n:
                return ranking
            if not _is_of_too_few(self._documents_of(ranking.segments, ranking.docs), n_wanted):
                return ranking
            n *= _DEEPENING
            ranking = search(n)

    def _documents_of(self, segments: Int64Array, passages: Int64Array) -> Int64Array:
        """Return a number of the document that each passage belongs to, (n,) int64; see `_document_keys`."""
        documents = passages.copy()
        for number, table in enumerate(self._passages):
            if table.is_divided:
                inside = segments == number
                documents[inside] = table.documents_of(documents[inside])
        return _document_keys(segments, documents)

    def _count(self, allowed: AllowedDocs | None) -> tuple[int, int]:
        """Return how many passages may be found, and how many documents they belong to."""
        counts = [
            n_live if docs is None else (docs.n, docs.n_documents)
            for n_live, docs in zip(self._n_live, allowed or [None] * len(self._n_live), strict=True)
        ]
        return sum(n for n, _ in counts), sum(n for _, n in counts)

    def _best(self, ranking: Ranking, options: SearchOptions, terms: Bm25Query | None = None) -> Candidates:
        """Return the best passages of a ranking by one score, or the best ones of documents, best first."""
        if self._finds_documents(options):
            ranking = ranking.take(
                best_of_each(ranking.scores, self._documents_of(ranking.segments, ranking.docs))
            )
        best = self._order.best(ranking, options.n_retrieved)
        return Candidates(
            segments=best.segments,
            docs=best.docs,
            dense=best.dense,
            lexical=best.lexical,
            exactness=best.exactness,
            keys=self._order,
            terms=terms,
        )

    def _pool(
        self,
        vector: Float32Array,
        terms: Bm25Query,
        sides: tuple[Ranking, Ranking],
        options: SearchOptions,
    ) -> Candidates:
        parts = [self._score_segment(vector, terms, *sides, segment) for segment in range(len(self._passages))]
        columns = zip(_NO_CANDIDATES, *parts, strict=True)
        segments, docs, dense, lexical, by_vector, by_terms = map(np.concatenate, columns)
        return Candidates(
            segments=segments,
            docs=docs,
            dense=dense,
            lexical=lexical,
            by_vector=by_vector,
            by_terms=by_terms,
            keys=self._order,
            terms=terms,
            documents=self._documents_of(segments, docs) if self._finds_documents(options) else None,
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
        groups: the value of the group of each; None: there are no groups.
    """

    partitions: Int64Array
    documents: Ranking
    groups: Sequence[Scalar | None] | None = None

    def of_partition(self, number: int) -> Ranking:
        """Return the documents of a partition, in their order."""
        inside = self.partitions == number
        return self.documents if inside.all() else self.documents.take(np.flatnonzero(inside))


def rank_candidates(candidates: Candidates, options: SearchOptions, least_range: float = 0.0) -> Ranking:
    """Rank the candidates of an index of one partition for one query; see `merge_candidates`."""
    ranking = _score(candidates, options, least_range)
    if options.mode == "hybrid":
        return ranking.take(_order(ranking, candidates, options))
    return ranking.skip(options.n_skipped) if options.n_skipped else ranking  # they are best first


def merge_candidates(
    candidates: Mapping[int, Candidates], options: SearchOptions, least_range: float = 0.0
) -> MergedRanking:
    """Rank the candidates of partitions for one query.

    Fused scores depend on all candidates of a query, so they cannot be compared between partitions. In hybrid mode
    both sides are therefore first cut to the candidates that one index would take, and these are fused.

    Args:
        candidates: the candidates by the number of their partition.
        options: the options of the search.
        least_range: the least range of the dense scores, see `quarry.engine.search.fusion.fuse`.
    """
    joined, partitions = merge_pool(candidates, options)
    ranking = _score(joined, options, least_range)
    order = _order(ranking, joined, options)
    return MergedRanking(partitions[order], ranking.take(order))


def merge_pool(candidates: Mapping[int, Candidates], options: SearchOptions) -> tuple[Candidates, Int64Array]:
    """Return the candidates that one index of all partitions has, and the numbers of their partitions."""
    joined = _join(candidates)
    partitions = np.repeat(list(candidates), [len(each.docs) for each in candidates.values()])
    if options.mode != "hybrid":
        return joined, partitions
    by_vector = _best_of(joined, joined.dense, joined.by_vector, options)
    pool = np.union1d(by_vector, _best_of(joined, joined.lexical, joined.by_terms, options))
    names = (*_COLUMNS, "documents")
    columns = {name: value[pool] for name in names if (value := getattr(joined, name)) is not None}
    return joined._replace(**columns, keys=joined.read_keys(pool)), partitions[pool]


def _order(ranking: Ranking, candidates: Candidates, options: SearchOptions) -> Int64Array:
    """Return the places of the hits in a ranking, best first: of passages, or of the best one of each document."""
    scores, n = ranking.scores, options.n_retrieved
    if candidates.documents is None:
        return best_places(scores, n, candidates.read_keys)[options.n_skipped :]
    places = best_of_each(scores, candidates.documents)
    best = best_places(scores[places], n, lambda at: candidates.read_keys(places[at]))
    return places[best][options.n_skipped :]


def _score(candidates: Candidates, options: SearchOptions, least_range: float) -> Ranking:
    """Return candidates with what they are ranked by, in their order."""
    segments, docs, dense, lexical = candidates[:4]
    if dense is None or lexical is None:
        scores = lexical if dense is None else dense
        assert scores is not None
        return Ranking(segments, docs, scores, dense, lexical, candidates.exactness)
    scale = find_scale(candidates, options)
    fused = fuse(dense, lexical, options.fusion, options.fusion_weight, least_range, scale)
    exactness = Exactness.EXACT if len(docs) == candidates.n_allowed else Exactness.APPROXIMATE
    return Ranking(segments, docs, fused, dense, lexical, exactness)


def find_scale(candidates: Candidates, options: SearchOptions) -> tuple[Float32Array, Float32Array]:
    """Return the dense and the lexical scores that decide the scale of fused ones, see `fuse`.

    They are those of the first candidates of both sides, as many as of a search for few hits: so scores do not
    depend on how many are asked for. A side on which these are equal is scaled by all. Reciprocal ranks are among
    all candidates, but for those for which a search had to look deeper.
    """
    dense, lexical = candidates.dense, candidates.lexical
    n = pool_size(options) if options.fusion == "rrf" else options.candidates or _MIN_CANDIDATES
    by_vector, by_terms = candidates.by_vector, candidates.by_terms
    assert dense is not None
    assert lexical is not None
    assert by_vector is not None
    assert by_terms is not None
    if max(np.count_nonzero(by_vector), np.count_nonzero(by_terms)) <= n:
        return dense, lexical
    first = np.union1d(_cut_side(candidates, dense, by_vector, n), _cut_side(candidates, lexical, by_terms, n))
    own_dense, own_lexical = (each[first] if np.ptp(each[first]) else each for each in (dense, lexical))
    return own_dense, own_lexical


def _best_of(
    joined: Candidates, scores: Float32Array | None, side: BoolArray | None, options: SearchOptions
) -> Int64Array:
    """Return the places of the best candidates of a side, ascending: as many as `Retriever` takes of one index."""
    assert scores is not None
    assert side is not None
    n, n_wanted = pool_size(options), min(options.n_retrieved, joined.n_documents)
    while True:
        best = _cut_side(joined, scores, side, n)
        if joined.documents is None or len(best) == np.count_nonzero(side):
            return best
        if not _is_of_too_few(joined.documents[best], n_wanted):
            return best
        n *= _DEEPENING


def _cut_side(candidates: Candidates, scores: Float32Array, side: BoolArray, n: int) -> Int64Array:
    """Return the places of the n best candidates of a side, ascending."""
    places = np.flatnonzero(side)
    return places[cut_places(scores[places], n, lambda cut: candidates.read_keys(places[cut]))]


def _is_of_too_few(documents: Int64Array, n_wanted: int) -> bool:
    """Return whether passages, given numbers of their documents, are of fewer than are wanted."""
    return len(set(documents.tolist())) < n_wanted


def _join(candidates: Mapping[int, Candidates]) -> Candidates:
    parts = list(candidates.values())

    def column(name: str) -> Any:  # noqa: ANN401  # an array, or None
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        return np.concatenate(values) if values else None

    documents = None
    if any(part.documents is not None for part in parts):
        numbers = [
            number << 48 | (_document_keys(part.segments, part.docs) if part.documents is None else part.documents)
            for number, part in candidates.items()
        ]
        documents = np.concatenate(numbers)
    return Candidates(
        **{name: column(name) for name in _COLUMNS},
        n_allowed=sum(each.n_allowed for each in parts),
        n_documents=sum(each.n_documents for each in parts),
        exactness=Exactness.weakest(each.exactness for each in parts),
        keys=[key for each in parts for key in each.read_keys(np.arange(len(each.docs)))],
        documents=documents,
    )
