"""An index whose shards are deployments: searched with the ranking of one index, as far as its copies answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from quarry.distributed.calls import call
from quarry.distributed.remote_shard import RemoteShard, StaleGeneration
from quarry.distributed.replica import REFRESH_S, Reply, ShardState, other_shards
from quarry.engine.filtering.filter import Condition, parse_filter
from quarry.engine.index.gathering import Gathering, ShardThreads
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.view import View
from quarry.engine.index_reader import IndexReader
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, QuarryError
from quarry.formats.shard_set import load_newest_shard_set

__all__ = ["ListedShard", "RoutedIndex"]

_ATTEMPTS = 10  # each fails only if a shard was committed several times in between
_PAUSE_S = 0.05
_WAITING = 32  # threads for each shard; they only wait for answers


@dataclass(frozen=True)
class ListedShard:
    """A shard whose documents are to be listed.

    Attributes:
        number: the number of the shard.
        name: the name of its folder.
        commit_id: the id of its generation.
        n_documents: number of its documents that pass the filter.
    """

    number: int
    name: str
    commit_id: bytes
    n_documents: int


class _RoutedView(View[RemoteShard]):
    """The view of shards behind deployments."""

    @property
    def set_id(self) -> bytes:
        """Id of the shard set that names the shards."""
        return self.partitions[0].state.set_id

    @property
    def is_stale(self) -> bool:
        """Whether a copy of a shard did not have the generation of this view."""
        return any(shard.is_stale for shard in self.partitions)

    @property
    def is_newest(self) -> bool:
        """Whether no copy said that it has a newer generation."""
        return all(shard.is_newest for shard in self.partitions)

    def different_generations(self) -> dict[str, tuple[int, ...]]:
        return {
            shard.name: tuple(sorted(each.generation for each in shard.opened))
            for shard in self.partitions
            if len(shard.opened) > 1
        }

    def parts(self, condition: Condition | None) -> list[ListedShard]:
        """Return the shards with the number of documents of each that satisfy a condition; None: all documents."""
        if condition is None:
            counts = {number: shard.n_documents for number, shard in enumerate(self.partitions)}
        else:
            counts = self.count_each(condition)
        return [
            ListedShard(number, shard.name, shard.state.manifest.commit_id, counts[number])
            for number, shard in enumerate(self.partitions)
        ]


class _NewestView:
    """The newest view of a routed index, at each call of a method of it."""

    def __init__(self, index: RoutedIndex) -> None:
        self._index = index

    def get(self, *, to_read: bool = False) -> Any:  # noqa: ANN401  # a `_RoutedView`
        return self

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of any method
        value = getattr(self._index.newest_view(), name)
        return partial(self._index.ask, name) if callable(value) else value


class RoutedIndex(IndexReader):
    """Has the reading methods of `quarry.engine.Engine` for an index whose shards are served; thread-safe.

    `stats` has the memory of one copy of each shard.

    Each search names the generation of every shard, so that all its requests are answered from the same one. If a
    copy of a shard has a newer generation, or the index was built again, the next search begins with that. After a
    build with another number of shards, every method that reads raises IndexNotFound.

    Args:
        path: folder of the index.
        handles: the handles of the deployments of the shards, in their order.
        resources: encoder, reranker and threads of the router.
        timeout_s: time limit, in seconds, of each request, unless a search has a timeout of its own.
        refresh_s: seconds after which it is looked up again which build is current.
        pause_s: seconds to wait before an attempt for a generation that a copy does not have, times its number.
    """

    def __init__(
        self,
        path: Path,
        handles: Sequence[Any],
        resources: ViewResources,
        timeout_s: float,
        refresh_s: float = REFRESH_S,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._path = path
        self._handles = handles
        self._resources = resources
        self._timeout_s = timeout_s
        self._refresh_s = refresh_s
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._directory = Directory(path)
        self._shard_set = load_newest_shard_set(self._directory)
        self._checked = self._refreshed = time.monotonic()
        self._threads = ShardThreads(len(handles), _WAITING * len(handles))
        self._routed = self._open()
        self._view = _NewestView(self)

    def parts(self, filter: Mapping[str, object] | None) -> list[ListedShard]:  # noqa: A002  # as in Engine.count
        """Return the shards whose documents a listing reads one after another, at their generations.

        Args:
            filter: only documents that pass it are listed; None: all.

        Raises:
            InvalidFilter: the filter is not valid.
        """
        condition = None if filter is None else parse_filter(filter)
        parts: list[ListedShard] = self.ask("parts", condition)
        return parts

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
            time.sleep(self._pause_s * attempt)  # another copy may have the generation
            answer: Reply = call(
                self._handles[part.number], "call", asked, self._timeout_s, f"the shard {part.name}"
            )
            if isinstance(answer.value, QuarryError):
                raise answer.value
            if not answer.is_stale:
                rows: list[Any] = answer.value
                return rows
        raise StaleGeneration(
            "the index was changed several times while its documents were listed; begin again", path=self._path
        )

    def __len__(self) -> int:
        if time.monotonic() - self._refreshed > self._refresh_s:  # no answer of a shard says what is newest
            self.refresh()
        return super().__len__()

    def folder(self) -> Path:
        """Return the folder of the index."""
        return self._path

    def refresh(self) -> bool:
        """Search the newest generation of every shard from now on; return whether there was a newer one."""
        self._check_shard_set(0)
        with self._lock:
            self._refreshed = time.monotonic()
            before, self._routed = self._routed, self._open(self._routed)
            return before is not self._routed

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def newest_view(self) -> _RoutedView:
        """Return the view of the newest generation, as far as is known."""
        if not self._is_newest(self._routed):
            self.refresh()
        return self._routed

    def ask(self, method: str, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  # of any method
        """Return what a method of the view returns.

        It is called again, of a newer one, if a copy of a shard no longer has the generation of this one.
        """
        for attempt in range(_ATTEMPTS):
            view = self.newest_view()
            try:
                answer = getattr(view, method)(*arguments, **keywords)
            except StaleGeneration:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                if not view.is_stale or attempt + 1 == _ATTEMPTS:
                    return answer
            time.sleep(self._pause_s * attempt)
            self.refresh()
        raise AssertionError

    def _is_newest(self, view: _RoutedView) -> bool:
        """Return whether a view is that of the newest generation, as far as is known."""
        self._check_shard_set(self._refresh_s)
        return view.is_newest and view.set_id == self._shard_set.set_id

    def _check_shard_set(self, seconds: float) -> None:
        """Read which build is current, unless that was done in the last `seconds`.

        Raises:
            IndexNotFound: there is no index any more, or it has another number of shards than are served.
        """
        if time.monotonic() - self._checked >= seconds:
            self._shard_set = load_newest_shard_set(self._directory)
            self._checked = time.monotonic()
        if len(self._shard_set.folders) != len(self._handles):
            raise other_shards(self._path, len(self._handles), len(self._shard_set.folders))

    def _open(self, before: _RoutedView | None = None) -> _RoutedView:
        """Ask every shard for its newest generation; one that does not answer keeps that of the view before."""
        names = [f"shard {number}" for number in range(len(self._handles))]

        def state(number: int) -> ShardState:
            answer: Reply = call(self._handles[number], "state", (), self._timeout_s, f"the {names[number]}")
            state_of_copy: ShardState = answer.value
            return state_of_copy

        answers = Gathering(self._threads, names, allow_partial=before is not None).run(state)
        states = [
            answers[number] if before is None or number in answers else before.partitions[number].state
            for number in range(len(self._handles))
        ]
        if before is not None and not before.is_stale and before.is_newest:
            known = [shard.state.manifest.commit_id for shard in before.partitions]
            if known == [each.manifest.commit_id for each in states]:
                return before
        if len({each.set_id for each in states}) > 1:
            if before is not None:  # the index was built again just now; the old files stay open
                return before
            raise CorruptFile("the shards are those of different builds; serve the index again", path=self._path)
        shards = [
            RemoteShard(handle, state, self._timeout_s)
            for handle, state in zip(self._handles, states, strict=True)
        ]
        return _RoutedView(self._path, shards, self._resources, self._threads)
