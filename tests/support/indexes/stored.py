"""Opens the files of an index in a folder, to see what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from support.indexes.small_index import Container

from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import OpenSegment, Snapshot


@contextmanager
def stored(path: Path) -> Iterator[Snapshot]:
    """Open the newest generation of an index."""
    with closing(Snapshot(Directory(Path(path)))) as snapshot:
        yield snapshot


@contextmanager
def only_segment(path: Path) -> Iterator[OpenSegment]:
    """Open an index of one segment."""
    with stored(path) as snapshot:
        (segment,) = snapshot.segments
        yield segment


def section_of(path: Path, name: str) -> slice:
    """Return which bytes of a file are a section."""
    entry = Container(path).contents["sections"][name]
    n_bytes = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
    return slice(entry["offset"], entry["offset"] + n_bytes)


def flip_first_bit(path: Path, section: str) -> None:
    """Damage the first byte of a section of a file."""
    content = bytearray(path.read_bytes())
    content[section_of(path, section).start] ^= 1
    path.write_bytes(content)
