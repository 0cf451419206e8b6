"""The shards of one index at their generations, searched as one index: what changes together at a refresh."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.filtering.evaluation import Kinds, find_unknown_paths, join_kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.filtering.unknown_fields import find_nearest_names
from quarry.engine.index.base_view import BaseView, ViewResources
from quarry.engine.lexical.close_terms import CloseTerm
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.listing.documents import StoredDocuments
from quarry.engine.listing.facets import FacetCounts, FacetRequest, Facets
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Queries, Vectors, to_host_vectors
from quarry.engine.scoring.ranking import Exactness, Ranking
from quarry.engine.search.hits.hit_builder import set_metric_scores
from quarry.engine.search.hits.hits import Coverage, Hit, Hits
from quarry.engine.search.relevance import BackgroundSample, RelevanceEstimator, merge_samples
from quarry.engine.search.similar import SimilarQuery
from quarry.engine.shards.candidates import ShardCandidates
from quarry.engine.shards.collection import ShardedCollection
from quarry.engine.shards.gathering import Gathering, ShardThreads
from quarry.engine.shards.merging import MergedRanking, merge_candidates
from quarry.engine.shards.shard import HitRequest, Shard
from quarry.engine.shards.statistics import ShardStatistics, sharded_statistics
from quarry.formats.manifest import with_documents
from quarry.formats.shard_set import ShardSet, shard_of

__all__ = ["ShardedView"]

_MAX_CHECKED = 256
_MAX_COLLECTIONS = 4
_NO_FAILURES: Mapping[int, Exception] = {}

Answers = Mapping[int, Sequence[ShardCandidates]]
"""For each shard that answered, by its number, its candidates for each query."""


class ShardedView(BaseView):
    """Shards with their searchers, from queries to hits; safe to use from several threads.

    Every shard returns its best candidates with both scores, computed with the statistics of all shards. They are
    ranked here as one index ranks them; texts are then read from the shards of the hits alone.

    Args:
        path: folder of the index.
        shard_set: names the shards.
        shards: at their generations.
        threads: of the shards.
        resources: shared resources.
        failures: by their numbers, the errors of shards whose newest generation cannot be opened. They are not
            asked; their generation before has the number of their documents.
    """

    def __init__(
        self,
        path: Path,
        shard_set: ShardSet,
        shards: Sequence[Shard],
        threads: ShardThreads,
        resources: ViewResources,
        failures: Mapping[int, Exception] = _NO_FAILURES,
    ) -> None:
        manifest = with_documents(shard.snapshot.manifest for shard in shards)
        super().__init__(manifest, path, resources)
        self.failures = failures
        self.shard_set = shard_set
        self.shards = tuple(shards)
        self.metric = Metric.of(manifest)
        self._threads = threads
        self._names = [shard.name for shard in shards]
        self._analysis = LexicalSearcher(shards[0].snapshot, 0)
        self._lock = threading.Lock()
        self._collections: dict[frozenset[int], _SearchedCollection] = {}  # by the shards that are missing
        self._estimators: dict[frozenset[int], RelevanceEstimator] = {}  # likewise
        self._checked: set[Condition] = set()

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted, in all shards."""
        return sum(shard.n_documents for shard in self.shards)

    def has(self, doc_id: str) -> bool:
        """Return whether there is a document with an id."""
        return bool(self._owner(doc_id).documents([doc_id]))

    def documents(self, ids: Iterable[str], *, with_vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored."""
        return [document for doc_id in ids for document in self._owner(doc_id).documents([doc_id], with_vectors)]

    def _owner(self, doc_id: str) -> Shard:
        return self.shards[shard_of(doc_id, len(self.shards))]

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        gathering = self._gathering()
        self._check_filter(condition, gathering)
        return sum(gathering.run(lambda number: self.shards[number].count(condition)).values())

    def stored(self, condition: Condition | None) -> StoredDocuments:
        """Return the documents that satisfy a condition, to be read shard by shard; None: all."""
        self._check_filter(condition, self._gathering())
        segments = [segment for shard in self.shards for segment in shard.segments]
        allowed = [docs for shard in self.shards for docs in shard.allowed(condition)]
        return StoredDocuments(segments, allowed, self._path)

    def facets(self, request: FacetRequest, condition: Condition | None) -> Facets:
        """Return counts of values, see `quarry.engine.engine.Engine.facets`."""
        gathering = self._gathering()
        self._check_filter(condition, gathering)
        query = request.query
        options = SearchOptions(operators=request.operators)
        collection = None if query is None else self._collection([query], gathering, options)

        def count(number: int) -> list[FacetCounts]:
            searcher = None if collection is None else collection.searchers[number]
            return self.shards[number].count_facets(request, condition, searcher)

        return request.sum(each for counts in gathering.run(count).values() for each in counts)

    def statistics(self) -> dict[str, object]:
        """Describe the shards and what searches them; see `quarry.engine.shards.statistics`."""
        made = self._collections.get(frozenset())

        def describe(number: int) -> ShardStatistics:
            return self.shards[number].describe(made.searchers[number].posting_bytes if made else 0)

        found = self._gathering().run(describe)
        return sharded_statistics(list(found.values()))

    def _search(self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None) -> list[Hits]:
        queries: Queries | None = None
        if vectors is not None:
            queries = metric_queries(self.metric, vectors)
        elif options.mode != "lexical":
            assert texts is not None
            self.check_encoder()
            if options.mode == "dense":
                queries = self._resources.encode(texts, self._encoder_record, self.metric)
        return self._find(texts, queries, options)

    def search_like(self, options: SearchOptions) -> Hits:
        """Return the hits like the document `options.like`, see `quarry.engine.options.SearchOptions`."""
        # every word of the query is in the index
        options = replace(options.for_index(self._dense_weight), typos=False, operators=False)
        doc_id = str(options.like)
        query = self._find_similar(doc_id, options.timeout)
        queries = query.vector(self.metric)
        if options.mode == "dense":
            return self._find(None, queries, options)[0]
        gathering = self._gathering(options.partial, options.timeout)
        # not parsed as the text of a query, in which a character of an unspaced script would be a prefix
        collection = self._collection_of(self._analysis.terms(query.text), (), gathering, options)
        texts = [query.words(self._analysis.terms, collection.statistics)]
        return self._find(texts, None if options.mode == "lexical" else queries, options)[0]

    def _find_similar(self, doc_id: str, timeout: float | None) -> SimilarQuery:
        """Return a document as a query; without its shard there is none, also if answers may be partial."""
        owner = shard_of(doc_id, len(self.shards))
        gathering = Gathering(self._threads, self._names, timeout=timeout)
        return gathering.run(lambda number: self.shards[number].find_similar(doc_id, self._path), [owner])[owner]

    def _find(self, texts: list[str] | None, vectors: Queries | None, options: SearchOptions) -> list[Hits]:
        """Return the hits of each query, given by what its mode needs: a text, a vector, or both."""
        gathering = self._gathering(options.partial, options.timeout)
        if options.min_relevance is not None:
            self._make_estimator(self.metric, BackgroundSample.empty).require(options.mode)
        self._check_filter(options.condition, gathering)
        if texts is None or options.mode == "dense":
            assert vectors is not None
            asked = vectors
            answers = gathering.run(lambda number: self.shards[number].find_dense(asked, options))
            found = self._all_hits(answers, _Queries(options, to_host_vectors(vectors), texts), gathering)
            set_metric_scores(self.metric, vectors, found, is_dense=True)
            return found
        collection = self._collection(texts, gathering, options)
        if options.mode == "lexical":
            answers = gathering.run(lambda number: collection.searchers[number].find_lexical(texts, options))
            return self._all_hits(answers, _Queries(options, None, texts), gathering, collection)
        lexical = next(iter(collection.searchers.values())).lexical  # all know the terms of all shards
        if vectors is None:
            meant = [lexical.correct(text, options) for text in texts] if options.typos else texts
            vectors = self._resources.encode(meant, self._encoder_record, self.metric)
        queries = vectors
        answers = gathering.run(lambda number: collection.searchers[number].find_both(queries, texts, options))
        found = self._all_hits(answers, _Queries(options, to_host_vectors(queries), texts), gathering, collection)
        set_metric_scores(self.metric, queries, found, is_dense=False)
        return found

    def _gathering(self, allow_partial: bool = False, timeout: float | None = None) -> Gathering:
        return Gathering(self._threads, self._names, allow_partial, timeout, self.failures)

    def _check_filter(self, condition: Condition | None, gathering: Gathering) -> None:
        """Evaluate a filter on all shards; check types and fields against the values of all of them together.

        Raises:
            InvalidFilter: an operand is of another type than all values at its path.
        """
        if condition is None or condition in self._checked:
            return
        found = gathering.run(lambda number: self.shards[number].evaluate(condition))
        kinds = join_kinds(found.values())
        if kinds is None or gathering.missing:  # what all documents have is not known
            return
        self.check_filter(condition, kinds)
        with self._lock:
            if len(self._checked) >= _MAX_CHECKED:
                self._checked = set()
            self._checked.add(condition)

    def check_filter(self, condition: Condition, kinds: Kinds) -> None:
        """Raise InvalidFilter or warn, see `quarry.engine.filtering.cache.DocumentFilter.check`."""
        for field in find_unknown_paths(condition, kinds):
            self._resources.unknown_fields.warn(field, partial(self._find_nearest, field))

    def _find_nearest(self, field: str) -> list[str]:
        names = {name for shard in self.shards for name in shard.find_nearest(field)}
        return find_nearest_names(field, names, lambda _: True)

    def _collection(
        self, texts: Sequence[str], gathering: Gathering, options: SearchOptions
    ) -> _SearchedCollection:
        """Return searchers that know the frequencies of the terms of these texts in all shards that answer."""
        parsed = [self._analysis.parse(text, options) for text in texts]
        terms = [term for each in parsed for term in each.terms]
        free = [term for each in parsed for term in each.free]
        return self._collection_of(terms, free, gathering, options)

    def _collection_of(
        self, terms: Sequence[str], free: Sequence[str], gathering: Gathering, options: SearchOptions
    ) -> _SearchedCollection:
        """Return searchers that know the frequencies of these terms in all shards that answer.

        Args:
            terms: of queries.
            free: those that may be mistyped.
            gathering: asks the shards.
            options: whether typing errors are corrected.
        """
        while True:
            missing = frozenset(gathering.missing)
            made = self._collections.get(missing)
            if made is None:
                sizes = gathering.run(lambda number: self.shards[number].measure())
                if missing != gathering.missing.keys():
                    continue
                collection = ShardedCollection(sizes.values())
                made = self._keep(missing, _SearchedCollection(collection, self.shards, missing))
            new = made.statistics.find_unknown(terms)
            if new:
                found = gathering.run(lambda number, new=new: self.shards[number].document_frequencies(new))  # type: ignore[misc]
                if missing != gathering.missing.keys():
                    continue
                made.statistics.learn(new, found.values())
            if not options.typos or all(self._learn_expansions(made, free, edits, gathering) for edits in (1, 2)):
                return made

    def _learn_expansions(
        self, made: _SearchedCollection, terms: Sequence[str], n_edits: int, gathering: Gathering
    ) -> bool:
        """Learn what stands for the terms that no document has; return whether the same shards are missing."""
        mistyped = made.statistics.find_unexpanded(terms, n_edits)
        if not mistyped:
            return True
        n_missing = len(gathering.missing)
        close = gathering.run(lambda number: self.shards[number].close_terms(mistyped, n_edits))
        together = [set[CloseTerm]().union(*several) for several in zip(*close.values(), strict=True)]
        new = made.statistics.find_unknown(each.name for several in together for each in several)
        found = gathering.run(lambda number: self.shards[number].document_frequencies(new)) if new else {}
        if len(gathering.missing) > n_missing:
            return False
        made.statistics.learn(new, found.values())
        for term, several in zip(mistyped, together, strict=True):
            made.statistics.learn_expansions(term, several, n_edits)
        return True

    def _find_estimator(self, mode: str, gathering: Gathering) -> RelevanceEstimator:
        """Return what estimates relevance with the background of the shards that answer."""
        if self._make_estimator(self.metric, BackgroundSample.empty).model(mode) is None or mode == "lexical":
            return self._make_estimator(self.metric, BackgroundSample.empty)
        while True:
            missing = frozenset(gathering.missing)
            made = self._estimators.get(missing)
            if made is not None:
                return made
            samples = gathering.run(lambda number: self.shards[number].background)
            if missing == gathering.missing.keys():
                made = self._make_estimator(self.metric, partial(merge_samples, list(samples.values())))
                if len(self._estimators) < _MAX_COLLECTIONS:
                    self._estimators[missing] = made
                return made

    def _keep(self, missing: frozenset[int], made: _SearchedCollection) -> _SearchedCollection:
        with self._lock:
            if len(self._collections) >= _MAX_COLLECTIONS:
                self._collections = {key: each for key, each in self._collections.items() if not key}
            return self._collections.setdefault(missing, made)

    def _all_hits(
        self,
        answers: Answers,
        queries: _Queries,
        gathering: Gathering,
        collection: _SearchedCollection | None = None,
    ) -> list[Hits]:
        """Merge the candidates for each query and read the hits; again if a shard fails that has some of them."""
        while True:
            estimator = self._find_estimator(queries.options.mode, gathering)
            answers = {number: each for number, each in answers.items() if number not in gathering.missing}
            n_queries = len(next(iter(answers.values())))
            rankings = [
                merge_candidates({number: each[query] for number, each in answers.items()}, queries.options)
                for query in range(n_queries)
            ]
            missing = set(gathering.missing)
            owners = sorted({int(number) for ranking in rankings for number in np.unique(ranking.shards)})
            parts = gathering.run(partial(self._read, rankings, queries, collection, estimator), owners)
            if missing == gathering.missing.keys():
                break
        coverage = self._coverage(gathering)
        found = (_hits(ranking, number, parts, coverage) for number, ranking in enumerate(rankings))
        return [hits.at_least(queries.options.min_relevance) for hits in found]

    def _read(
        self,
        rankings: Sequence[MergedRanking],
        queries: _Queries,
        collection: _SearchedCollection | None,
        estimator: RelevanceEstimator,
        number: int,
    ) -> list[list[Hit]]:
        """Read the hits of one shard: for each query those in its ranking, in their order."""
        requests = []
        for query, ranking in enumerate(rankings):
            own = np.flatnonzero(ranking.shards == number)
            documents = Ranking(
                ranking.segments[own],
                ranking.docs[own],
                ranking.scores[own],
                None if ranking.dense is None else ranking.dense[own],
                None if ranking.lexical is None else ranking.lexical[own],
            )
            vector = None if queries.vectors is None else queries.vectors[query]
            text = None if queries.texts is None else queries.texts[query]
            relevance = estimator.prepare(queries.options.mode, vector)
            requests.append(HitRequest(documents, vector, text, relevance))
        searcher = None if collection is None else collection.searchers[number]
        return self.shards[number].read(requests, queries.options, searcher)

    def _coverage(self, gathering: Gathering) -> Coverage:
        missing = gathering.missing
        n_missing = sum(self.shards[number].n_documents for number in missing)
        return Coverage(
            n_shards=len(self.shards),
            n_documents=self.n_documents,
            n_reached=self.n_documents - n_missing,
            missing={self._names[number]: missing[number] for number in sorted(missing)},
            generations=self.different_generations(),
        )

    def different_generations(self) -> dict[str, tuple[int, ...]]:
        """Return the generations of shards of which there are copies at several; see `Coverage.generations`."""
        return {}


class _SearchedCollection:
    """The statistics of the shards that answer, and searchers that use them."""

    def __init__(self, statistics: ShardedCollection, shards: Sequence[Shard], missing: frozenset[int]) -> None:
        self.statistics = statistics
        self.searchers = {
            number: shard.searcher(statistics) for number, shard in enumerate(shards) if number not in missing
        }


class _Queries:
    """The queries of a search: texts, their vectors, or both."""

    def __init__(self, options: SearchOptions, vectors: Vectors | None, texts: Sequence[str] | None) -> None:
        self.options = options
        self.vectors = vectors
        self.texts = texts


def _hits(
    ranking: MergedRanking, query: int, parts: Mapping[int, Sequence[Sequence[Hit]]], coverage: Coverage
) -> Hits:
    """The hits of one query, those of all shards in the order of the ranking."""
    following = {number: iter(each[query]) for number, each in parts.items()}
    found = [next(following[number]) for number in ranking.shards.tolist()]
    return Hits(found, ranking.exactness if coverage.is_complete else Exactness.PARTIAL, coverage)
