"""Ray Serve: a deployment for each shard of an index, with several copies, and one that routes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quarry.distributed import importing_ray
from quarry.distributed.replica import Reply, ShardReplica
from quarry.distributed.routed_index import RoutedIndex
from quarry.distributed.served_shards import ServedShards
from quarry.engine import Engine
from quarry.engine.arguments import checked_integer, checked_seconds, shown
from quarry.engine.encoding.opening import EncoderSource, open_encoder
from quarry.engine.gpu.device import Device
from quarry.engine.index.resources import ViewResources
from quarry.engine.options import OpenOptions
from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, IndexNotFound, InvalidSetting, QuarryError
from quarry.formats.shard_set import load_newest_shard_set
from quarry.formats.system_errors import checked_path

with importing_ray():
    import ray
    from ray import serve
    from ray.serve.exceptions import RayServeException
    from ray.serve.schema import ApplicationStatus

__all__ = ["connect_index", "is_serving", "serve_index"]

_HEALTH_PERIOD_S = 2.0  # between two checks of a copy by Ray Serve
_HEALTH_TIMEOUT_S = 10.0
"""Ray's defaults are 10 s and 30 s. A check reads one document; the 99th percentile of whole queries over two
shards was .16 s, with nine busy processes on two cores (`bench/results/shards.jsonl`), so a copy that takes ten
seconds hangs."""
_SHUTDOWN_S = 2.0  # for a copy to finish its requests
_POLL_S = 0.1  # between two looks whether an application has started or ended
_MAX_COPIES = 1 << 20
_CALLS = 3
"""Requests in a row to which the timeout of a call of the router amounts."""


class _Shard:
    """The deployment of one shard; each copy opens the same immutable files."""

    def __init__(self, index: str, number: int, n_shards: int, options: OpenOptions) -> None:
        self._replica = ShardReplica(Path(index), number, n_shards, options)

    async def state(self) -> Reply:
        return await asyncio.to_thread(self._replica.state)

    async def call(self, commit_id: bytes, method: str, arguments: tuple[Any, ...]) -> Reply:
        return await asyncio.to_thread(self._replica.call, commit_id, method, arguments)

    async def check_health(self) -> None:
        await asyncio.to_thread(self._replica.check)


class _Router:
    """The deployment that clients ask."""

    def __init__(  # all that a router needs
        self,
        index: str,
        shards: Sequence[Any],
        encoder: EncoderSource,
        reranker: str | os.PathLike[str] | Reranker | None,
        options: OpenOptions,
        timeout_s: float,
    ) -> None:
        scorer = None if reranker is None else open_reranker(reranker, options.n_threads)
        chosen = None if encoder is None else open_encoder(encoder)
        resources = ViewResources(options, Device(None, None), chosen, scorer)
        self._index = RoutedIndex(Path(index), shards, resources, timeout_s)

    async def call(self, method: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:  # noqa: ANN401
        try:
            return await asyncio.to_thread(getattr(self._index, method), *arguments, **keywords)
        except QuarryError as error:  # Ray Serve would wrap and log it
            return error

    async def check_health(self) -> None:
        self._index.folder()


def serve_index(  # noqa: PLR0913  # keywords, each with a default
    path: str | os.PathLike[str],
    *,
    name: str = "quarry",
    encoder: EncoderSource = None,
    reranker: str | os.PathLike[str] | Reranker | None = None,
    replicas: int = 1,
    max_ongoing_requests: int = 8,
    num_cpus: float = 1,
    threads: int = 1,
    timeout_s: float = 10.0,
    start_timeout_s: float = 300.0,
) -> ServedShards:
    """Serve a sharded index with Ray Serve, and return what searches it; the cluster must be running.

    The folder of the index has to be readable by all nodes, under the same path. If Ray Serve is not running on
    the cluster yet, it is started without its own HTTP server, which nothing here needs: to have that too, call
    ``ray.serve.start`` before.

    Args:
        path: folder of the index.
        name: the name of the application. One of this name is replaced.
        encoder: the encoder of queries, as in `Engine.open`; the router encodes.
        reranker: as in `Engine.open`; the router reranks.
        replicas: copies of each shard. All read the same files, so memory that is mapped is shared on a node.
        max_ongoing_requests: requests that a copy works on at once; others wait at the router.
        num_cpus: processors that Ray reserves for each copy, and for the router.
        threads: the number of threads of each copy.
        timeout_s: the time limit, in seconds, of each request to a shard. A search of a shard takes milliseconds;
            this is for a copy that ended and is being replaced, which takes seconds.
        start_timeout_s: seconds until all copies must have started.

    Raises:
        IndexNotFound: there is no sharded index.
        EncoderMismatch: the index was built with another encoder.
        InvalidSetting: a value is out of range.
        QuarryError: a shard cannot be opened.
        BackendUnavailable: the copies have not started in time, for example because the cluster has too few
            processors; nothing is left of the application.
    """
    checked_integer(replicas, "replicas", 1, _MAX_COPIES)
    checked_integer(max_ongoing_requests, "max_ongoing_requests", 1, _MAX_COPIES)
    if checked_seconds(timeout_s, "timeout_s") <= 0:
        raise InvalidSetting("timeout_s is out of range", expected="seconds above 0", actual=shown(timeout_s))
    options = OpenOptions(threads=threads)
    folder = checked_path(path, "path").absolute()
    n_shards = len(load_newest_shard_set(Directory(folder)).folders)
    with Engine.open(folder, encoder=encoder, threads=1) as index:  # errors of the index are raised here
        index.check_encoder()
    common = {
        "max_ongoing_requests": max_ongoing_requests,
        "health_check_period_s": _HEALTH_PERIOD_S,
        "health_check_timeout_s": _HEALTH_TIMEOUT_S,
        "graceful_shutdown_timeout_s": _SHUTDOWN_S,
        "ray_actor_options": {"num_cpus": num_cpus},
    }
    shards = [
        serve.deployment(_Shard, name=f"{name}-shard-{number}", num_replicas=replicas, **common).bind(
            str(folder), number, n_shards, options
        )
        for number in range(n_shards)
    ]
    routing = {**common, "max_ongoing_requests": max_ongoing_requests * replicas}
    router = serve.deployment(_Router, name=f"{name}-router", **routing).bind(
        str(folder), shards, encoder, reranker, options, timeout_s
    )
    serve.start(proxy_location="Disabled")
    serve.run_many(
        [serve.RunTarget(target=router, name=name, route_prefix=None)], wait_for_applications_running=False
    )
    try:
        _wait_until_running(name, start_timeout_s, (n_shards * replicas + 1) * num_cpus)
    except BaseException:  # such as an interrupt
        serve.delete(name)
        raise
    return connect_index(name, timeout_s=timeout_s)


def connect_index(name: str = "quarry", *, timeout_s: float = 10.0) -> ServedShards:
    """Return what searches an index that `serve_index` serves, maybe from another process of the cluster.

    Args:
        name: the name of the application.
        timeout_s: as for `serve_index`.

    Raises:
        IndexNotFound: there is no application of this name.
    """
    try:
        handle = serve.get_app_handle(name)
    except RayServeException as error:
        raise IndexNotFound(
            "there is no such application of Ray Serve",
            expected="the name given to serve_index",
            actual=shown(name),
        ) from error
    return ServedShards(handle, _CALLS * timeout_s)


def is_serving(name: str) -> bool:
    """Return whether there is an application of this name, running or not."""
    return name in serve.status().applications


def _wait_until_running(name: str, seconds: float, n_cpus: float) -> None:
    """Wait until all copies of an application have started.

    Args:
        name: the name of the application.
        seconds: to wait.
        n_cpus: processors that it needs, for the message.

    Raises:
        BackendUnavailable: they have not started in time, or one of them cannot start.
    """
    deadline = time.monotonic() + seconds
    while True:
        app = serve.status().applications[name]
        if app.status == ApplicationStatus.RUNNING:
            return
        if app.status == ApplicationStatus.DEPLOY_FAILED or time.monotonic() > deadline:
            free = ray.available_resources().get("CPU", 0)
            raise BackendUnavailable(
                f"the application {name} of Ray Serve did not start",
                expected=f"{n_cpus:g} processors (num_cpus for each copy and the router) within {seconds:g} s",
                actual=f"{free:g} free ones; {' '.join(app.message.split())[-500:] or app.status.value}",
            )
        time.sleep(_POLL_S)
