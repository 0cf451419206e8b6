"""Indexes whose documents have given titles and metadata, for tests of filters and facets."""

from __future__ import annotations

from pathlib import Path

from support.indexes.format_samples import manifest, segment_record
from support.indexes.metadata_oracle import IDS

from quarry.formats.container.directory import Directory
from quarry.formats.metadata.columns import MAX_PATHS
from quarry.formats.snapshot import Snapshot


def ids_of(number, docs):
    """Return ids that are unique over all segments; some are also operands of filters."""
    return [IDS[n] if number == 0 and n < len(IDS) else f"{number}/{n}" for n in range(len(docs))]


def open_index(folder, parts, deleted, max_paths=MAX_PATHS):
    """Write an index of segments of documents with the given titles and metadata, and so many columns."""
    directory = Directory(Path(folder))
    segments = [
        segment_record(
            directory,
            ids_of(number, docs),
            gone,
            title=lambda n, docs=docs: docs[n][0],
            metadata=lambda n, docs=docs: docs[n][1],
            max_paths=max_paths,
        )
        for number, (docs, gone) in enumerate(zip(parts, deleted, strict=True))
    ]
    manifest(segments).commit(directory)
    return Snapshot(directory)
