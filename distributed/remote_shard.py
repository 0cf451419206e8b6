"""A shard behind a deployment: what the view of a sharded index asks of a shard, as requests to its copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

from quarry.distributed.calls import call
from quarry.distributed.replica import GivenStatistics, Reply, ShardState
from quarry.engine.filtering.filter import Condition
from quarry.engine.index.partition import PartitionSize
from quarry.engine.lexical.bm25 import Bm25, Collection
from quarry.engine.listing.facets import FacetCounts
from quarry.engine.options import SearchOptions
from quarry.engine.search.arrangement import Arranged, Reference
from quarry.engine.search.candidates import Candidates
from quarry.engine.search.hits.hit_builder import Answer
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.query import Query
from quarry.formats.errors import QuarryError
from quarry.formats.metadata.values import Scalar

__all__ = ["RemoteShard", "StaleGeneration"]


class StaleGeneration(QuarryError):
    """A copy of a shard does not have the generation that was requested.

    Searches are tried again with a newer one; who lists documents while there are many commits begins again.
    """


def _request(method: str) -> Any:  # noqa: ANN401  # of `Partition`
    """Return the method of `Partition` with this name, which calls that of a copy with the same arguments."""

    def ask(shard: RemoteShard, *arguments: Any) -> Any:  # noqa: ANN401
        return shard.call(method, *arguments)

    return ask


class RemoteShard:
    """One generation of a shard: a `quarry.engine.index.partition.Partition` that asks copies of the shard.

    Args:
        handle: the handle of its deployment.
        state: the generation.
        timeout_s: time limit, in seconds, of each request.

    Attributes:
        name: the name of its folder.
        state: the generation.
        manifest: the manifest of the generation.
        opened: the generations that are the newest of copies, as far as their answers said.
        is_stale: whether a copy did not have the generation.
    """

    def __init__(self, handle: Any, state: ShardState, timeout_s: float) -> None:  # noqa: ANN401  # of Ray
        self._handle = handle
        self.state = state
        self._timeout_s = timeout_s
        self.name = state.name
        self.manifest = state.manifest
        self.opened = {state.opened}
        self.is_stale = False

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return self.state.size.n_docs

    @property
    def is_newest(self) -> bool:
        """Whether no copy said that it has a newer generation of the same shard set."""
        own = self.state.opened
        return all(each.generation <= own.generation for each in self.opened if each.set_id == own.set_id)

    def call(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401  # of any method
        """Call a method of the shard in one of its copies.

        Raises:
            StaleGeneration: the copy does not have this generation.
        """
        commit_id = self.state.manifest.commit_id
        asked = (commit_id, method, arguments)
        answer: Reply = call(self._handle, "call", asked, self._timeout_s, f"the shard {self.name}")
        self.opened.add(answer.newest)
        if answer.is_stale:
            self.is_stale = True
            raise StaleGeneration(
                f"a copy of the shard {self.name} is at another generation", actual=answer.newest.generation
            )
        if isinstance(answer.value, QuarryError):
            raise answer.value
        return answer.value

    background = property(_request("background"))
    document_frequencies = _request("document_frequencies")
    close_terms = _request("close_terms")
    count_completions = _request("count_completions")
    evaluate = _request("evaluate")
    count = _request("count")
    find_nearest = _request("find_nearest")
    has = _request("has")
    documents = _request("documents")
    find_similar = _request("find_similar")
    describe = _request("describe")

    def measure(self) -> PartitionSize:
        """Return its size."""
        return self.state.size

    def bm25(self, collection: Collection | None) -> Bm25:
        """Return what looks up terms, without postings; no copy is asked."""
        return Bm25([], [], collection=collection)

    def find(
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[Candidates]:
        """Return the candidates of each query."""
        candidates: list[Candidates] = self.call("find", queries, options, _statistics(queries, collection))
        return candidates

    def arrange(
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        collection: Collection | None,
        references: Sequence[Reference | None],
        groups: Sequence[Set[Scalar | None] | None],
    ) -> list[Arranged]:
        """Return the first documents of each query."""
        given = _statistics(queries, collection)
        arranged: list[Arranged] = self.call("arrange", queries, options, given, references, groups)
        return arranged

    def count_matches(
        self, queries: Sequence[Query], options: SearchOptions, collection: Collection | None
    ) -> list[int]:
        """Return for each query the number of documents or passages that match."""
        counts: list[int] = self.call("count_matches", queries, options, _statistics(queries, collection))
        return counts

    def read(self, answers: Sequence[Answer], options: SearchOptions, collection: Collection | None) -> list[Hits]:
        """Return the hits of each query."""
        given = _statistics([answer.query for answer in answers], collection)
        hits: list[Hits] = self.call("read", answers, options, given)
        return hits

    def count_facets(
        self, field: str, query: Query | None, condition: Condition | None, collection: Collection | None
    ) -> list[FacetCounts]:
        """Return counts of values."""
        given = _statistics([] if query is None else [query], collection)
        counts: list[FacetCounts] = self.call("count_facets", field, query, condition, given)
        return counts


def _statistics(queries: Iterable[Query], collection: Collection | None) -> GivenStatistics | None:
    """Return the statistics of all documents that the terms of these queries need."""
    if collection is None:
        return None
    terms = {term for query in queries for term in query.parsed.terms}
    expansions = {
        term: tuple(collection.expand(term)) for term in terms if not collection.document_frequency(term)
    }
    names = terms | {each.name for several in expansions.values() for each in several}
    frequencies = {name: collection.document_frequency(name) for name in names}
    return GivenStatistics(
        collection.analysis, collection.n_docs, collection.average_length, frequencies, expansions
    )
