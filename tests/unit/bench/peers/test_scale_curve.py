"""Vectors in blocks, and the steps of curves over their number."""

from __future__ import annotations

import numpy as np
import pytest

from bench.__main__ import main
from bench.data import vector_stream
from bench.data.vector_stream import VectorStream, find_nearest
from bench.harness.records import read_records
from quarry import engine


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(vector_stream, "BLOCK_ROWS", 128)
    monkeypatch.setattr(vector_stream, "_BASE_ROWS", 512)


@pytest.mark.usefixtures("small_blocks")
def test_fewer_rows_are_the_first_of_more():
    stream = VectorStream(dim=24)
    rows = stream.rows(1000)
    np.testing.assert_array_equal(stream.rows(300), rows[:300])
    np.testing.assert_array_equal(np.concatenate([*VectorStream(dim=24).blocks(1000)]), rows)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert not (stream.queries(5)[:, None] == rows).all(axis=2).any()


@pytest.mark.usefixtures("small_blocks")
def test_rows_made_of_an_index_are_of_its_span(tmp_path):
    base = np.zeros((200, 16), np.float32)
    base[:, :3] = np.random.default_rng(0).standard_normal((200, 3))
    docs = [{"id": str(number), "vectors": row} for number, row in enumerate(base)]
    engine.build(docs, tmp_path / "index", dim=16, centroids="float16")
    rows = VectorStream(tmp_path / "index").rows(50)
    assert rows.shape == (50, 16)
    assert not rows[:, 3:].any()


@pytest.mark.usefixtures("small_blocks")
def test_nearest_rows_of_each_size():
    stream = VectorStream(dim=24)
    queries, rows = stream.queries(7), stream.rows(500)
    found = dict(find_nearest(stream, [500, 100, 256, 300], queries, 5))
    assert list(found) == [100, 256, 300, 500]
    for size, nearest in found.items():
        np.testing.assert_array_equal(nearest, np.argsort(-(queries @ rows[:size].T), axis=1)[:, :5])


def test_a_finished_step_is_not_done_again(tmp_path, capsys):
    arguments = [
        *("scale_curve", "--sizes", "400", "--engines", "quarry", "--dim", "32", "--queries", "20"),
        *("--folder", str(tmp_path / "folder"), "--out", str(tmp_path / "out.jsonl")),
    ]
    assert main(arguments) == 0
    records = read_records(tmp_path / "out.jsonl")
    assert [record["n"] for record in records] == [400]
    assert records[0]["recall"] >= 0.99
    assert min(records[0][name] for name in ("open_ms", "first_ms", "p50_ms", "hybrid_p50_ms", "disk_bytes")) > 0
    assert not list((tmp_path / "folder").glob("quarry-*"))
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    assert read_records(tmp_path / "out.jsonl") == records


def test_what_does_not_fit_in_memory_is_left_out(tmp_path):
    arguments = [
        *("scale_curve", "--sizes", str(10**12), "--engines", "hnswlib", "--folder", str(tmp_path / "folder")),
        *("--out", str(tmp_path / "out.jsonl")),
    ]
    assert main(arguments) == 0
    assert "left_out" in read_records(tmp_path / "out.jsonl")[0]
