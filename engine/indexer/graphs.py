"""Writing the HNSW graphs of an index: derived files, made when asked for, never in the way of a commit."""

from __future__ import annotations

import logging

from quarry.engine.backends.hnsw import wants_graph
from quarry.engine.backends.hnsw_index import build_graph
from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, MergeFailed
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.hnsw_graph import graph_name, read_graph, write_graph

__all__ = ["drop_graphs", "write_graphs"]

_log = logging.getLogger(__name__)


def write_graphs(snapshot: Snapshot, threads: int) -> int:
    """Write the graphs that are missing or damaged, of segments large enough to gain from one; how many.

    The writer's lock must be held.

    Raises:
        MergeFailed: the system failed; of the graph that it failed at nothing is left, those before it are there.
    """
    missing = [segment for segment in snapshot.segments if _lacks_graph(snapshot.directory, segment)]
    for segment in missing:
        graph = build_graph(segment, threads)
        try:
            write_graph(snapshot.directory, segment.record.file, graph)
        except OSError as error:
            raise MergeFailed(
                "a graph could not be written; the index is whole without it",
                path=snapshot.directory.path / graph_name(segment.record.file.file_id),
                actual=str(error),
            ) from error
    return len(missing)


def drop_graphs(before: Snapshot, now: Snapshot) -> None:
    """Delete graphs of segments that were merged away while the graphs were written.

    The writer's lock must be held.
    """
    gone = {each.record.file.file_id for each in before.segments} - {
        each.record.file.file_id for each in now.segments
    }
    for segment_id in gone:
        now.directory.delete(graph_name(segment_id))


def _lacks_graph(directory: Directory, segment: OpenSegment) -> bool:
    if not wants_graph(segment):
        return False
    try:
        read_graph(directory, segment.record.file, segment.reader.n_rows)
    except FileNotFoundError:
        return True
    except FormatError as error:
        _log.warning("writing %s again: %s", graph_name(segment.record.file.file_id), error)
        return True
    return False
