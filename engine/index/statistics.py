"""Numbers about an index, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from quarry.engine.backends.selection import Choice
from quarry.engine.options import OpenOptions
from quarry.engine.quantization.drift import drift_statistics
from quarry.formats.snapshot import Snapshot

__all__ = ["index_statistics", "resource_statistics"]

_PARTS = {
    "centroids": "centroids",
    "centroid_scales": "centroids",
    "centroid_offsets": "centroids",
    "codes": "codes",
    "list_offsets": "codes",
    "list_rows": "codes",
    "documents": "documents",
    "document_offsets": "documents",
    "document_dictionaries": "documents",
    "dictionary_offsets": "documents",
    "dictionary_ordinals": "documents",
    "terms": "postings",
    "term_offsets": "postings",
    "term_keys": "postings",
    "posting_offsets": "postings",
    "postings": "postings",
    "doc_lengths": "postings",
    "metadata": "metadata",
    "metadata_directory": "metadata",
    "ids": "ids",
    "id_offsets": "ids",
    "id_hashes": "ids",
    "id_ordinals": "ids",
}
"""Section -> the part of the index it counts as."""


def index_statistics(snapshot: Snapshot) -> dict[str, object]:
    """Describe a snapshot.

    Returns:
        generation, n_documents, n_deleted, n_centroids, n_segments, dim, representation (name and settings),
        encoder (its name), stored (int8, float16 or none), code_bytes, size_bytes (all files but the manifest),
        drift (see `quarry.engine.quantization.drift`), and bytes: a mapping of part (centroids, codes,
        documents, ids, metadata, postings, quantizers, other) to its bytes.
    """
    manifest = snapshot.manifest
    settings = manifest.settings
    size = _size_bytes(snapshot)
    parts: Counter[str] = Counter(centroids=0, codes=0, documents=0, ids=0, metadata=0, postings=0)
    for segment in snapshot.segments:
        for section, n_bytes in segment.reader.section_bytes().items():
            parts[_PARTS[section]] += n_bytes
    parts["quantizers"] = sum(record.n_bytes for record in manifest.quantizers)
    parts["other"] = size - sum(parts.values())
    return {
        "generation": manifest.generation,
        "n_documents": len(snapshot),
        "n_deleted": sum(segment.n_deleted for segment in manifest.segments),
        "n_centroids": sum(segment.reader.n_rows for segment in snapshot.segments),
        "n_segments": len(manifest.segments),
        "dim": settings.dim,
        "representation": {"name": settings.representation, **settings.representation_settings},
        "encoder": manifest.encoder.name,
        "stored": settings.centroids,
        "code_bytes": settings.code_bytes,
        "size_bytes": size,
        "drift": drift_statistics(snapshot),
        "bytes": dict(parts),
    }


def resource_statistics(
    snapshot: Snapshot,
    options: OpenOptions,
    choices: Sequence[Choice],
    held: Mapping[str, int],
    device_bytes: int,
) -> dict[str, object]:
    """Describe what searches a snapshot.

    Args:
        snapshot: what is searched.
        options: that the index was opened with.
        choices: for each segment.
        held: bytes of main memory by part.
        device_bytes: of accelerators.

    Returns:
        backend: what was asked for, and chosen: by name n_segments, n_centroids and the reason.
        memory: limit_bytes (or None), mapped_bytes (files, which the system takes back when it needs the memory),
        resident_bytes by part (backends that have been opened by a search, decoded postings, answers to filters,
        a few bytes for each document, quantizers), device_bytes.
    """
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for choice, segment in zip(choices, snapshot.segments, strict=True):
        counts.setdefault(choice.backend, Counter()).update(n_segments=1, n_centroids=segment.reader.n_rows)
        reasons.setdefault(choice.backend, {})[choice.reason] = None
    chosen = {name: {**count, "reason": " / ".join(reasons[name])} for name, count in counts.items()}
    return {
        "backend": {"asked_for": options.backend, "chosen": chosen},
        "memory": {
            "limit_bytes": options.memory_bytes,
            "mapped_bytes": sum(segment.reader.n_bytes for segment in snapshot.segments),
            "resident_bytes": dict(held),
            "device_bytes": device_bytes,
        },
    }


def _size_bytes(snapshot: Snapshot) -> int:
    """Bytes of all files by what the manifest says: a later commit may have deleted them."""
    records = list(snapshot.manifest.quantizers)
    for segment in snapshot.manifest.segments:
        records += [segment.file, segment.tombstones] if segment.tombstones else [segment.file]
    return sum(record.n_bytes for record in records)
