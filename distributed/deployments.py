"""Ray Serve: a deployment for each shard of an index, with several copies, and one that routes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Unpack, cast, overload

import quarry.distributed  # noqa: F401  # before ray: sets its environment
from quarry.distributed.replica import Answer, ShardReplica
from quarry.distributed.routed_index import RoutedIndex
from quarry.engine.documents.document import Document
from quarry.engine.encoding.opening import EncoderSource, open_encoder
from quarry.engine.gpu.device import Device
from quarry.engine.index.view import ViewResources
from quarry.engine.options import OpenOptions, SearchKeywords
from quarry.engine.search.hits.hits import Hits
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, InvalidSetting, QuarryError, ShardTimeout
from quarry.formats.shard_set import load_newest_shard_set
from quarry.formats.system_errors import checked_path

try:
    from ray import serve
except ImportError as error:
    raise BackendUnavailable(
        "Ray is not installed", expected="pip install 'quarry-search[distributed]'", actual=str(error)
    ) from error

__all__ = ["ServedShards", "serve_index"]

_HEALTH_PERIOD_S = 2.0
_HEALTH_TIMEOUT_S = 10.0
"""Ray's defaults are 10 s and 30 s. A check reads one document; the 99th percentile of whole queries over two
shards was .16 s, with nine busy processes on two cores (`bench/results/shards.jsonl`), so a copy that takes ten
seconds hangs."""
_SHUTDOWN_S = 2.0


class _Shard:
    """The deployment of one shard; each copy opens the same immutable files."""

    def __init__(self, index: str, number: int, options: OpenOptions) -> None:
        self._replica = ShardReplica(Path(index), number, options)

    async def state(self) -> Answer:
        return await asyncio.to_thread(self._replica.state)

    async def call(self, commit_id: bytes, method: str, arguments: tuple[Any, ...]) -> Answer:
        return await asyncio.to_thread(self._replica.call, commit_id, method, arguments)

    async def check_health(self) -> None:
        await asyncio.to_thread(self._replica.check)


class _Router:
    """The deployment that clients ask."""

    def __init__(
        self, index: str, shards: Sequence[Any], encoder: EncoderSource, options: OpenOptions, timeout_s: float
    ) -> None:
        resources = ViewResources(options, Device(None, None), open_encoder(encoder), is_default=encoder is None)
        self._index = RoutedIndex(Path(index), shards, resources, timeout_s)

    async def call(self, method: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:  # noqa: ANN401
        try:
            return await asyncio.to_thread(getattr(self._index, method), *arguments, **keywords)
        except QuarryError as error:  # Ray Serve would wrap and log it
            return error

    async def check_health(self) -> None:
        len(self._index)


class ServedShards:
    """Has the reading methods of `quarry.engine.Engine`, answered by the router of an application of Ray Serve.

    Args:
        handle: of the router.
        timeout_s: of each call.
    """

    def __init__(self, handle: Any, timeout_s: float) -> None:  # noqa: ANN401  # of Ray
        self._handle = handle
        self._timeout_s = timeout_s

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self, queries: str, k: int = ..., **options: Unpack[SearchKeywords]
    ) -> Hits: ...

    @overload
    def search(self, queries: Sequence[str], k: int = ..., **options: Unpack[SearchKeywords]) -> list[Hits]: ...

    def search(
        self, queries: str | Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]
    ) -> Hits | list[Hits]:
        """Search with one or several texts; see `Engine.search`."""
        found = self._call("search", queries, k, **options)
        return cast("Hits | list[Hits]", found)

    def get(self, ids: Iterable[str] | str) -> list[Document]:
        """Return the documents with these ids; see `Engine.get`."""
        return cast("list[Document]", self._call("get", ids if isinstance(ids, str) else list(ids)))

    def documents(
        self,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002
        offset: int = 0,
        limit: int | None = None,
    ) -> NoReturn:
        """Raise InvalidSetting: documents are not listed by shards that are served."""
        raise _not_served("documents are not listed")

    def facets(
        self,
        field: str,
        *,
        query: str | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002
        limit: int | None = 100,
    ) -> NoReturn:
        """Raise InvalidSetting: values of fields are not counted by shards that are served."""
        raise _not_served("values of fields are not counted")

    def close(self) -> None:
        """Do nothing: the application goes on until `ray.serve.delete` or `ray.serve.shutdown`."""

    def count(self, filter: Mapping[str, object]) -> int:  # noqa: A002  # as in Engine.count
        """Return the number of documents that pass a filter; see `Engine.count`."""
        return int(self._call("count", dict(filter)))

    def __len__(self) -> int:
        return int(self._call("__len__"))

    def stats(self) -> dict[str, object]:
        """Return statistics; see `RoutedIndex.stats`."""
        return cast("dict[str, object]", self._call("stats"))

    def refresh(self) -> bool:
        """Search the newest generation from now on; return whether there was a newer one."""
        return bool(self._call("refresh"))

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  # of any method
        try:
            found = self._handle.call.remote(method, arguments, keywords).result(timeout_s=self._timeout_s)
        except TimeoutError:
            raise ShardTimeout("the router did not answer in time", expected=f"{self._timeout_s} s") from None
        if isinstance(found, QuarryError):
            raise found
        return found


def _not_served(what: str) -> InvalidSetting:
    return InvalidSetting(f"{what} if the index is served with Ray", expected="the index opened with Engine.open")


def serve_index(
    path: str | os.PathLike[str],
    *,
    name: str = "quarry",
    encoder: EncoderSource = None,
    replicas: int = 1,
    max_ongoing_requests: int = 8,
    num_cpus: float = 1,
    threads: int = 1,
    timeout_s: float = 10.0,
) -> ServedShards:
    """Serve a sharded index with Ray Serve, and return what searches it; the cluster must be running.

    The folder of the index has to be readable by all nodes, under the same path.

    Args:
        path: folder of the index.
        name: of the application.
        encoder: of queries, as in `Engine.open`; the router encodes.
        replicas: copies of each shard. All read the same files, so memory that is mapped is shared on a node.
        max_ongoing_requests: requests that a copy works on at once; others wait at the router.
        num_cpus: processors that Ray reserves for each copy, and for the router.
        threads: of each copy.
        timeout_s: of each request to a shard. A search of a shard takes milliseconds; this is for a copy that
            ended and is being replaced, which takes seconds.

    Raises:
        IndexNotFound: there is no sharded index.
        QuarryError: a shard cannot be opened.
    """
    folder = checked_path(path, "path").absolute()
    shard_set = load_newest_shard_set(Directory(folder))
    options = OpenOptions(threads=threads)
    common = {
        "max_ongoing_requests": max_ongoing_requests,
        "health_check_period_s": _HEALTH_PERIOD_S,
        "health_check_timeout_s": _HEALTH_TIMEOUT_S,
        "graceful_shutdown_timeout_s": _SHUTDOWN_S,
        "ray_actor_options": {"num_cpus": num_cpus},
    }
    shards = [
        serve.deployment(_Shard, name=f"{name}-shard-{number}", num_replicas=replicas, **common).bind(
            str(folder), number, options
        )
        for number in range(len(shard_set.folders))
    ]
    routing = {**common, "max_ongoing_requests": max_ongoing_requests * max(1, replicas)}
    router = serve.deployment(_Router, name=f"{name}-router", **routing).bind(
        str(folder), shards, encoder, options, timeout_s
    )
    handle = serve.run(router, name=name, route_prefix=None)
    return ServedShards(handle, 3 * timeout_s)
