"""The graph of a segment: written on request, used, kept as long as its segment, and checked when it is read."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest
from support.indexes.word_encoder import table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.backends.hnsw_index import build_graph
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, ReadOnlyIndex
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.hnsw_graph import NONE, HnswGraph, read_graph, write_graph

N_DOCS, DIM = 400, 32
open_index = partial(Engine.open, thresholds=Thresholds(graph_rows=1000, graph_step_rows=1))


def vectors(seed, n_docs=N_DOCS):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((4, DIM)).astype(np.float32) for _ in range(n_docs)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "index"
    encoder, docs = table_of(vectors(1) + vectors(2))
    engine.build(docs[:N_DOCS], path, encoder=encoder, representation=KMeans(4096), code_bytes=0)
    return path, encoder, docs


@pytest.fixture
def index(built, tmp_path):
    import shutil

    source, encoder, docs = built
    shutil.copytree(source, tmp_path / "index")
    return tmp_path / "index", encoder, docs


def graphs(path):
    return sorted(path.glob("*.hnsw"))


def queries(n=20):
    return np.random.default_rng(3).standard_normal((n, DIM)).astype(np.float32)


def ids(path, backend):
    with open_index(path, backend=backend) as index:
        return [[hit.id for hit in hits] for hits in index.search_vectors(queries(), k=10)]


def recall(path):
    pairs = zip(ids(path, "hnsw"), ids(path, "exact"), strict=True)
    return np.mean([len(set(found) & set(best)) / 10 for found, best in pairs])


def test_a_graph_is_written_on_request(index, caplog):
    path, encoder, docs = index
    with open_index(path, writable=True, encoder=encoder, backend="hnsw") as writer:
        assert graphs(path) == []
        assert writer.optimize() == 1
        assert writer.optimize() == 0
        writer.add(docs[N_DOCS:])
        writer.commit()
        assert len(graphs(path)) == 1
        assert writer.optimize() == 1
        assert len(graphs(path)) == 2
        assert writer.verify().n_documents == 2 * N_DOCS
    with caplog.at_level(logging.INFO):
        assert recall(path) >= 0.95
    assert "building the graph" not in caplog.text


def test_auto_searches_a_graph_as_soon_as_it_is_written(index):
    path, encoder, _ = index
    with open_index(path, writable=True, encoder=encoder) as writer:
        assert list(writer.stats()["backend"]["chosen"]) == ["scan"]
        before = [[hit.id for hit in hits] for hits in writer.search_vectors(queries(), k=10)]
        writer.optimize()
        assert list(writer.stats()["backend"]["chosen"]) == ["hnsw"]
        after = [[hit.id for hit in hits] for hits in writer.search_vectors(queries(), k=10)]
    assert np.mean([len(set(one) & set(other)) / 10 for one, other in zip(before, after, strict=True)]) >= 0.95


def test_a_reader_builds_what_is_not_there(index, caplog):
    path, _, _ = index
    with caplog.at_level(logging.INFO):
        assert recall(path) >= 0.95
    assert "building the graph" in caplog.text
    assert graphs(path) == []


def test_small_segments_have_no_graph(index):
    path, encoder, _ = index
    with Engine.open(
        path, writable=True, encoder=encoder, thresholds=Thresholds(graph_rows=4 * N_DOCS + 1)
    ) as writer:
        assert writer.optimize() == 0


def test_a_reader_cannot_write_one(index):
    with open_index(index[0]) as reader, pytest.raises(ReadOnlyIndex):
        reader.optimize()


def test_a_graph_lives_as_long_as_its_segment(index):
    path, encoder, docs = index
    with open_index(path, writable=True, encoder=encoder) as writer:
        writer.optimize()
    orphan = path / f"{'0' * 32}.hnsw"
    orphan.write_bytes(b"of a segment that is gone")
    with open_index(path, writable=True, encoder=encoder) as writer:
        assert not orphan.exists()
        writer.delete([docs[0]["id"]])
        writer.commit()
        assert len(graphs(path)) == 1
        assert docs[0]["id"] not in {doc_id for found in ids(path, "hnsw") for doc_id in found}
        writer.delete([doc["id"] for doc in docs])
        writer.commit()
        assert graphs(path) == []


def test_a_graph_may_vanish_under_a_reader(index):
    path, encoder, _ = index
    with open_index(path, writable=True, encoder=encoder) as writer:
        writer.optimize()
    with open_index(path, backend="hnsw") as reader:
        graphs(path)[0].unlink()
        assert len(reader.search_vectors(queries(), k=10)) == 20


def test_a_damaged_graph_is_an_error_until_it_is_written_again(index):
    path, encoder, _ = index
    with open_index(path, writable=True, encoder=encoder) as writer:
        writer.optimize()
        blob = bytearray(graphs(path)[0].read_bytes())
        blob[200] ^= 1
        graphs(path)[0].write_bytes(blob)
        for use in (writer.verify, lambda: ids(path, "hnsw")):
            with pytest.raises(FormatError) as caught:
                use()
            assert graphs(path)[0].name in str(caught.value)
        assert writer.optimize() == 1
        assert writer.verify().n_documents == N_DOCS
    assert recall(path) >= 0.95


def random_graph(n_rows, seed):
    """Return a valid graph with random links."""
    generator = np.random.default_rng(seed)
    levels = (1 + generator.geometric(0.6, n_rows).clip(1, 4) - 1).astype(np.uint8)
    m = int(generator.integers(2, 9))
    neighbors = []
    for row in range(n_rows):
        for level in range(int(levels[row])):
            others, width = np.flatnonzero(levels > level), m * (2 if level == 0 else 1)
            chosen = generator.choice(others, generator.integers(0, width + 1))
            neighbors += [*chosen.tolist(), *[NONE] * (width - len(chosen))]
    return HnswGraph(m, int(levels.argmax()), levels, np.array(neighbors, np.uint32))


@pytest.mark.parametrize("seed", range(4))
def test_any_graph_within_bounds_can_be_searched(index, seed):
    """With any valid graph, k hits with exact scores are found, by an exact search if necessary."""
    path, _, _ = index
    directory = Directory(path)
    snapshot = Snapshot(directory)
    segment = snapshot.segments[0]
    graph = random_graph(segment.reader.n_rows, seed)
    write_graph(directory, segment.record.file, graph)
    np.testing.assert_array_equal(
        read_graph(directory, segment.record.file, segment.reader.n_rows).neighbors, graph.neighbors
    )
    snapshot.close()
    with open_index(path, backend="hnsw") as poor, open_index(path, backend="exact") as exact:
        for k in (1, 10, N_DOCS):
            for hits, every in zip(
                poor.search_vectors(queries(5), k=k), exact.search_vectors(queries(5), k=N_DOCS), strict=True
            ):
                scores = {hit.id: hit.score for hit in every}
                assert [hit.score for hit in hits] == [scores[hit.id] for hit in hits]
                assert len({hit.id for hit in hits}) == k


def test_vectors_of_very_different_lengths(tmp_path):
    """Inner products work with norms over three orders of magnitude."""
    generator = np.random.default_rng(5)
    lengths = 10 ** generator.uniform(-1, 2, N_DOCS)
    docs = [each * np.float32(length) for each, length in zip(vectors(4), lengths, strict=True)]
    encoder, texts = table_of(docs)
    engine.build(texts, tmp_path / "index", encoder=encoder, representation=KMeans(4096), code_bytes=0)
    assert recall(tmp_path / "index") >= 0.95


def test_one_thread_builds_the_same_graph_each_time(index):
    snapshot = Snapshot(Directory(index[0]))
    first, second = (build_graph(snapshot.segments[0], 1) for _ in range(2))
    np.testing.assert_array_equal(first.neighbors, second.neighbors)
    np.testing.assert_array_equal(first.levels, second.levels)
    assert first.entry_point == second.entry_point
    snapshot.close()


def test_writing_needs_a_kind_of_its_own(index):
    path, _, _ = index
    with open_index(path, writable=True) as opened:
        opened.optimize()
    assert graphs(path)[0].read_bytes()[9] == 5
