"""An index whose shards are deployments: searched with the ranking of one index, as far as its copies answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Unpack

import numpy.typing as npt

from quarry.distributed.remote_shard import RemoteShard, StaleGeneration, ask
from quarry.distributed.replica import ShardState
from quarry.engine.documents.document import Document
from quarry.engine.documents.given import id_list
from quarry.engine.encoding.queries import query_texts
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.index.view import ViewResources
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.scoring.query_vectors import query_vectors
from quarry.engine.search.hits.hits import Hits
from quarry.engine.shards.gathering import ShardThreads
from quarry.engine.shards.view import ShardedView
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["RoutedIndex"]

R = TypeVar("R")

_ATTEMPTS = 10  # each fails only if a shard was committed several times in between
_PAUSE_S = 0.05
_WAITING = 32  # threads for each shard; they only wait for answers


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

    def statistics(self) -> dict[str, object]:
        shards = {
            shard.name: {"generation": shard.state.manifest.generation, "n_documents": shard.n_documents}
            for shard in self.shards
        }
        generation = sum(shard.state.manifest.generation for shard in self.shards)
        return {
            "generation": generation,
            "n_documents": self.n_documents,
            "n_shards": len(self.shards),
            "shards": shards,
        }

    def stored(self, condition: object) -> NoReturn:
        raise _not_served(self._path, "documents are not listed")

    def facets(self, request: object, condition: object) -> NoReturn:
        raise _not_served(self._path, "values of fields are not counted")


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
        self, queries: str | Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]
    ) -> Hits | list[Hits]:
        """Search with one or several texts; see `Engine.search`."""
        chosen, texts = SearchOptions.of(k, options), query_texts(queries)
        if chosen.like is not None:
            raise _not_served(self._path, "documents like another are not searched for")
        found = self._answer(lambda view: view.search(texts, chosen))
        return found[0] if isinstance(queries, str) else found

    def search_vectors(self, queries: npt.ArrayLike, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Search with (n, dim) query vectors in dense mode; see `Engine.search_vectors`."""
        options.setdefault("mode", "dense")
        chosen = SearchOptions.of(k, options)
        vectors = query_vectors(queries, self._view.metric.dim)
        return self._answer(lambda view: view.search(None, chosen, vectors))

    def get(self, ids: Iterable[str] | str) -> list[Document]:
        """Return the documents with these ids; see `Engine.get`."""
        wanted = id_list(ids)
        return self._answer(lambda view: view.documents(wanted))

    def count(self, filter: Mapping[str, object]) -> int:  # noqa: A002  # as in Engine.count
        """Return the number of documents that pass a filter; see `Engine.count`."""
        condition = parse_filter(filter)
        return self._answer(lambda view: view.count(condition))

    def __len__(self) -> int:
        return self._view.n_documents

    def stats(self) -> dict[str, object]:
        """Return generation, n_documents, n_shards, and by shard generation and n_documents."""
        return self._view.statistics()

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
        states: list[ShardState] = []
        for number, handle in enumerate(self._handles):
            try:
                states.append(ask(handle, "state", (), self._timeout_s, str(number)).value)
            except Exception:
                if before is None:
                    raise
                states.append(before.shards[number].state)
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


def _not_served(path: Path, what: str) -> InvalidSetting:
    return InvalidSetting(f"{what} by an index that is served with Ray; open it with Engine.open", path=path)
