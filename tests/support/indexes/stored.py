"""Opens the files of an index in a folder, to see what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import OpenSegment, Snapshot


@contextmanager
def stored(path: Path) -> Iterator[Snapshot]:
    """Open the newest generation of an index."""
    with closing(Snapshot(Directory(path))) as snapshot:
        yield snapshot


@contextmanager
def only_segment(path: Path) -> Iterator[OpenSegment]:
    """Open an index of one segment."""
    with stored(path) as snapshot:
        (segment,) = snapshot.segments
        yield segment
