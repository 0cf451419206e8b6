"""A partition: all documents of an index without shards, or those of one shard, at one generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.analysis.phrases import PHRASE_SIGN
from quarry.engine.backends.protocol import Accelerator
from quarry.engine.documents.document import Document
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.evaluation import Allowed, AllowedDocs, Kinds
from quarry.engine.filtering.filter import Condition
from quarry.engine.index.memory import plan_memory
from quarry.engine.index.statistics import index_statistics, resource_statistics
from quarry.engine.lexical.bm25 import Bm25, Collection
from quarry.engine.lexical.close_terms import CloseTerm
from quarry.engine.lexical.derived_terms import derived_terms
from quarry.engine.listing.facets import FacetCounts, count_values, select_documents
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.ranking import distinct
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.search.arrangement import Arranged, Arranger, Reference
from quarry.engine.search.candidates import Candidates, Retriever, rank_candidates
from quarry.engine.search.hits.hit_builder import Answer, HitBuilder
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.query import Query
from quarry.engine.search.relevance import BackgroundSample, RelevanceEstimator, sample_background
from quarry.engine.search.searcher import Searcher
from quarry.engine.search.similar import SimilarQuery, find_document
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.manifest import IndexSettings, Manifest
from quarry.formats.metadata.values import Scalar
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["OpenPartition", "Partition", "PartitionSize", "read_document"]


class PartitionSize(NamedTuple):
    """Size of a partition.

    Attributes:
        n_docs: live documents.
        total_length: terms of all live documents, repetitions counted.
    """

    n_docs: int
    total_length: int


class Partition(Protocol):
    """What a view asks of a partition, see `OpenPartition`; safe to use from several threads."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def manifest(self) -> Manifest: ...  # noqa: D102
    @property
    def n_documents(self) -> int: ...  # noqa: D102
    @property
    def background(self) -> BackgroundSample: ...  # noqa: D102
    def measure(self) -> PartitionSize: ...  # noqa: D102
    def document_frequencies(self, terms: Sequence[str], analysis: str) -> list[int]: ...  # noqa: D102
    def close_terms(  # noqa: D102
        self, terms: Sequence[str], n_edits: int, analysis: str
    ) -> list[set[CloseTerm]]: ...
    def count_completions(self, words: Sequence[str], analysis: str) -> list[Counter[str]]: ...  # noqa: D102
    def evaluate(self, condition: Condition) -> Kinds | None: ...  # noqa: D102
    def count(self, condition: Condition) -> int: ...  # noqa: D102
    def find_nearest(self, field: str) -> Sequence[str]: ...  # noqa: D102
    def has(self, doc_id: str) -> bool: ...  # noqa: D102
    def documents(self, ids: Sequence[str], with_vectors: bool) -> list[Document]: ...  # noqa: D102
    def find_similar(self, doc_id: str, index: Path) -> SimilarQuery: ...  # noqa: D102
    def bm25(self, collection: Collection | None) -> Bm25: ...  # noqa: D102
    def find(  # noqa: D102
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[Candidates]: ...
    def arrange(  # noqa: D102
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        collection: Collection | None,
        references: Sequence[Reference | None],
        groups: Sequence[Set[Scalar | None] | None],
    ) -> list[Arranged]: ...
    def count_matches(  # noqa: D102
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[int]: ...
    def read(  # noqa: D102
        self, answers: Sequence[Answer], options: SearchOptions, collection: Collection | None
    ) -> list[Hits]: ...
    def count_facets(  # noqa: D102
        self, field: str, query: Query | None, condition: Condition | None, collection: Collection | None
    ) -> list[FacetCounts]: ...
    def describe(self) -> dict[str, object]: ...  # noqa: D102


class OpenPartition:
    """A snapshot with its searchers: a `Partition` whose files are open in this process.

    The argument `collection` of its methods has the statistics of all documents that it is a part of; None: it is
    all of them. `analysis` names the analysis of queries, which is that of all of them, too: those of a shard
    may not have all languages.

    Args:
        name: the name of its folder.
        snapshot: what is searched; searches in progress continue when it is closed.
        options: resources to use.
        device: the device of backend "gpu".
        before: this partition at another generation, whose backends are reused for the segments that are the same.

    Attributes:
        name: the name of its folder.
        snapshot: what is searched.
        manifest: the manifest of the snapshot.
        segments: the segments of the snapshot; they stay, even if the snapshot is closed.
        searcher: dense search.
        filter: evaluates filters.

    Raises:
        InvalidSetting: the memory limit is too low.
    """

    def __init__(
        self,
        name: str,
        snapshot: Snapshot,
        options: OpenOptions,
        device: Accelerator,
        before: OpenPartition | None = None,
    ) -> None:
        self.name = name
        self.snapshot = snapshot
        self.manifest = snapshot.manifest
        self.segments = snapshot.segments
        self._options = options
        self._plan = plan_memory(snapshot, options.memory_bytes)
        known = None if before is None else before.searcher
        self.searcher: Searcher = Searcher(snapshot, options, self._plan.backend_bytes, device, known)
        self._retriever = Retriever(self.segments, self.searcher)
        self._hits = HitBuilder(snapshot, self.searcher)
        self._together: tuple[Collection, Bm25] | None = None  # of the collection that was asked about last
        self._analyzed: Bm25 | None = None  # as `_alone`, by the analysis that was asked for last
        # not a method: a cycle would keep backends, and what they hold on devices, until it is collected
        terms = partial(_terms, self.manifest.settings)
        self.filter = DocumentFilter(self.segments, self._plan.filter_bytes, terms)
        unit = Metric.of(self.manifest).score_unit
        self._arranger = Arranger(self.segments, self.searcher, self.filter, unit)

    @cached_property
    def _alone(self) -> Bm25:
        """The lexical scores of its documents by their own statistics."""
        return Bm25.of(self.snapshot, self._plan.posting_bytes)

    def bm25(self, collection: Collection | None) -> Bm25:
        """Return what looks up terms, and scores its documents as a part of a collection; None: as all of it."""
        if collection is None:
            return self._alone
        known = self._together
        if known is None or known[0] is not collection:
            bm25 = Bm25.of(self.snapshot, self._plan.posting_bytes, collection, collection.analysis)
            known = self._together = collection, bm25
        return known[1]

    def _by(self, analysis: str) -> Bm25:
        """Return the lexical scores of its documents by their own statistics, and an analysis of all documents."""
        if analysis == self.manifest.settings.analysis:
            return self._alone
        known = self._analyzed
        if known is None or known.analysis != analysis:
            known = self._analyzed = Bm25.of(self.snapshot, self._plan.posting_bytes, analysis=analysis)
        return known

    def has_same(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot is of the same generation and shares all open files."""
        return (self.manifest.commit_id, self.segments) == (snapshot.manifest.commit_id, snapshot.segments)

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return self.manifest.n_documents

    @cached_property
    def background(self) -> BackgroundSample:
        """The background of its documents, for estimates of relevance; read at first use."""
        return sample_background(self.segments, self.searcher)

    def measure(self) -> PartitionSize:
        """Return its size."""
        return PartitionSize(self._alone.n_docs, self._alone.total_length)

    def document_frequencies(self, terms: Sequence[str], analysis: str) -> list[int]:
        """Return for each term the number of live documents that have it."""
        bm25 = self._by(analysis)
        return [bm25.document_frequency(term) for term in terms]

    def close_terms(self, terms: Sequence[str], n_edits: int, analysis: str) -> list[set[CloseTerm]]:
        """Return for each term those of the dictionaries within a distance of it."""
        bm25 = self._by(analysis)
        return [bm25.close_terms(term, n_edits) for term in terms]

    def count_completions(self, words: Sequence[str], analysis: str) -> list[Counter[str]]:
        """Return for each word the words that begin with it, see `DerivedTerms.count_completions`."""
        settings = replace(self.manifest.settings, analysis=analysis)
        finders = [derived_terms(segment, settings) for segment in self.segments]
        return [sum((each.count_completions(word) for each in finders), Counter()) for word in words]

    def evaluate(self, condition: Condition) -> Kinds | None:
        """Evaluate a filter, and remember the documents; return the kinds of values, None without documents."""
        return self.filter.evaluate(condition)[1] if self.segments else None

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        return self.filter.count(condition)

    def find_nearest(self, field: str) -> list[str]:
        """Return the fields whose names are most like one that no document has."""
        return self.filter.find_nearest(field)

    def has(self, doc_id: str) -> bool:
        """Return whether there is a document with an id."""
        return self.snapshot.find(doc_id) is not None

    def documents(self, ids: Sequence[str], with_vectors: bool) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored."""
        places = ((doc_id, self.snapshot.find(doc_id)) for doc_id in ids)
        metric = Metric.of(self.manifest)
        return [
            read_document(doc_id, *place, metric, with_vectors=with_vectors) for doc_id, place in places if place
        ]

    def find_similar(self, doc_id: str, index: Path) -> SimilarQuery:
        """Return a document as a query; see `quarry.engine.search.similar.find_document`."""
        return find_document(self.snapshot, doc_id, index)

    def search(
        self, queries: Sequence[Query], options: SearchOptions, estimator: RelevanceEstimator
    ) -> list[Hits]:
        """Return the hits of each query in this partition, which is all of the index.

        Args:
            queries: with the vectors and texts that the mode of the search needs.
            options: the options of the search.
            estimator: the estimator of relevance.
        """
        all_hits = []
        bm25 = None if options.mode == "dense" else self._alone
        allowed = self._allowed(queries)
        by_vectors = self._retriever.rank_by_vectors(queries, options, allowed)
        for query, by_vector, docs in zip(queries, by_vectors, allowed, strict=True):  # terms hold postings
            candidates = self._retriever.find(query, by_vector, bm25, options, docs)
            relevance = estimator.prepare(options.mode, query.vector)
            ranking = rank_candidates(candidates, options, estimator.least_range)
            answer = Answer(ranking, query, relevance, candidates.terms)
            all_hits.append(self._hits.build(answer, options))
        return all_hits

    def find(
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[Candidates]:
        """Return the candidates of each query, as values alone."""
        bm25 = None if options.mode == "dense" else self.bm25(collection)
        allowed = self._allowed(queries)
        by_vectors = self._retriever.rank_by_vectors(queries, options, allowed)
        return [
            self._retriever.find(query, by_vector, bm25, options, docs).detached()
            for query, by_vector, docs in zip(queries, by_vectors, allowed, strict=True)
        ]

    def arrange(
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        collection: Collection | None,
        references: Sequence[Reference | None],
        groups: Sequence[Set[Scalar | None] | None],
    ) -> list[Arranged]:
        """Return the first documents of each query, see `quarry.engine.search.arrangement.Arranger.arrange`.

        Args:
            queries: with the vectors and texts that the mode of the search needs.
            options: the options of the search.
            collection: the collection of which this partition is a part; None: it is all of it.
            references: of each query, what scales its hybrid scores.
            groups: for each query the groups that may be found; None: all.
        """
        bm25 = None if options.mode == "dense" else self.bm25(collection)
        columns = zip(queries, self._allowed(queries), references, groups, strict=True)
        return [
            self._arranger.arrange(query, bm25, options, docs, reference, only)
            for query, docs, reference, only in columns
        ]

    def count_matches(
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[int]:
        """Return for each query the number of documents that match, or of passages."""
        counts = []
        for query, allowed in zip(queries, self._allowed(queries), strict=True):
            terms = query.look_up(self.bm25(collection)) if options.mode == "lexical" else None
            matching = self._arranger.match(query, terms, options, allowed)
            n_passages = 0
            for segment, (passages, _) in zip(self.segments, matching, strict=True):
                is_whole = options.unit == "passage" or not len(passages)
                n_passages += len(
                    passages if is_whole else distinct(segment.reader.passages.documents_of(passages))
                )
            counts.append(n_passages)
        return counts

    def _allowed(self, queries: Sequence[Query]) -> list[AllowedDocs | None]:
        allowed = []
        for query in queries:
            docs = None if query.condition is None else self.filter.allowed_passages(query.condition)
            allowed.append(self._find_passages(docs, query) if query.passage_phrases else docs)
        return allowed

    def _find_passages(self, allowed: AllowedDocs | None, query: Query) -> AllowedDocs:
        """Return for each segment those of some passages that have the phrases of a query, or do not have them."""
        found = []
        segments = self._by(query.analysis).segments
        for number, (segment, postings) in enumerate(zip(self.segments, segments, strict=True)):
            docs = None if allowed is None else allowed[number]
            flags = segment.live_passages if docs is None else docs.flags
            for phrase, is_wanted in query.passage_phrases:
                has_phrase = np.zeros(len(flags), bool)
                has_phrase[postings.postings(PHRASE_SIGN + phrase).docs] = True
                flags = flags & (has_phrase == is_wanted)
            found.append(Allowed(flags))
        return found

    def read(self, answers: Sequence[Answer], options: SearchOptions, collection: Collection | None) -> list[Hits]:
        """Return the hits of each query, given its documents in this partition."""
        all_hits = []
        for answer in answers:
            terms = None if options.mode == "dense" else answer.query.look_up(self.bm25(collection))
            all_hits.append(self._hits.build(answer._replace(terms=terms), options))
        return all_hits

    def count_facets(
        self, field: str, query: Query | None, condition: Condition | None, collection: Collection | None
    ) -> list[FacetCounts]:
        """Return counts of the values at a path in some documents, for each segment.

        Args:
            field: the path.
            query: the query of which documents must have a term; None: they need not.
            condition: that they must satisfy; None: all do.
            collection: the collection of which this partition is a part; None: it is all of it.
        """
        terms = None if query is None else query.look_up(self.bm25(collection))
        docs = select_documents(self.segments, self.filter.allowed(condition), terms)
        return [count_values(each, field, flags) for each, flags in zip(self.segments, docs, strict=True)]

    def describe(self) -> dict[str, object]:
        """Return numbers about it, what searches it, and the memory held for it."""
        used = [self._alone, self._analyzed, None if self._together is None else self._together[1]]
        held = {
            "postings": sum(each.cached_bytes for each in used if each is not None),
            "filters": self.filter.resident_bytes,
        }
        resources = resource_statistics(self.snapshot, self._options, self.searcher, self._plan, held)
        return index_statistics(self.snapshot) | resources


def _terms(settings: IndexSettings, text: str) -> list[str]:
    return cached_analyzer(settings.analysis, settings.analysis_rules).title_terms(text)


def read_document(
    doc_id: str, segment: OpenSegment, ordinal: int, metric: Metric, *, with_vectors: bool
) -> Document:
    """Return a document as users get it back, with its vectors if requested."""
    stored = segment.reader.documents[ordinal]
    if not with_vectors:
        return Document(doc_id, stored.text, stored.title, stored.metadata)
    kind = segment.reader.centroids.kind
    vectors = metric.vectors(StoredVectors(segment).of_document(ordinal))
    spans = unpack_spans(stored.spans, segment.reader.path)
    return Document(
        doc_id,
        stored.text,
        stored.title,
        stored.metadata,
        vectors=np.ascontiguousarray(vectors),
        spans=tuple((each[0][0], each[-1][1]) if each else (0, 0) for each in spans),
        stored_as="codes" if kind == "none" else kind if vectors.any() else "words",
    )
