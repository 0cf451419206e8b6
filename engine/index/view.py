"""One open generation of an index, with all that answers queries about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.evaluation import Kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.index.base_view import BaseView, ViewResources
from quarry.engine.index.memory import plan_memory
from quarry.engine.index.statistics import index_statistics, resource_statistics
from quarry.engine.index.stored_documents import stored_documents
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.listing.documents import StoredDocuments
from quarry.engine.listing.facets import FacetRequest, Facets, count_values, select_documents
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Queries, Vectors
from quarry.engine.search.hits.hit_builder import HitBuilder, set_metric_scores
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.relevance import sample_background
from quarry.engine.search.retriever import Answer, Retriever
from quarry.engine.search.searcher import Searcher
from quarry.engine.search.similar import find_document
from quarry.formats.snapshot import Snapshot

__all__ = ["IndexView"]


class IndexView(BaseView):
    """A snapshot with its searchers: from queries to hits. Safe to use from several threads.

    Args:
        snapshot: the snapshot; searches in progress continue when it is closed.
        resources: shared resources.
        before: searcher of another generation, whose backends are reused.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        resources: ViewResources,
        before: Searcher | None = None,
    ) -> None:
        super().__init__(snapshot.manifest, snapshot.directory.path, resources)
        self.snapshot = snapshot
        self.metric = Metric.of(snapshot.manifest)
        self._segments = snapshot.segments
        self._plan = plan_memory(snapshot, resources.options.memory_bytes)
        self.searcher = Searcher(snapshot, resources.options, self._plan.backend_bytes, resources.device, before)
        self._lexical = LexicalSearcher(snapshot, self._plan.posting_bytes)
        self.filter = DocumentFilter(
            snapshot.segments, self._plan.filter_bytes, self._lexical.terms, resources.unknown_fields
        )
        self._retriever = Retriever(snapshot.segments, self.searcher, self._lexical)
        self._hits = HitBuilder(snapshot, self.searcher)
        self._relevance = self._make_estimator(
            self.metric, partial(sample_background, snapshot.segments, self.searcher)
        )

    def next_view(self, snapshot: Snapshot, *, is_reusing: bool) -> IndexView:
        """Return the view of another generation.

        Args:
            snapshot: the snapshot of that generation.
            is_reusing: whether open backends are reused; otherwise a backend is chosen again for each segment.
        """
        return IndexView(snapshot, self._resources, self.searcher if is_reusing else None)

    def with_encoder(self, snapshot: Snapshot, encoder: Encoder) -> IndexView:
        """Return the view of a generation whose vectors are of another encoder."""
        return IndexView(snapshot, replace(self._resources, chosen_encoder=encoder))

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return len(self.snapshot)

    def has(self, doc_id: str) -> bool:
        """Return whether there is a document with an id."""
        return self.snapshot.find(doc_id) is not None

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        return self.filter.count(condition)

    def check_filter(self, condition: Condition, kinds: Kinds) -> None:
        """Raise InvalidFilter or warn, see `quarry.engine.filtering.cache.DocumentFilter.check`."""
        self.filter.check(condition, kinds)

    def stored(self, condition: Condition | None) -> StoredDocuments:
        """Return the documents that satisfy a condition, to be read one after another; None: all."""
        return StoredDocuments(self._segments, self.filter.allowed(condition), self._path)

    def facets(self, request: FacetRequest, condition: Condition | None) -> Facets:
        """Return counts of values, see `quarry.engine.engine.Engine.facets`."""
        terms = (
            None
            if request.query is None
            else self._lexical.query(request.query, SearchOptions(operators=request.operators))
        )
        docs = select_documents(self._segments, self.filter.allowed(condition), terms)
        counts = (
            count_values(each, request.field, flags) for each, flags in zip(self._segments, docs, strict=True)
        )
        return request.sum(counts)

    def statistics(self) -> dict[str, object]:
        """Return the statistics of the generation and its backends, see `quarry.engine.index.statistics`."""
        options, plan = self._resources.options, self._plan
        held = {"postings": self._lexical.resident_bytes, "filters": self.filter.resident_bytes}
        return index_statistics(self.snapshot) | resource_statistics(
            self.snapshot, options, self.searcher, plan, held
        )

    def _search(self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None) -> list[Hits]:
        queries: Queries | None = None
        if options.mode == "lexical":
            assert texts is not None
            answers = self._retriever.search_lexical(texts, options, self.filter.allowed(options.condition))
        else:
            queries = self._queries(texts, vectors, options)
            allowed = self.filter.allowed(options.condition)
            if options.mode == "dense":
                answers = self._retriever.search_dense(queries, options, allowed, texts)
            else:
                assert texts is not None
                answers = self._retriever.search_hybrid(texts, queries, options, allowed)
        found = self._build(answers, options)
        set_metric_scores(self.metric, queries, found, is_dense=options.mode == "dense")
        return found

    def _queries(self, texts: list[str] | None, vectors: Vectors | None, options: SearchOptions) -> Queries:
        if vectors is not None:
            return metric_queries(self.metric, vectors)
        assert texts is not None
        self.check_encoder()
        if options.mode == "hybrid" and options.typos:
            texts = [self._lexical.correct(text, options) for text in texts]
        return self._resources.encode(texts, self._encoder_record, self.metric)

    def search_like(self, options: SearchOptions) -> Hits:
        """Return the hits like the document `options.like`, see `quarry.engine.options.SearchOptions`."""
        options = replace(options.for_index(self._dense_weight), typos=False, operators=False)
        query = find_document(self.snapshot, str(options.like), self._path)
        queries = query.vector(self.metric)
        allowed = self.filter.allowed(options.condition)
        if options.mode == "dense":
            answers = self._retriever.search_dense(queries, options, allowed)
        else:
            texts = [query.words(self._lexical.terms, self._lexical.collection)]
            if options.mode == "lexical":
                return self._build(self._retriever.search_lexical(texts, options, allowed), options)[0]
            answers = self._retriever.search_hybrid(texts, queries, options, allowed)
        found = self._build(answers, options)
        set_metric_scores(self.metric, queries, found, is_dense=options.mode == "dense")
        return found[0]

    def _build(self, answers: Iterable[Answer], options: SearchOptions) -> list[Hits]:
        """Return the hits of each answer, with their relevance."""
        if options.min_relevance is not None:
            self._relevance.require(options.mode)
        found = []
        for answer in answers:
            relevance = self._relevance.prepare(options.mode, answer.vector)
            hits = self._hits.build(answer._replace(relevance=relevance), options)
            found.append(hits.at_least(options.min_relevance))
        return found

    def documents(self, ids: Iterable[str], *, with_vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored."""
        return stored_documents(self.snapshot, ids, self.metric, with_vectors=with_vectors)
