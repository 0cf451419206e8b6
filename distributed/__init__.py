"""Building and serving indexes with Ray: thin adapters, needs the extra ``distributed``.

Start with `datasink`: `QuarryDatasink` writes a Ray Dataset as an index, `build_index` does so with a pool of
actors, on CPUs or GPUs; both distribute what `quarry.engine.building.workers` does in any process, and bound how
often work is tried that ends its processes.

`deployments.serve_index` serves an index with Ray Serve: copies of shards (`replica`) answer a router
(`routed_index`), for which they are shards like any others (`remote_shard`), and the router answers clients
(`served_shards`). `calls` repeats a call if a process ends. `serve_command` is ``quarry serve`` with ``--ray``.

Importing it turns off Ray's usage statistics, unless the environment enables them: Ray reads the variable when a
cluster is started, so import this package, or set ``RAY_USAGE_STATS_ENABLED=0``, before ``ray.init``.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING

from quarry.engine.process.libraries import requiring

if TYPE_CHECKING:
    from quarry.distributed.datasink import QuarryDatasink, build_index
    from quarry.distributed.deployments import connect_index, serve_index
    from quarry.distributed.remote_shard import StaleGeneration
    from quarry.distributed.served_shards import ServedShards

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_PLACES = {
    "QuarryDatasink": "quarry.distributed.datasink",
    "ServedShards": "quarry.distributed.served_shards",
    "StaleGeneration": "quarry.distributed.remote_shard",
    "build_index": "quarry.distributed.datasink",
    "connect_index": "quarry.distributed.deployments",
    "serve_index": "quarry.distributed.deployments",
}

__all__ = ["QuarryDatasink", "ServedShards", "StaleGeneration", "build_index", "connect_index", "serve_index"]


def importing_ray() -> AbstractContextManager[None]:
    """Raise BackendUnavailable if Ray, which the block imports, is not installed."""
    return requiring("Ray is not installed", "'quarry-search[distributed]'")


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
