"""Selection of a backend by "auto", and its replacement if it fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.indexes.small_index import DIM, build, searcher_of

from quarry.engine.backends.registry import BACKENDS, Adapter
from quarry.engine.backends.selection import choose_backends
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import BackendUnavailable
from quarry.formats.snapshot import Snapshot


@pytest.fixture
def snapshot(tmp_path):
    """Open an index of two segments of about 400 centroids, with lists."""
    snapshot = Snapshot(build(tmp_path))
    yield snapshot
    snapshot.close()


def names(snapshot, backend="auto", graph_rows=20_000, **limits):
    options = OpenOptions(backend=backend, thresholds=Thresholds(graph_rows=graph_rows))
    return [choice.backend for choice in choose_backends(snapshot.segments, options, **limits)]


def query():
    return np.ones((1, DIM), np.float32)


def test_lists_are_the_rule(snapshot):
    assert names(snapshot) == ["cpu_faiss", "cpu_faiss"]


def test_segments_that_a_backend_does_not_support_are_scanned(snapshot):
    assert names(snapshot, "hnsw") == ["scan", "scan"]
    assert names(snapshot, "hnsw", graph_rows=100) == ["hnsw", "hnsw"]


def test_large_segments_take_the_memory_first(snapshot):
    large, small = sorted(range(2), key=lambda each: -snapshot.segments[each].reader.n_rows)
    needed = [choice.needed_bytes for choice in choose_backends(snapshot.segments, OpenOptions())]
    found = names(snapshot, room_bytes=needed[large])
    assert (found[large], found[small]) == ("cpu_faiss", "scan")
    assert names(snapshot, room_bytes=sum(needed)) == ["cpu_faiss", "cpu_faiss"]
    assert names(snapshot, room_bytes=0) == ["scan", "scan"]


def test_a_device_that_does_not_work_after_all(snapshot, monkeypatch, caplog):
    """If the selected device fails, as with an unsuitable driver, searches continue on the CPU with a warning."""
    monkeypatch.setattr("quarry.engine.backends.selection.has_cuda", lambda: True)
    monkeypatch.setitem(BACKENDS, "gpu", Adapter("broken_gpu:Broken", "gpu"))
    monkeypatch.setitem(sys.modules, "broken_gpu", SimpleNamespace(Broken=Broken))
    searcher = searcher_of(snapshot)
    assert [choice.backend for choice in searcher.choices] == ["gpu", "gpu"]
    with caplog.at_level(logging.WARNING):
        assert len(searcher.search(query(), SearchOptions(k=5))[0].docs) == 5
    assert [choice.backend for choice in searcher.choices] == ["cpu_faiss", "cpu_faiss"]
    assert "backend cpu_faiss instead of gpu: no device" in caplog.text
    with pytest.raises(BackendUnavailable, match="no device"):
        searcher_of(snapshot, backend="gpu").search(query(), SearchOptions(k=5))


def test_a_device_that_fails_at_a_search(snapshot, monkeypatch, caplog):
    torch = pytest.importorskip("torch", reason="backend gpu needs torch")
    from quarry.engine.gpu.device_vectors import DeviceVectors

    def failing(*_, **options):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("quarry.engine.backends.selection.has_cuda", lambda: True)
    monkeypatch.setattr(torch, "searchsorted", failing)
    searcher = searcher_of(snapshot, device="cpu")
    assert [choice.backend for choice in searcher.choices] == ["gpu", "gpu"]
    with caplog.at_level(logging.WARNING):
        found = searcher.search(DeviceVectors(torch.from_numpy(query())), SearchOptions(k=5))
    assert [choice.backend for choice in searcher.choices] == ["cpu_faiss", "cpu_faiss"]
    assert "backend cpu_faiss instead of gpu: device cpu failed" in caplog.text
    expected = searcher_of(snapshot, backend="cpu_faiss").search(query(), SearchOptions(k=5))
    assert (found[0].docs.tolist(), found[0].scores.tolist()) == (
        expected[0].docs.tolist(),
        expected[0].scores.tolist(),
    )


class Broken:
    def __init__(self, segment, options):
        raise BackendUnavailable("no device")

    @staticmethod
    def needed_bytes(segment):
        return 0


def test_the_last_resort_must_work(snapshot, monkeypatch):
    monkeypatch.setattr("quarry.engine.backends.selection.has_cuda", lambda: False)
    for name in ("cpu_faiss", "scan"):
        monkeypatch.setitem(BACKENDS, name, BACKENDS[name]._replace(place="broken:Broken"))
    monkeypatch.setitem(sys.modules, "broken", SimpleNamespace(Broken=Broken))
    with pytest.raises(BackendUnavailable):
        searcher_of(snapshot).search(query(), SearchOptions(k=5))


def test_looking_for_a_device_loads_no_library(repository):
    program = (
        "import sys\nfrom quarry.engine.process.cuda import has_cuda\n"
        "has_cuda()\nprint('torch' in sys.modules or 'faiss' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
