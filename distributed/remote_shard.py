"""A shard behind a deployment: what the view of a sharded index asks of a shard, as requests to its copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quarry.distributed.calls import call
from quarry.distributed.replica import Answer, GivenStatistics, ShardState
from quarry.engine.documents.document import Document
from quarry.engine.filtering.filter import Condition
from quarry.engine.lexical.bm25 import Collection
from quarry.engine.lexical.close_terms import CloseTerm
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.listing.facets import FacetCounts, FacetRequest
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.engine.search.hits.hits import Hit
from quarry.engine.search.relevance import BackgroundSample
from quarry.engine.search.similar import SimilarQuery
from quarry.engine.shards.candidates import ShardCandidates
from quarry.engine.shards.collection import ShardSize
from quarry.engine.shards.shard import HitRequest
from quarry.engine.shards.statistics import ShardStatistics
from quarry.formats.errors import QuarryError

__all__ = ["RemoteShard", "StaleGeneration"]


class StaleGeneration(QuarryError):
    """A copy of a shard does not have the generation that was requested; the router requests a newer one."""


class RemoteShard:
    """One generation of a shard, with the methods of `quarry.engine.shards.shard.Shard` that a view needs.

    Args:
        handle: of its deployment.
        state: the generation.
        timeout_s: of each request.

    Attributes:
        name: of its folder.
        snapshot: has the manifest of the generation, and no segments.
        segments: none.
        opened: the generations that are the newest of copies, as far as their answers said.
        is_stale: whether a copy did not have the generation.
    """

    def __init__(self, handle: Any, state: ShardState, timeout_s: float) -> None:  # noqa: ANN401  # of Ray
        self._handle = handle
        self._state = state
        self._timeout_s = timeout_s
        self.name = state.name
        self.snapshot = SimpleNamespace(manifest=state.manifest, segments=())
        self.segments: tuple[()] = ()
        self.opened = {state.opened}
        self.is_stale = False
        self.analysis = LexicalSearcher(self.snapshot, 0)  # type: ignore[arg-type]  # of an empty snapshot

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return self._state.size.n_docs

    @property
    def state(self) -> ShardState:
        """The generation."""
        return self._state

    @property
    def is_newest(self) -> bool:
        """Whether no copy said that it has a newer generation of the same shard set."""
        own = self._state.opened
        return all(each.generation <= own.generation for each in self.opened if each.set_id == own.set_id)

    def call(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401  # of any method
        """Call a method of the shard in one of its copies.

        Raises:
            StaleGeneration: the copy does not have this generation.
        """
        commit_id = self._state.manifest.commit_id
        asked = (commit_id, method, arguments)
        answer: Answer = call(self._handle, "call", asked, self._timeout_s, f"the shard {self.name}")
        self.opened.add(answer.newest)
        if answer.is_stale:
            self.is_stale = True
            raise StaleGeneration(
                f"a copy of the shard {self.name} is at another generation", actual=answer.newest.generation
            )
        if isinstance(answer.value, QuarryError):
            raise answer.value
        return answer.value

    @property
    def background(self) -> BackgroundSample:
        """The background of its documents, for estimates of relevance."""
        found: BackgroundSample = self.call("background")
        return found

    def measure(self) -> ShardSize:
        """Return its size."""
        return self._state.size

    def describe(self, posting_bytes: int) -> ShardStatistics:
        """Return numbers about it; see `Shard.describe`."""
        found: ShardStatistics = self.call("describe", posting_bytes)
        return found

    def document_frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return for each term the number of live documents that have it."""
        found: list[int] = self.call("document_frequencies", list(terms))
        return found

    def close_terms(self, terms: Sequence[str], n_edits: int) -> list[set[CloseTerm]]:
        """Return for each term those of the dictionaries within a distance of it."""
        found: list[set[CloseTerm]] = self.call("close_terms", list(terms), n_edits)
        return found

    def evaluate(self, condition: Condition) -> Any:  # noqa: ANN401  # Kinds | None
        """Evaluate a filter; return the kinds of values, None without documents."""
        return self.call("evaluate", condition)

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        return int(self.call("count", condition))

    def documents(self, ids: Iterable[str], with_vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order."""
        found: list[Document] = self.call("documents", list(ids), with_vectors)
        return found

    def find_nearest(self, field: str) -> Iterable[str]:
        """Return the fields whose names are most like one that no document has."""
        found: list[str] = self.call("find_nearest", field)
        return found

    def find_similar(self, doc_id: str, index: Path) -> SimilarQuery:
        """Return a document as a query; see `Shard.find_similar`."""
        found: SimilarQuery = self.call("find_similar", doc_id, index)
        return found

    def count_facets(
        self, request: FacetRequest, condition: Condition | None, searcher: RemoteSearcher | None
    ) -> list[FacetCounts]:
        """Return counts of values; see `Shard.count_facets`."""
        texts = [] if request.query is None else [request.query]
        options = SearchOptions(operators=request.operators)
        statistics = None if searcher is None else searcher.statistics(texts, options)
        found: list[FacetCounts] = self.call("count_facets", request, condition, statistics)
        return found

    def find_dense(self, vectors: Queries, options: SearchOptions) -> list[ShardCandidates]:
        """Return the best documents by dense score for each vector."""
        found: list[ShardCandidates] = self.call("find_dense", to_host_vectors(vectors), options)
        return found

    def searcher(self, collection: Collection) -> RemoteSearcher:
        """Return what searches it as a part of a collection."""
        return RemoteSearcher(self, collection)

    def read(
        self, requests: Sequence[HitRequest], options: SearchOptions, searcher: RemoteSearcher | None
    ) -> list[list[Hit]]:
        """Read the hits of several queries; see `Shard.read`."""
        texts = [request.text for request in requests if request.text is not None]
        statistics = None if searcher is None else searcher.statistics(texts, options)
        found: list[list[Hit]] = self.call("read", list(requests), options, statistics)
        return found


class RemoteSearcher:
    """Searches a shard as a part of a collection; see `quarry.engine.shards.shard.ShardSearcher`.

    Args:
        shard: the shard.
        collection: statistics of all documents.

    Attributes:
        lexical: knows the terms of all documents, and no postings.
    """

    posting_bytes = 0  # they are in the copies of the shard

    def __init__(self, shard: RemoteShard, collection: Collection) -> None:
        self._shard = shard
        self._collection = collection
        self.lexical = LexicalSearcher(shard.snapshot, 0, collection)  # type: ignore[arg-type]  # without segments

    def find_lexical(self, texts: list[str], options: SearchOptions) -> list[ShardCandidates]:
        """Return the best documents by BM25 for each text."""
        found: list[ShardCandidates] = self._shard.call(
            "find_lexical", self.statistics(texts, options), texts, options
        )
        return found

    def find_both(self, vectors: Queries, texts: list[str], options: SearchOptions) -> list[ShardCandidates]:
        """Return the candidates of a hybrid search for each vector and text, each with both scores."""
        statistics = self.statistics(texts, options)
        found: list[ShardCandidates] = self._shard.call(
            "find_both", statistics, to_host_vectors(vectors), texts, options
        )
        return found

    def statistics(self, texts: Iterable[str], options: SearchOptions) -> GivenStatistics:
        """Return the statistics of all documents that the terms of these texts need."""
        terms = {term for text in texts for term in self._shard.analysis.parse(text, options).terms}
        collection = self._collection
        expansions = {
            term: tuple(collection.expand(term)) for term in terms if not collection.document_frequency(term)
        }
        names = terms | {each.name for several in expansions.values() for each in several}
        frequencies = {name: collection.document_frequency(name) for name in names}
        return GivenStatistics(collection.n_docs, collection.average_length, frequencies, expansions)
