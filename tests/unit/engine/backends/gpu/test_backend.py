"""Memory and failures of a device, on torch's CPU device."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from support.indexes.inside import device_of, view_of
from support.indexes.word_encoder import table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.backends.protocol import Resources, ScoredCandidates, SearchParameters
from quarry.engine.backends.registry import open_backend
from quarry.engine.gpu.device import Device
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import Snapshot

torch = pytest.importorskip("torch", reason="backend gpu needs torch")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Build an index with inverted lists and centroids; return it with its documents' vectors."""
    path = tmp_path_factory.mktemp("gpu") / "index"
    generator = np.random.default_rng(10)
    vectors = generator.standard_normal((800, 3, 32)).astype(np.float32)
    vectors = list(vectors / np.linalg.norm(vectors, axis=2, keepdims=True))
    encoder, docs = table_of(vectors)
    thresholds = Thresholds(calibration_queries=64, list_rows=1000)
    engine.build(docs, path, encoder=encoder, representation=KMeans(8), code_bytes=16, thresholds=thresholds)
    return path, vectors


ROWS_BYTES = 800 * 3 * (32 + 4)


def backend_of(opened):
    return view_of(opened).partitions[0].searcher.backends[0]


def test_where_the_centroids_do_not_fit_the_codes_are_taken(index):
    path, vectors = index
    queries = np.stack([each[0] for each in vectors[:50]])
    for limit, whole in ((None, True), ((1 << 20) + ROWS_BYTES - 1, False)):
        with Engine.open(path, backend="gpu", device="cpu", device_bytes=limit) as opened:
            hits = opened.search_vectors(queries, k=1)
            backend = backend_of(opened)
            found = backend.candidates(queries[:1], SearchParameters(1, 1, None, 1))[0]
        assert [each[0].id for each in hits] == [str(number) for number in range(50)]
        assert (backend.device_bytes >= ROWS_BYTES) == whole
        assert isinstance(found, ScoredCandidates) == whole  # if centroids stay on the host, so does stage 2
        assert backend.device_bytes > 0
        assert limit is None or backend.device_bytes < limit - (1 << 20)


def test_a_budget_that_is_too_small_is_reported(index):
    with (
        Engine.open(index[0], backend="gpu", device="cpu", device_bytes=1 << 20) as opened,
        pytest.raises(InvalidSetting, match=r"does not fit .* device cpu; expected \d+ bytes left; found 0"),
    ):
        opened.search_vectors(index[1][0], k=1)


def test_closing_frees_the_device(index):
    opened = Engine.open(index[0], backend="gpu", device="cpu")
    opened.search_vectors(index[1][0], k=1)
    backend = backend_of(opened)
    gone, device = weakref.ref(backend), device_of(opened)
    assert device.used_bytes == backend.device_bytes
    del backend
    opened.close()
    gc.collect()
    assert gone() is None
    assert device.used_bytes == 0


def test_closing_gives_memory_back_when_nothing_holds_it_any_more(index, monkeypatch):
    opened = Engine.open(index[0], backend="gpu", device="cpu")
    opened.search_vectors(index[1][0], k=1)
    backend = weakref.ref(backend_of(opened))
    held = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: held.append(backend()))
    device_of(opened).__dict__["place"] = torch.device("cuda")
    opened.close()
    assert held == [None]


def test_a_missing_device_is_reported(index):
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(BackendUnavailable, match=r"no device cuda; device='cpu' runs the same code"):
        Engine.open(index[0], backend="gpu")


@pytest.mark.parametrize("name", ["nonsense", "meta"])
def test_devices_that_are_none(index, name):
    with pytest.raises(InvalidSetting, match="unknown device; expected cuda, cuda:N or cpu"):
        Engine.open(index[0], backend="gpu", device=name)


def test_a_device_that_is_fuller_than_thought(index, monkeypatch):
    """A backend that runs out of device memory raises InvalidSetting if it is selected by name."""

    def full(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    resources = Resources(device=Device("cpu"))
    snapshot = Snapshot(Directory(index[0]))
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(InvalidSetting, match=r"has less memory than its budget; expected \d+ bytes"):
        open_backend("gpu", snapshot.segments[0], resources)
    gc.collect()
    assert resources.device.used_bytes == 0
    snapshot.close()


def test_what_triton_raises_is_a_failure_of_the_device(index, monkeypatch):
    """A TritonError at any call is reported as BackendUnavailable, as kernels are compiled when first used."""

    class TritonError(Exception):
        pass

    def failing(*_, **__):
        raise TritonError("out of resource: shared memory")

    monkeypatch.setitem(sys.modules, "triton.errors", SimpleNamespace(TritonError=TritonError))
    monkeypatch.setattr(torch, "searchsorted", failing)
    with (
        Engine.open(index[0], backend="gpu", device="cpu") as opened,
        pytest.raises(BackendUnavailable, match="device cpu failed; found out of resource"),
    ):
        opened.search_vectors(index[1][0], k=1)
