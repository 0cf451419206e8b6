"""Numbers about a sharded index, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

__all__ = ["ShardStatistics", "sharded_statistics"]


_ADDED = ("generation", "n_documents", "n_deleted", "n_centroids", "n_segments", "size_bytes")
_ALIKE = ("dim", "metric", "representation", "encoder", "stored", "code_bytes", "dense_weight")
_SHOWN = ("generation", "n_documents", "n_segments", "size_bytes", "drift")


@dataclass(frozen=True)
class ShardStatistics:
    """A shard in numbers.

    Attributes:
        name: of its folder.
        index: see `quarry.engine.index.statistics.index_statistics`.
        resources: see `quarry.engine.index.statistics.resource_statistics`.
    """

    name: str
    index: Mapping[str, object]
    resources: Mapping[str, object]


def sharded_statistics(shards: Sequence[ShardStatistics]) -> dict[str, object]:
    """Describe the shards of an index, as `index_statistics` and `resource_statistics` describe one index.

    Numbers are added up, the generations too; drift is that of the shard whose codes fit worst. Beside them are
    n_shards and shards: by folder generation, n_documents, n_segments, size_bytes and drift.

    Args:
        shards: their descriptions, in their order.
    """
    each = [shard.index for shard in shards]
    held = [shard.resources for shard in shards]
    backends = [cast("Mapping[str, object]", one["backend"]) for one in held]
    memory = [cast("Mapping[str, object]", one["memory"]) for one in held]
    return {
        **{name: _total(one[name] for one in each) for name in _ADDED},
        **{name: each[0][name] for name in _ALIKE},
        "drift": _worst_drift([one["drift"] for one in each]),
        "bytes": _totals([one["bytes"] for one in each]),
        "backend": {"requested": backends[0]["requested"], "chosen": _chosen([one["chosen"] for one in backends])},
        "memory": {
            "limit_bytes": _total_limit([one["limit_bytes"] for one in memory]),
            "mapped_bytes": _total(one["mapped_bytes"] for one in memory),
            "resident_bytes": _totals([one["resident_bytes"] for one in memory]),
            "device_bytes": _total(one["device_bytes"] for one in memory),
        },
        "n_shards": len(shards),
        "shards": {
            shard.name: {name: one[name] for name in _SHOWN} for shard, one in zip(shards, each, strict=True)
        },
    }


def _total(values: Iterable[object]) -> int:
    return sum(cast("Iterable[int]", values))


def _total_limit(limits: Sequence[object]) -> int | None:
    return None if None in limits else _total(limits)


def _totals(parts: Sequence[object]) -> dict[str, int]:
    """Numbers by name, added up."""
    total: Counter[str] = Counter()
    for part in parts:
        for name, value in cast("Mapping[str, int]", part).items():
            total[name] += value
    return dict(total)


def _chosen(backends: Sequence[object]) -> dict[str, dict[str, object]]:
    """The choices in all shards, by name of the backend."""
    chosen: dict[str, dict[str, object]] = {}
    for backend in cast("Sequence[Mapping[str, Mapping[str, object]]]", backends):
        for name, found in backend.items():
            known = chosen.setdefault(name, {"n_segments": 0, "n_centroids": 0, "reason": found["reason"]})
            for count in ("n_segments", "n_centroids"):
                known[count] = _total((known[count], found[count]))
    return chosen


def _worst_drift(drifts: Sequence[object]) -> object:
    known = [cast("Mapping[str, object]", drift) for drift in drifts if drift is not None]
    return max(known, key=lambda drift: cast("float", drift["code_error_ratio"]), default=None)
