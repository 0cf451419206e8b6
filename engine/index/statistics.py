"""Statistics of an index: documents, sizes, backends, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from quarry.engine.index.memory import MemoryPlan
from quarry.engine.options import OpenOptions
from quarry.engine.scoring.metric import Metric
from quarry.engine.search.searcher import Searcher
from quarry.formats.segment import SEGMENT_PARTS
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.quantizer import QuantizationError, combine_errors

__all__ = ["index_statistics", "joined_statistics", "resource_statistics"]

_ALIKE = ("dim", "metric", "representation", "encoder", "stored", "code_bytes", "dense_weight")  # in all shards
_SHOWN = ("generation", "n_documents", "n_segments", "size_bytes", "drift")


def index_statistics(snapshot: Snapshot) -> dict[str, object]:
    """Return statistics of a snapshot.

    Returns:
        generation, n_documents, n_deleted, n_passages (deleted ones included, as in the next one), n_centroids,
        n_segments, dim, metric ("ip", "cosine" or "l2"),
        representation (name and settings), encoder (its name, "none" without one), stored (int8, float16 or none),
        code_bytes, dense_weight (chosen for the index, or None), size_bytes (all files except the manifest), drift
        (see `drift_statistics`), and bytes: size by part (centroids, codes, documents, ids,
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
        "n_passages": sum(segment.reader.passages.n_passages for segment in snapshot.segments),
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
        plan: the division of the memory.
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


# Measured on 30,000 vectors of old topics (64 dimensions) and as many added ones, of which a quarter, half or all
# were of new topics: for queries about new topics the default search found .75, .78 and .81 of the ten nearest
# neighbors, and .94 to .96 after retraining. Squared distances to coarse centroids were 1.5, 2.0 and 3.0 times
# those at training, quantization errors of codes 1.12, 1.20 and 1.38 times; without new topics both were 1.03.
MAX_COARSE_ERROR_RATIO = 1.4  # of mean squared distances, to those at training
MAX_CODE_ERROR_RATIO = 1.25  # of mean squared distances, to those at training
MAX_IMBALANCE_RATIO = 2.0  # rows that a search reads, compared with those right after training
MAX_GROWTH = 4.0  # of the index since training; it then has half the lists it should have
FINE = "fine"
RETRAIN = "merge(retrain=True) recommended"
REBUILD = "building the index again recommended"  # if only codes are stored, there is nothing to train on


def drift_statistics(snapshot: Snapshot) -> dict[str, object] | None:
    """Compare the rows in the inverted lists with those that the newest quantizer was trained on.

    Returns:
        coarse_error_ratio, code_error_ratio, imbalance_ratio and growth, each as a multiple of the value at
        training, over all segments encoded with the newest quantizer; and advice: "fine", or what to do and why.
        None if there are no lists, or their quantization errors were not recorded.
    """
    if not snapshot.manifest.quantizers:
        return None
    newest = snapshot.manifest.quantizers[-1].name
    segments = [segment for segment in snapshot.segments if segment.record.quantizer == newest]
    if not segments:  # a quantizer that no segment uses
        return None
    trained, now = segments[0].quantizer.fit if segments[0].quantizer else None, _combine_errors(segments)
    if trained is None or now is None:
        return None
    ratios = {
        "coarse_error_ratio": now.coarse_error / max(trained.coarse_error, 1e-30),
        "code_error_ratio": now.code_error / max(trained.code_error, 1e-30),
        "imbalance_ratio": now.imbalance / max(trained.imbalance, 1e-30),
        "growth": now.n_rows / trained.n_rows,
    }
    can_retrain = all(segment.reader.centroids.kind != "none" for segment in snapshot.segments)
    return {**ratios, "advice": advise(ratios, can_retrain)}


def _combine_errors(segments: list[OpenSegment]) -> QuantizationError | None:
    fits = [segment.reader.fit for segment in segments]
    n_rows = [segment.reader.n_rows for segment in segments]
    longest = max((fit.imbalance for fit in fits if fit), default=0.0)
    return combine_errors(fits, n_rows, longest)


def advise(ratios: dict[str, float], can_retrain: bool) -> str:
    limits = {
        "coarse_error_ratio": MAX_COARSE_ERROR_RATIO,
        "code_error_ratio": MAX_CODE_ERROR_RATIO,
        "imbalance_ratio": MAX_IMBALANCE_RATIO,
        "growth": MAX_GROWTH,
    }
    over = [
        f"{name} {ratios[name]:.2f} is above {limit}" for name, limit in limits.items() if ratios[name] > limit
    ]
    return f"{RETRAIN if can_retrain else REBUILD}: {', '.join(over)}" if over else FINE
