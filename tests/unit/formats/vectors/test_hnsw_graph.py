from __future__ import annotations

import os

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors, write_file

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile, FormatError, TruncatedFile
from quarry.formats.vectors.hnsw_graph import NONE, HnswGraph, graph_name, read_graph, write_graph

N, M = 60, 4
SEGMENT = FileRecord("segment.seg", 1000, bytes(range(16)), bytes(range(16, 32)))
NAME = f"{bytes(range(16)).hex()}.hnsw"


def a_graph(levels=None):
    """Return a graph on one to three levels, whose links lead to rows on the same level."""
    generator = np.random.default_rng(0)
    levels = np.array([1] * 40 + [2] * 15 + [3] * 5, np.uint8) if levels is None else levels
    neighbors = []
    for row in range(len(levels)):
        for level in range(int(levels[row])):
            others, width = np.flatnonzero(levels > level), M * (2 if level == 0 else 1)
            chosen = generator.choice(others, min(width - 1, len(others)), replace=False)
            neighbors += [*chosen.tolist(), *[NONE] * (width - len(chosen))]
    return HnswGraph(M, int(levels.argmax()), levels, np.array(neighbors, np.uint32))


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


def place_of(graph, row, level, place=0):
    """Return the index in `neighbors` of a link of a row on a level."""
    return graph.offsets[row] + (level and (level + 1) * M) + place


def test_what_was_written_is_read(directory):
    graph, before = a_graph(), n_descriptors()
    write_graph(directory, SEGMENT, graph)
    assert directory.names() == [NAME] == [graph_name(SEGMENT.file_id)]
    found = read_graph(directory, SEGMENT, N)
    assert (found.m, found.entry_point) == (M, 55)
    np.testing.assert_array_equal(found.levels, graph.levels)
    np.testing.assert_array_equal(found.neighbors, graph.neighbors)
    assert found.offsets[-1] == len(graph.neighbors)
    assert n_descriptors() == before


def test_the_smallest_graph(directory):
    write_graph(directory, SEGMENT, HnswGraph(2, 0, np.ones(1, np.uint8), np.full(4, NONE, np.uint32)))
    assert read_graph(directory, SEGMENT, 1).entry_point == 0


def test_a_graph_is_replaced(directory):
    write_graph(directory, SEGMENT, a_graph())
    with pytest.raises(CorruptFile, match="entry_point"):
        read_graph(directory, SEGMENT, 30)
    write_graph(directory, SEGMENT, a_graph(np.ones(30, np.uint8)))
    assert len(read_graph(directory, SEGMENT, 30).levels) == 30
    assert directory.names() == [NAME]


def test_no_graph(directory):
    with pytest.raises(FileNotFoundError):
        read_graph(directory, SEGMENT, N)


def test_a_graph_that_cannot_be_written_leaves_nothing(directory, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_graph(directory, SEGMENT, a_graph())
    assert directory.names() == []


@pytest.mark.parametrize("other", [{"file_id": bytes(16)}, {"digest": bytes(16)}])
def test_the_graph_of_another_segment(directory, other):
    record = FileRecord(**{**vars(SEGMENT), **other})
    write_graph(directory, record, a_graph())
    (directory.path / graph_name(record.file_id)).replace(directory.path / NAME)
    with pytest.raises(CorruptFile, match="another segment"):
        read_graph(directory, SEGMENT, N)


def forged(directory, **changes):
    """Write a graph's file with correct checksums and changed contents."""
    graph = a_graph()
    fields = {"segment_id": SEGMENT.file_id, "segment_digest": SEGMENT.digest, "M": M, "entry_point": 55}
    sections = {"levels": graph.levels, "neighbors": graph.neighbors}
    fields |= {name: value for name, value in changes.items() if name in fields}
    sections |= {name: value for name, value in changes.items() if name not in fields}
    write_file(directory, sections, fields, FileKind.HNSW_GRAPH, NAME)


def changed(name, place, value):
    array = getattr(a_graph(), name).copy()
    array[place] = value
    return {name: array}


GRAPH = a_graph()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entry_point": 54}, "entry point is not on the highest level"),
        ({"entry_point": N}, "entry_point"),
        ({"entry_point": -1}, "entry_point"),
        ({"M": 1}, "M"),
        ({"M": 257}, "M"),
        ({"M": 8}, "neighbors has the wrong shape"),
        (changed("levels", 0, 0), "levels"),
        (changed("levels", 0, 33), "levels"),
        (changed("levels", 0, 2), "neighbors has the wrong shape"),
        (changed("levels", [0, 40], [2, 1]), "not on level"),
        (changed("neighbors", place_of(GRAPH, 7, 0), N), "out of bounds"),
        (changed("neighbors", -1, NONE - 1), "out of bounds"),
        (changed("neighbors", place_of(GRAPH, 41, 1), 39), "level 1"),
        (changed("neighbors", place_of(GRAPH, 59, 2, M - 1), 54), "level 2"),
        ({"levels": GRAPH.levels[:-1]}, "levels has the wrong shape"),
        ({"levels": GRAPH.levels.astype(np.uint16)}, "levels has the wrong shape or type"),
        ({"neighbors": GRAPH.neighbors.astype(np.uint64)}, "neighbors has the wrong shape or type"),
        ({"more": GRAPH.levels}, "unknown sections"),
    ],
)
def test_numbers_that_would_lead_out_of_bounds(directory, changes, message):
    forged(directory, **changes)
    with pytest.raises(FormatError, match=message) as caught:
        read_graph(directory, SEGMENT, N)
    assert caught.value.path == directory.path / NAME


def test_a_torn_file(directory):
    write_graph(directory, SEGMENT, a_graph())
    path = directory.path / NAME
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TruncatedFile):
        read_graph(directory, SEGMENT, N)


def test_any_flipped_bit_is_found(directory):
    """Every flipped bit is found when the file is read, except in the padding between sections."""
    write_graph(directory, SEGMENT, a_graph())
    path = directory.path / NAME
    blob, truth, n_silent = path.read_bytes(), a_graph(), 0
    for bit in np.random.default_rng(1).choice(len(blob) * 8, 1500, replace=False).tolist():
        changed = bytearray(blob)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = read_graph(directory, SEGMENT, N)
        except FormatError:
            continue
        np.testing.assert_array_equal(found.neighbors, truth.neighbors)
        n_silent += 1
    assert n_silent < 100


def test_a_reader_that_follows_the_specification(directory):
    """The neighbors of a row on a level are where section 13 of formats/SPEC.md says."""
    graph = a_graph()
    write_graph(directory, SEGMENT, graph)
    container = ContainerReader(directory, NAME, FileKind.HNSW_GRAPH)
    levels = container.section("levels", np.uint8, (N,)).array()
    neighbors = container.section("neighbors", np.uint32, (None,)).array()
    container.close()
    row, level = 57, 2
    begin = sum(M * (int(n) + 1) for n in levels[:row]) + (2 * M + (level - 1) * M)
    places = neighbors[begin : begin + M]
    np.testing.assert_array_equal(places, graph.neighbors[place_of(graph, row, level) :][:M])
    assert set(places[places != NONE].tolist()) <= set(np.flatnonzero(levels > level).tolist())
