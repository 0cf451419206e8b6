"""The HNSW graph over the centroids of one segment: a derived file that may be missing and can be rebuilt.

Its name follows from the segment; no manifest names it. Sections: ``levels`` (the number of levels of each row, at
least 1) and ``neighbors``: for each row 2 M slots on the lowest level and M on each higher one, the lowest first.
A slot contains a row or NONE; slots after the first NONE of a level are not used.

(Y. Malkov, D. Yashunin, Efficient and robust approximate nearest neighbor search using hierarchical navigable
small world graphs, 2016.)
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array, offsets_from_sizes
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["NONE", "HnswGraph", "graph_name", "read_graph", "write_graph"]

NONE = 0xFFFFFFFF  # in the place of a neighbor
_MAX_M = 256  # neighbors of a node
_MAX_LEVELS = 32
_BATCH = 1 << 20  # neighbors checked at a time


@dataclass(frozen=True, eq=False)
class HnswGraph:
    """A graph whose values are all within bounds.

    Attributes:
        m: M, neighbors of a row on each level but the lowest, which has twice as many.
        entry_point: the row that a search starts from; it is on the highest level.
        levels: (n_rows,) uint8, the number of levels of each row.
        neighbors: uint32, see the module.
    """

    m: int
    entry_point: int
    levels: UInt8Array
    neighbors: UInt32Array

    @property
    def offsets(self) -> Int64Array:
        """(n_rows + 1,) int64: the offset of each row in `neighbors`."""
        return offsets_from_sizes((self.levels.astype(np.int64) + 1) * self.m)


def graph_name(segment_id: bytes) -> str:
    """Return the name of the graph's file."""
    return f"{segment_id.hex()}.hnsw"


def write_graph(directory: Directory, segment: FileRecord, graph: HnswGraph) -> None:
    """Write the graph of a segment and replace the existing one; the writer's lock must be held."""
    file_id = secrets.token_bytes(16)
    temporary = f"spool-{file_id.hex()}.tmp"
    writer = ContainerWriter(directory, temporary, FileKind.HNSW_GRAPH, file_id)
    try:
        writer.add("levels", graph.levels)
        writer.add("neighbors", graph.neighbors)
        writer.finish(
            {
                "segment_id": segment.file_id,
                "segment_digest": segment.digest,
                "M": graph.m,
                "entry_point": graph.entry_point,
            }
        )
        directory.delete(graph_name(segment.file_id))
        directory.rename(temporary, graph_name(segment.file_id))
    except BaseException:
        writer.discard()
        directory.delete(temporary)
        raise


def read_graph(directory: Directory, segment: FileRecord, n_rows: int) -> HnswGraph:
    """Read the graph of a segment and check all of its values.

    Args:
        directory: the folder of the index.
        segment: the file of the segment.
        n_rows: centroids of the segment.

    Raises:
        FileNotFoundError: the segment has no graph.
        FormatError: it is damaged or belongs to another segment.
    """
    container = ContainerReader(directory, graph_name(segment.file_id), FileKind.HNSW_GRAPH)
    try:
        return _read_fields(container, segment, n_rows)
    finally:
        container.close()


def _read_fields(container: ContainerReader, segment: FileRecord, n_rows: int) -> HnswGraph:
    fields, path = container.fields, container.path
    if (fields.binary("segment_id", 16), fields.binary("segment_digest", 16)) != (segment.file_id, segment.digest):
        raise CorruptFile("the graph belongs to another segment", path=path, expected=segment.file_id.hex())
    m = fields.integer("M", 2, _MAX_M)
    entry_point = fields.integer("entry_point", 0, n_rows - 1)
    levels = container.section("levels", np.uint8, (n_rows,)).array().copy()
    if not 1 <= int(levels.min()) <= int(levels.max()) <= _MAX_LEVELS:
        raise CorruptFile(f"a row has fewer than 1 or more than {_MAX_LEVELS} levels", path=path)
    n_neighbors = int(levels.sum(dtype=np.int64) + n_rows) * m
    section = container.section("neighbors", np.uint32, (n_neighbors,))
    container.refuse_unknown()
    graph = HnswGraph(m, entry_point, levels, section.array().astype(np.uint32))
    _check_neighbors(graph, path)
    return graph


def _check_neighbors(graph: HnswGraph, path: Path) -> None:
    """Check that every neighbor is a row of the same level, and that the entry point is on the highest level."""
    levels, neighbors = graph.levels, graph.neighbors
    n_rows, top = len(levels), int(levels.max())
    if levels[graph.entry_point] != top:
        raise CorruptFile(
            "the entry point is not on the highest level",
            path=path,
            expected=top,
            actual=int(levels[graph.entry_point]),
        )
    for low in range(0, len(neighbors), _BATCH):
        part = neighbors[low : low + _BATCH]
        if ((part >= n_rows) & (part != NONE)).any():
            raise CorruptFile("a neighbor is out of bounds", path=path, expected=f"below {n_rows}")
    offsets = graph.offsets
    for level in range(1, top):
        rows = np.flatnonzero(levels > level)
        begins = offsets[rows] + (level + 1) * graph.m
        linked = neighbors[begins[:, None] + np.arange(graph.m)]
        if (levels[linked[linked != NONE]] <= level).any():
            raise CorruptFile(f"a neighbor is not on level {level}", path=path)
