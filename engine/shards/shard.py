"""One shard: an open generation of an ordinary index, which returns candidates instead of hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.evaluation import AllowedDocs, Kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.engine.gpu.device import Device
from quarry.engine.index.memory import plan_memory
from quarry.engine.index.statistics import index_statistics, resource_statistics
from quarry.engine.index.stored_documents import stored_documents
from quarry.engine.lexical.bm25 import Bm25, Collection
from quarry.engine.lexical.close_terms import CloseTerm
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.listing.facets import FacetCounts, FacetRequest, count_values, select_documents
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.query_vectors import Queries
from quarry.engine.scoring.ranking import Exactness, Ranking
from quarry.engine.search.hits.hit_builder import HitBuilder
from quarry.engine.search.hits.hits import Hit
from quarry.engine.search.id_order import IdOrder
from quarry.engine.search.relevance import BackgroundSample, QueryRelevance, sample_background
from quarry.engine.search.retriever import Answer, Pool, Retriever
from quarry.engine.search.searcher import Searcher
from quarry.engine.search.similar import SimilarQuery, find_document
from quarry.engine.shards.candidates import ShardCandidates
from quarry.engine.shards.collection import ShardSize
from quarry.engine.shards.statistics import ShardStatistics
from quarry.formats.arrays import Float32Array
from quarry.formats.snapshot import Snapshot

__all__ = ["HitRequest", "Shard", "ShardSearcher"]


class HitRequest(NamedTuple):
    """The documents of one query whose texts are to be read.

    Attributes:
        documents: of one shard, best first.
        vector: (dim,) float32, the vector of the query; None in lexical mode.
        text: of the query; None if it was given as a vector.
        relevance: estimates how relevant documents are to the query; None without a model.
    """

    documents: Ranking
    vector: Float32Array | None
    text: str | None
    relevance: QueryRelevance | None


class Shard:
    """A snapshot of one shard with its searchers; safe to use from several threads.

    Args:
        name: of its folder.
        snapshot: what is searched.
        options: resources to use.
        device: of backend "gpu".
        before: this shard at another generation, whose backends are reused for the segments that are the same.

    Attributes:
        name: of its folder.
        snapshot: what is searched.
        segments: of the snapshot; they stay, even if the snapshot is closed.
        dense: dense search.
        filter: evaluates filters.
        hits: builds hits.
        order: orders documents with equal scores, and reads their ids.
        posting_bytes: memory for decoded postings.
    """

    def __init__(
        self,
        name: str,
        snapshot: Snapshot,
        options: OpenOptions,
        device: Device,
        before: Shard | None = None,
    ) -> None:
        self.name = name
        self.snapshot = snapshot
        self.segments = snapshot.segments
        self._options = options
        self._plan = plan_memory(snapshot, options.memory_bytes)
        self.posting_bytes = self._plan.posting_bytes
        self.dense: Searcher = Searcher(
            snapshot, options, self._plan.backend_bytes, device, before.dense if before is not None else None
        )
        self.hits = HitBuilder(snapshot, self.dense)
        self.order = IdOrder(self.segments)
        self._analysis = LexicalSearcher(snapshot, 0)
        self.filter = DocumentFilter(self.segments, self._plan.filter_bytes, self._analysis.terms, UnknownFields())
        readers = [segment.reader.postings for segment in self.segments]
        self._terms = Bm25(
            readers,
            [segment.deleted for segment in self.segments],
            cache_bytes=0,
            edited_stems=self._analysis.edited_stems,
            prefixes=self._analysis.prefixes(),
        )

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return len(self.snapshot)

    @property
    def is_empty(self) -> bool:
        """Whether it has no live document."""
        return not self.segments

    @cached_property
    def background(self) -> BackgroundSample:
        """The background of its documents; read at first use."""
        return sample_background(self.segments, self.dense)

    def measure(self) -> ShardSize:
        """Return its size."""
        return ShardSize(self._terms.n_docs, self._terms.total_length)

    def document_frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return for each term the number of live documents that have it."""
        return [self._terms.document_frequency(term) for term in terms]

    def close_terms(self, terms: Sequence[str], n_edits: int) -> list[set[CloseTerm]]:
        """Return for each term those of the dictionaries within a distance of it."""
        return [self._terms.close_terms(term, n_edits) for term in terms]

    def evaluate(self, condition: Condition) -> Kinds | None:
        """Evaluate a filter, and remember the documents; return the kinds of values, None without documents."""
        return None if self.is_empty else self.filter.evaluate(condition)[1]

    def allowed(self, condition: Condition | None) -> AllowedDocs:
        """Return for each segment the documents that pass a filter; None: all."""
        return [None] * len(self.segments) if condition is None else self.filter.evaluate(condition)[0]

    def count_allowed(self, allowed: AllowedDocs) -> int:
        """Return the number of documents that may be found."""
        return sum(
            segment.record.n_live if docs is None else docs.n
            for segment, docs in zip(self.segments, allowed, strict=True)
        )

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        return self.count_allowed(self.allowed(condition))

    def documents(self, ids: Iterable[str], with_vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored."""
        metric = Metric.of(self.snapshot.manifest)
        return stored_documents(self.snapshot, ids, metric, with_vectors=with_vectors)

    def find_nearest(self, field: str) -> Iterable[str]:
        """Return the fields whose names are most like one that no document has."""
        return self.filter.find_nearest(field)

    def find_similar(self, doc_id: str, index: Path) -> SimilarQuery:
        """Return a document as a query; see `quarry.engine.search.similar.find_document`."""
        return find_document(self.snapshot, doc_id, index)

    def count_facets(
        self, request: FacetRequest, condition: Condition | None, searcher: ShardSearcher | None
    ) -> list[FacetCounts]:
        """Count values in the documents that satisfy a condition, for each segment.

        Args:
            request: what to count.
            condition: of the documents; None: all.
            searcher: knows the terms of the query; None if there is no query.
        """
        terms = None
        if searcher is not None and request.query is not None:
            terms = searcher.lexical.query(request.query, SearchOptions(operators=request.operators))
        docs = select_documents(self.segments, self.allowed(condition), terms)
        return [count_values(each, request.field, flags) for each, flags in zip(self.segments, docs, strict=True)]

    def find_dense(self, vectors: Queries, options: SearchOptions) -> list[ShardCandidates]:
        """Return the best documents by dense score for each of (n, dim) vectors."""
        allowed = self.allowed(options.condition)
        rankings = self.dense.search(vectors, options, allowed, keep_ties=True)
        return [_of_ranking(self, self.order.best(each, options.n_retrieved), allowed) for each in rankings]

    def searcher(self, collection: Collection) -> ShardSearcher:
        """Return what searches it as a part of a collection."""
        return ShardSearcher(self, collection)

    def read(
        self, requests: Sequence[HitRequest], options: SearchOptions, searcher: ShardSearcher | None
    ) -> list[list[Hit]]:
        """Read the hits of several queries.

        Args:
            requests: one for each query.
            options: of the search.
            searcher: that found them; None in dense mode.
        """
        found: list[list[Hit]] = []
        for request in requests:
            terms = words = None
            if request.text is not None:
                lexical = self._analysis if searcher is None else searcher.lexical
                terms = None if searcher is None else lexical.query(request.text, options)
                words = lexical.words(request.text, options, terms)
            answer = Answer(request.documents, request.vector, terms, words, request.relevance)
            found.append(self.hits.build(answer, options))
        return found

    def describe(self, posting_bytes: int) -> ShardStatistics:
        """Return numbers about it, what searches it, and the memory held for it.

        Args:
            posting_bytes: of decoded postings that are held now.
        """
        held = {"postings": posting_bytes, "filters": self.filter.resident_bytes}
        resources = resource_statistics(self.snapshot, self._options, self.dense, self._plan, held)
        return ShardStatistics(self.name, index_statistics(self.snapshot), resources)


class ShardSearcher:
    """Searches one shard as a part of a collection; safe to use from several threads."""

    def __init__(self, shard: Shard, collection: Collection) -> None:
        self._shard = shard
        self.lexical = LexicalSearcher(shard.snapshot, shard.posting_bytes, collection)
        self._retriever = Retriever(shard.segments, shard.dense, self.lexical)

    @property
    def posting_bytes(self) -> int:
        """Memory of the decoded postings that are kept now."""
        return self.lexical.resident_bytes

    def find_lexical(self, texts: list[str], options: SearchOptions) -> list[ShardCandidates]:
        """Return the best documents by BM25 for each text."""
        allowed = self._shard.allowed(options.condition)
        queries = (self.lexical.query(text, options) for text in texts)
        rankings = (self._retriever.rank_lexical(each, options, allowed) for each in queries)
        return [_of_ranking(self._shard, ranking, allowed) for ranking in rankings]

    def find_both(self, vectors: Queries, texts: list[str], options: SearchOptions) -> list[ShardCandidates]:
        """Return the candidates of a hybrid search for each vector and text, each with both scores."""
        allowed = self._shard.allowed(options.condition)
        pools = self._retriever.find_pools(texts, vectors, options, allowed)
        n_allowed = self._shard.count_allowed(allowed)
        return [_of_pool(self._shard, pool, n_allowed) for _, _, pool in pools]


def _of_ranking(shard: Shard, ranking: Ranking, allowed: AllowedDocs) -> ShardCandidates:
    """Return the documents of a ranking by one score."""
    is_dense, none = ranking.dense is not None, np.zeros(len(ranking.docs), bool)
    return ShardCandidates(
        ids=shard.order.read_ids(ranking.segments, ranking.docs),
        segments=ranking.segments,
        docs=ranking.docs,
        dense=ranking.dense,
        lexical=ranking.lexical,
        by_vector=~none if is_dense else none,
        by_terms=none if is_dense else ~none,
        n_allowed=shard.count_allowed(allowed),
        exactness=ranking.exactness,
    )


def _of_pool(shard: Shard, pool: Pool, n_allowed: int) -> ShardCandidates:
    return ShardCandidates(
        ids=shard.order.read_ids(pool.segments, pool.docs),
        segments=pool.segments,
        docs=pool.docs,
        dense=pool.dense,
        lexical=pool.lexical,
        by_vector=pool.by_vector,
        by_terms=pool.by_terms,
        n_allowed=n_allowed,
        exactness=Exactness.APPROXIMATE,
    )
