"""Writes the HNSW graphs of an index: derived files, written on request, that no commit waits for."""

from __future__ import annotations

import logging

from quarry.engine.backends.hnsw_index import build_graph
from quarry.engine.progress import Report, no_report
from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, MergeFailed
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.hnsw_graph import graph_name, read_graph, write_graph

__all__ = ["drop_graphs", "write_graphs"]

_log = logging.getLogger(__name__)


def write_graphs(snapshot: Snapshot, graph_rows: int, threads: int, report: Report = no_report) -> int:
    """Write the graphs that are missing or damaged, and return how many were written.

    The writer's lock must be held.

    Args:
        snapshot: the snapshot of the index.
        graph_rows: centroids of a segment from which on it has a graph.
        threads: for building graphs.
        report: called after each graph with how many documents of how many are in the graphs.

    Raises:
        MergeFailed: an I/O error occurred; the graphs written before it are complete, and nothing is left of the
            one that failed.
    """
    large = [segment for segment in snapshot.segments if segment.reader.n_rows >= graph_rows]
    missing = [segment for segment in large if _lacks_graph(snapshot.directory, segment)]
    n_done, n_total = 0, sum(segment.record.n_docs for segment in missing)
    report(n_done, n_total)
    for segment in missing:
        _log.debug("%s: building a graph of %d centroids", segment.reader.path, segment.reader.n_rows)
        graph = build_graph(segment, threads)
        try:
            write_graph(snapshot.directory, segment.record.file, graph)
        except OSError as error:
            raise MergeFailed(
                "a graph could not be written; the index is whole without it",
                path=snapshot.directory.path / graph_name(segment.record.file.file_id),
                actual=str(error),
            ) from error
        n_done += segment.record.n_docs
        report(n_done, n_total)
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
    try:
        read_graph(directory, segment.record.file, segment.reader.n_rows)
    except FileNotFoundError:
        return True
    except FormatError as error:
        _log.warning("writing %s again: %s", graph_name(segment.record.file.file_id), error)
        return True
    return False
