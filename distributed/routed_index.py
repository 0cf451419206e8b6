"""An index whose shards are deployments: searched with the ranking of one index, as far as its copies answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy.typing as npt

from quarry.distributed.calls import call
from quarry.distributed.remote_shard import RemoteShard, StaleGeneration
from quarry.distributed.replica import Answer, ShardState
from quarry.engine.arguments import checked_flag
from quarry.engine.documents.document import Document
from quarry.engine.documents.given import id_list
from quarry.engine.filtering.filter import Condition, parse_filter
from quarry.engine.index.resources import ViewResources
from quarry.engine.listing.facets import FacetRequest, Facets
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.scoring.query_vectors import query_vectors
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.request import SearchRequest
from quarry.engine.shards.gathering import Gathering, ShardThreads
from quarry.engine.shards.view import ShardedView
from quarry.formats.errors import CorruptFile, InvalidQuery, InvalidSetting, QuarryError

__all__ = ["ListedShard", "RoutedIndex"]

R = TypeVar("R")

_ATTEMPTS = 10  # each fails only if a shard was committed several times in between
_PAUSE_S = 0.05
_WAITING = 32  # threads for each shard; they only wait for answers


@dataclass(frozen=True)
class ListedShard:
    """A shard whose documents are to be listed.

    Attributes:
        number: of the shard.
        name: of its folder.
        commit_id: of its generation.
        n_documents: number of its documents that pass the filter.
    """

    number: int
    name: str
    commit_id: bytes
    n_documents: int


class _RoutedView(ShardedView):
    """The view of shards behind deployments."""

    shards: tuple[RemoteShard, ...]  # type: ignore[assignment]  # what a view needs of a shard

    @property
    def is_stale(self) -> bool:
        """Whether a copy of a shard did not have the generation of this view."""
        return any(shard.is_stale for shard in self.shards)

    @property
    def is_newest(self) -> bool:
        """Whether no copy said that it has a newer generation."""
        return all(max(each.generations) == each.state.manifest.generation for each in self.shards)

    def different_generations(self) -> dict[str, tuple[int, ...]]:
        found = {shard.name: tuple(sorted(shard.generations)) for shard in self.shards}
        return {name: each for name, each in found.items() if len(each) > 1}

    def parts(self, condition: Condition | None) -> list[ListedShard]:
        """Return the shards with the number of documents of each that satisfy a condition; None: all documents."""
        gathering = Gathering(self._threads, self._names)
        self._check_filter(condition, gathering)
        if condition is None:
            counts = {number: shard.n_documents for number, shard in enumerate(self.shards)}
        else:
            counts = gathering.run(lambda number: self.shards[number].count(condition))
        return [
            ListedShard(number, shard.name, shard.state.manifest.commit_id, counts[number])
            for number, shard in enumerate(self.shards)
        ]


class RoutedIndex:
    """Has the reading methods of `quarry.engine.Engine` for an index whose shards are served; thread-safe.

    Each search names the generation of every shard, so that all its requests are answered from the same one. If a
    copy of a shard has a newer generation, the next search begins with that.

    Args:
        path: folder of the index.
        handles: of the deployments of the shards, in their order.
        resources: encoder, reranker and threads of the router.
        timeout_s: of each request, unless a search has a timeout of its own.
    """

    def __init__(self, path: Path, handles: Sequence[Any], resources: ViewResources, timeout_s: float) -> None:
        self._path = path
        self._handles = handles
        self._resources = resources
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._threads = ShardThreads(len(handles), _WAITING * len(handles))
        self._view = self._open()

    def search(
        self,
        queries: str | Sequence[str] | None = None,
        k: int = 10,
        *,
        vector: npt.ArrayLike | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Hits | list[Hits]:
        """Search with one or several queries; see `Engine.search`."""
        if options.get("like") is not None:
            if queries is not None or vector is not None:
                raise InvalidQuery("a search needs either queries or like", expected="one of them")
            similar = SearchOptions.of(k, options)
            return self._answer(lambda view: view.search_like(similar))
        request = SearchRequest.of(queries, vector, self._view.metric.dim)
        chosen = request.options(k, options, has_encoder=self._view.has_encoder)
        found = self._answer(lambda view: view.search(request.texts, chosen, request.vectors))
        return found[0] if request.is_single else found

    def search_vectors(self, queries: npt.ArrayLike, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Search with (n, dim) query vectors in dense mode; see `Engine.search_vectors`."""
        options.setdefault("mode", "dense")
        chosen = SearchOptions.of(k, options)
        if chosen.mode != "dense" or chosen.rerank or chosen.like is not None:
            raise InvalidSetting(
                "vectors are searched in dense mode without reranking",
                expected="mode dense, no rerank, no like",
                actual=chosen.mode,
            )
        vectors = query_vectors(queries, self._view.metric.dim)
        return self._answer(lambda view: view.search(None, chosen, vectors))

    def get(self, ids: Iterable[str] | str, *, vectors: bool = False) -> list[Document]:
        """Return the documents with these ids; see `Engine.get`."""
        wanted, has_vectors = id_list(ids), checked_flag(vectors, "vectors")
        return self._answer(lambda view: view.documents(wanted, with_vectors=has_vectors))

    def parts(self, filter: Mapping[str, object] | None) -> list[ListedShard]:  # noqa: A002  # as in Engine.count
        """Return the shards whose documents a listing reads one after another, at their generations.

        Args:
            filter: only documents that pass it are listed; None: all.

        Raises:
            InvalidFilter: the filter is not valid.
        """
        condition = None if filter is None else parse_filter(filter)
        return self._answer(lambda view: view.parts(condition))

    def page(
        self,
        part: ListedShard,
        filter: Mapping[str, object] | None,  # noqa: A002  # as in Engine.count
        offset: int,
        limit: int,
        kind: str,
    ) -> list[Any]:
        """Read some documents of a shard, in the order in which they are stored.

        Args:
            part: the shard; see `parts`.
            filter: as for `parts`.
            offset: number of its documents to leave out at the beginning.
            limit: largest number of documents.
            kind: "documents", or "ids" for their ids alone.

        Raises:
            StaleGeneration: no copy has the generation any more, because of commits meanwhile.
        """
        condition = None if filter is None else parse_filter(filter)
        asked = (part.commit_id, f"list_{kind}", (condition, offset, limit))
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_S * attempt)  # another copy may have the generation
            answer: Answer = call(
                self._handles[part.number], "call", asked, self._timeout_s, f"the shard {part.name}"
            )
            if isinstance(answer.value, QuarryError):
                raise answer.value
            if not answer.is_stale:
                found: list[Any] = answer.value
                return found
        raise StaleGeneration(
            "the index was changed several times while its documents were listed; begin again", path=self._path
        )

    def facets(
        self,
        field: str,
        *,
        query: str | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002  # as in Engine.count
        limit: int | None = 100,
        operators: bool = True,
    ) -> Facets:
        """Count the documents that have each value at a path of the metadata; see `Engine.facets`."""
        request = FacetRequest.of(field, query, limit, operators)
        condition = None if filter is None else parse_filter(filter)
        return self._answer(lambda view: view.facets(request, condition))

    def count(self, filter: Mapping[str, object]) -> int:  # noqa: A002  # as in Engine.count
        """Return the number of documents that pass a filter; see `Engine.count`."""
        condition = parse_filter(filter)
        return self._answer(lambda view: view.count(condition))

    def __len__(self) -> int:
        return self._view.n_documents

    def folder(self) -> Path:
        """Return the folder of the index."""
        return self._path

    def stats(self) -> dict[str, object]:
        """Return statistics as those of a sharded index, see `quarry.engine.shards.statistics`.

        Memory is that of one copy of each shard, without decoded postings.
        """
        return self._answer(lambda view: view.statistics())

    def refresh(self) -> bool:
        """Search the newest generation of every shard from now on; return whether there was a newer one."""
        with self._lock:
            before, self._view = self._view, self._open(self._view)
            return before is not self._view

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _answer(self, use: Callable[[_RoutedView], R]) -> R:
        """Use a view; again with a newer one if a copy of a shard no longer has the generation of this one."""
        for attempt in range(_ATTEMPTS):
            if not self._view.is_newest:
                self.refresh()
            view = self._view
            try:
                found = use(view)
            except StaleGeneration:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                if not view.is_stale or attempt + 1 == _ATTEMPTS:
                    return found
            time.sleep(_PAUSE_S * attempt)
            self.refresh()
        raise AssertionError

    def _open(self, before: _RoutedView | None = None) -> _RoutedView:
        """Ask every shard for its newest generation; one that does not answer keeps that of the view before."""
        names = [f"shard {number}" for number in range(len(self._handles))]

        def state(number: int) -> ShardState:
            answer: Answer = call(self._handles[number], "state", (), self._timeout_s, f"the {names[number]}")
            found: ShardState = answer.value
            return found

        found = Gathering(self._threads, names, allow_partial=before is not None).run(state)
        states = [
            found[number] if before is None or number in found else before.shards[number].state
            for number in range(len(self._handles))
        ]
        if before is not None and not before.is_stale and before.is_newest:
            known = [shard.state.manifest.commit_id for shard in before.shards]
            if known == [each.manifest.commit_id for each in states]:
                return before
        if len({(each.set_id, each.n_shards) for each in states}) > 1 or states[0].n_shards != len(self._handles):
            if before is not None:  # a build is replacing the index; the old files stay open
                return before
            raise CorruptFile("the shards are those of different builds; serve the index again", path=self._path)
        shards = [
            RemoteShard(handle, state, self._timeout_s)
            for handle, state in zip(self._handles, states, strict=True)
        ]
        return _RoutedView(self._path, None, shards, self._threads, self._resources)  # type: ignore[arg-type]
