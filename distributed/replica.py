"""One copy of a shard in a process of Ray Serve: answers requests at the generation that they name."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quarry.engine.documents.document import Document
from quarry.engine.filtering.filter import Condition
from quarry.engine.gpu.device import Device
from quarry.engine.index.partition import OpenPartition, PartitionSize
from quarry.engine.lexical.close_terms import Expansion
from quarry.engine.listing.documents import StoredDocuments
from quarry.engine.options import OpenOptions
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexNotFound, QuarryError
from quarry.formats.manifest import Manifest
from quarry.formats.shard_set import ShardSet, shard_directory, use_newest_shard_set
from quarry.formats.snapshot import Snapshot

__all__ = ["REFRESH_S", "GivenStatistics", "Opened", "Reply", "ShardReplica", "ShardState", "other_shards"]

_KEPT = 3  # generations that requests may still name
REFRESH_S = 0.5
"""Seconds after which the folder is listed again, which takes less than a tenth of a millisecond."""


class Opened(NamedTuple):
    """A generation that a copy of a shard has opened.

    Attributes:
        set_id: the id of the shard set that names it; generations of different ones do not follow each other.
        generation: the generation of the shard.
    """

    set_id: bytes
    generation: int


@dataclass(frozen=True, kw_only=True)
class ShardState:
    """A generation of a shard, as a router knows it.

    Attributes:
        name: the name of the folder.
        set_id: the id of the shard set that names it.
        manifest: the manifest of the generation.
        size: the size of its documents.
    """

    name: str
    set_id: bytes
    manifest: Manifest
    size: PartitionSize

    @property
    def opened(self) -> Opened:
        """The generation."""
        return Opened(self.set_id, self.manifest.generation)


@dataclass(frozen=True)
class Reply:
    """The reply of a copy of a shard.

    Attributes:
        value: what the method returned, or its QuarryError; None if it is stale.
        newest: the newest generation that this copy has opened.
        is_stale: whether this copy does not have the generation of the request, or no longer.
    """

    value: Any
    newest: Opened
    is_stale: bool = False


@dataclass(frozen=True, eq=False)
class GivenStatistics:
    """Statistics of the documents of all shards, as a router sends them with a query.

    Attributes:
        analysis: names the analysis of the query.
        n_docs: live documents.
        average_length: mean number of terms of a live document.
        frequencies: number of documents with each term of the query, and with what stands for it.
        expansions: what stands for the terms that no document has.
    """

    analysis: str
    n_docs: int
    average_length: float
    frequencies: Mapping[str, int]
    expansions: Mapping[str, Sequence[Expansion]]

    def document_frequency(self, term: str) -> int:
        """Return the number of live documents of all shards with a term of the query."""
        return self.frequencies.get(term, 0)

    def expand(self, term: str) -> Sequence[Expansion]:
        """Return what stands for a term of the query that no document has."""
        return self.expansions.get(term, ())


class ShardReplica:
    """The newest generations of one shard, open for reading; safe to use from several threads.

    Args:
        index: folder of the index.
        number: the number of the shard.
        n_shards: the number of shards of the index. If it is built again with another number, copies keep what
            they have open.
        options: resources to use.
        refresh_s: seconds after which a call looks for a newer generation.

    Raises:
        QuarryError: the shard cannot be opened.
    """

    def __init__(
        self, index: Path, number: int, n_shards: int, options: OpenOptions, refresh_s: float = REFRESH_S
    ) -> None:
        self._index = index
        self._number = number
        self._n_shards = n_shards
        self._options = options
        self._refresh_s = refresh_s
        self._device = Device(None, None)
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._opened: OrderedDict[bytes, tuple[ShardState, OpenPartition]] = OrderedDict()
        self._checked = 0.0
        self._refresh()

    def state(self) -> Reply:
        """Return the `ShardState` of the newest generation."""
        self._refresh()
        with self._lock:
            state, _ = next(reversed(self._opened.values()))
        return Reply(state, state.opened)

    def check(self) -> None:
        """Raise unless the newest generation can be opened and a document of it be read."""
        self._refresh()
        with self._lock:
            _, shard = next(reversed(self._opened.values()))
        for segment in shard.segments[:1]:
            segment.reader.ids[0]
            segment.reader.documents[0]

    def call(self, commit_id: bytes, method: str, arguments: tuple[Any, ...]) -> Reply:
        """Call a method of the shard at a generation.

        Args:
            commit_id: the id of the generation.
            method: one of `_METHODS`.
            arguments: the arguments of the method, without the shard.
        """
        if time.monotonic() - self._checked > self._refresh_s:
            self._refresh()
        shard, newest = self._find(commit_id)
        if shard is None:
            self._refresh()
            shard, newest = self._find(commit_id)
        if shard is None:
            return Reply(None, newest, is_stale=True)
        try:
            return Reply(_METHODS[method](shard, *arguments), newest)
        except QuarryError as error:  # Ray Serve would wrap and log it
            return Reply(error, newest)

    def _find(self, commit_id: bytes) -> tuple[OpenPartition | None, Opened]:
        with self._lock:
            newest = next(reversed(self._opened.values()))[0].opened
            opened = self._opened.get(commit_id)
            return (None if opened is None else opened[1]), newest

    def _refresh(self) -> None:
        """Open the newest generation, if it is not open; meanwhile the others answer.

        Older ones are closed when no request uses them any more.

        Raises:
            IndexNotFound: there is no index any more.
            FormatError: a file is damaged, or the folder of the shard is missing.
        """
        with self._refreshing:
            self._checked = time.monotonic()
            n_shards = use_newest_shard_set(Directory(self._index), self._open)
            if n_shards != self._n_shards and not self._opened:  # otherwise the router says so
                raise other_shards(self._index, self._n_shards, n_shards)

    def _open(self, shard_set: ShardSet) -> int:
        """Open the newest generation of the shard that a shard set names, if it is not open.

        Returns:
            The number of shards; nothing is opened if it is another one than is served.
        """
        n_shards = len(shard_set.folders)
        if n_shards != self._n_shards:
            return n_shards
        name = shard_set.folders[self._number]
        directory = shard_directory(Directory(self._index), name, n_shards)
        last = next(reversed(self._opened.values()), None)
        if last is not None and last[0].name == name and last[0].manifest.is_newest(directory):
            return n_shards
        before = last[1] if last is not None and last[0].name == name else None
        snapshot = Snapshot(directory) if before is None else before.snapshot.reopen()
        shard = OpenPartition(name, snapshot, self._options, self._device, before)
        state = ShardState(name=name, set_id=shard_set.set_id, manifest=snapshot.manifest, size=shard.measure())
        with self._lock:
            self._opened[snapshot.manifest.commit_id] = (state, shard)
            self._opened.move_to_end(snapshot.manifest.commit_id)
            while len(self._opened) > _KEPT:
                self._opened.popitem(last=False)
        return n_shards


def other_shards(index: Path, n_served: int, n_shards: int) -> IndexNotFound:
    """Return the error for an index that was built again with another number of shards than are served."""
    return IndexNotFound(
        "the index was built again with another number of shards; serve it again",
        path=index,
        expected=f"{n_served} shards, as are served",
        actual=n_shards,
    )


def _list_documents(shard: OpenPartition, condition: Condition | None, offset: int, limit: int) -> list[Document]:
    return list(_stored(shard, condition).documents(offset, limit))


def _list_ids(shard: OpenPartition, condition: Condition | None, offset: int, limit: int) -> list[str]:
    return list(_stored(shard, condition).ids(offset, limit))


def _stored(shard: OpenPartition, condition: Condition | None) -> StoredDocuments:
    return StoredDocuments(shard.segments, shard.filter.allowed(condition), shard.snapshot.directory.path)


_METHODS: Mapping[str, Callable[..., Any]] = {
    "arrange": OpenPartition.arrange,
    "background": lambda shard: shard.background,
    "close_terms": OpenPartition.close_terms,
    "count": OpenPartition.count,
    "count_completions": OpenPartition.count_completions,
    "count_matches": OpenPartition.count_matches,
    "count_facets": OpenPartition.count_facets,
    "describe": OpenPartition.describe,
    "document_frequencies": OpenPartition.document_frequencies,
    "documents": OpenPartition.documents,
    "evaluate": OpenPartition.evaluate,
    "find": OpenPartition.find,
    "find_nearest": OpenPartition.find_nearest,
    "find_similar": OpenPartition.find_similar,
    "has": OpenPartition.has,
    "list_documents": _list_documents,
    "list_ids": _list_ids,
    "read": OpenPartition.read,
}
"""The methods of a shard that a router may call; the collection that they need is what it sends."""
