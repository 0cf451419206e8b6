"""Statistics of an index: documents, sizes, backends, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from quarry.engine.index.drift import drift_statistics
from quarry.engine.index.memory import MemoryPlan
from quarry.engine.options import OpenOptions
from quarry.engine.scoring.metric import Metric
from quarry.engine.search.searcher import Searcher
from quarry.formats.segment import SEGMENT_PARTS
from quarry.formats.snapshot import Snapshot

__all__ = ["index_statistics", "joined_statistics", "resource_statistics"]

_ALIKE = ("dim", "metric", "representation", "encoder", "stored", "code_bytes", "dense_weight")  # in all shards
_SHOWN = ("generation", "n_documents", "n_segments", "size_bytes", "drift")


def index_statistics(snapshot: Snapshot) -> dict[str, object]:
    """Return statistics of a snapshot.

    Returns:
        generation, n_documents, n_deleted, n_centroids, n_segments, dim, metric ("ip", "cosine" or "l2"),
        representation (name and settings), encoder (its name, "none" without one), stored (int8, float16 or none),
        code_bytes, dense_weight (chosen for the index, or None), size_bytes (all files except the manifest), drift
        (see `quarry.engine.index.drift`), and bytes: size by part (centroids, codes, documents, ids,
        metadata, postings, quantizers, other). Sections that this version does not know count as "other".
    """
    manifest = snapshot.manifest
    settings = manifest.settings
    metric = Metric.of(manifest)
    size = _size_bytes(snapshot)
    parts = Counter(dict.fromkeys(SEGMENT_PARTS, 0))
    for segment in snapshot.segments:
        parts.update(segment.reader.part_bytes())
    parts["quantizers"] = sum(record.n_bytes for record in manifest.quantizers)
    parts["other"] = size - sum(parts.values())
    return {
        "generation": manifest.generation,
        "n_documents": len(snapshot),
        "n_deleted": sum(segment.n_deleted for segment in manifest.segments),
        "n_centroids": sum(segment.reader.n_rows for segment in snapshot.segments),
        "n_segments": len(manifest.segments),
        "dim": metric.dim,
        "metric": metric.name,
        "representation": {"name": settings.representation, **settings.representation_settings},
        "encoder": manifest.encoder.name,
        "stored": settings.centroids,
        "code_bytes": settings.code_bytes,
        "dense_weight": manifest.dense_weight,
        "size_bytes": size,
        "drift": drift_statistics(snapshot),
        "bytes": dict(parts),
    }


def resource_statistics(
    snapshot: Snapshot,
    options: OpenOptions,
    searcher: Searcher,
    plan: MemoryPlan,
    held: Mapping[str, int],
) -> dict[str, object]:
    """Return the backends and the memory of an open snapshot.

    Args:
        snapshot: the snapshot.
        options: options that the index was opened with.
        searcher: has the backends.
        plan: of the memory.
        held: main memory in bytes of the parts that are neither planned nor backends.

    Returns:
        backend: the requested backend, and the chosen ones by name with n_segments, n_centroids and the reason.
        memory: limit_bytes (or None), mapped_bytes (files, whose memory the operating system can reclaim),
        resident_bytes by part (open backends, decoded postings, cached filters, per-document data, quantizers),
        device_bytes.
    """
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for choice, segment in zip(searcher.choices, snapshot.segments, strict=True):
        counts.setdefault(choice.backend, Counter()).update(n_segments=1, n_centroids=segment.reader.n_rows)
        reasons.setdefault(choice.backend, {})[choice.reason] = None
    chosen = {name: {**count, "reason": " / ".join(reasons[name])} for name, count in counts.items()}
    return {
        "backend": {"requested": options.backend, "chosen": chosen},
        "memory": {
            "limit_bytes": options.memory_bytes,
            "mapped_bytes": sum(segment.reader.n_bytes for segment in snapshot.segments),
            "resident_bytes": {
                "backends": searcher.resident_bytes,
                **held,
                "documents": plan.document_bytes,
                "quantizers": plan.quantizer_bytes,
            },
            "device_bytes": searcher.device_bytes,
        },
    }


def _size_bytes(snapshot: Snapshot) -> int:
    """Return the size of all files as recorded in the manifest, since a later commit may have deleted them."""
    records = list(snapshot.manifest.quantizers)
    for segment in snapshot.manifest.segments:
        records += [segment.file, segment.tombstones] if segment.tombstones else [segment.file]
    return sum(record.n_bytes for record in records)


def joined_statistics(shards: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Describe the shards of an index, as `index_statistics` and `resource_statistics` describe one partition.

    Numbers are added up, the generations too; drift is that of the shard whose codes fit worst. Beside them are
    n_shards and shards: by folder generation, n_documents, n_segments, size_bytes and drift.

    Args:
        shards: their descriptions by folder, in their order.
    """
    each = list(shards.values())
    return {
        **{name: _add([one[name] for one in each]) for name in each[0] if name not in (*_ALIKE, "drift")},
        **{name: each[0][name] for name in _ALIKE},
        "drift": _worst_drift([one["drift"] for one in each]),
        "n_shards": len(shards),
        "shards": {folder: {name: one[name] for name in _SHOWN} for folder, one in shards.items()},
    }


def _add(values: Sequence[object]) -> object:
    """Add up numbers, those of mappings by name; None if one of them is None. Return the first of texts."""
    first = values[0]
    if isinstance(first, Mapping):
        parts = cast("Sequence[Mapping[str, object]]", values)
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: _add([part[name] for part in parts if name in part]) for name in names}
    if None in values:
        return None
    return first if isinstance(first, str) else sum(cast("Sequence[int]", values))


def _worst_drift(drifts: Sequence[object]) -> object:
    known = [cast("Mapping[str, object]", drift) for drift in drifts if drift is not None]
    return max(known, key=lambda drift: cast("float", drift["code_error_ratio"]), default=None)
