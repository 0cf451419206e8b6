"""The parts of the GPU backend on torch's CPU device against numpy in float64."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from support.indexes.one_segment import DIM, random_documents, random_quantizer, segment_of
from support.indexes.word_encoder import table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.backends.registry import open_backend
from quarry.engine.gpu.device import Device
from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.scoring.int8_query import Int8Query
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.search.rescorer import Rescorer
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import Snapshot

torch = pytest.importorskip("torch", reason="backend gpu needs torch")
EVERYTHING = 1 << 20


def document_scores(segment, query, beta=None):
    """(n_docs,) float64."""
    offsets = segment.reader.centroids.offsets
    scores = StoredVectors(segment).vectors(np.arange(offsets[-1])).astype(np.float64) @ query
    parts = np.split(scores, offsets[1:-1])
    if beta is None:
        return np.array([part.max() for part in parts])
    weights = [np.exp(beta * (part - part.max())) for part in parts]
    return np.array([(w * part).sum() / w.sum() for w, part in zip(weights, parts, strict=True)])


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


def on_cpu(**settings):
    return Resources(device=Device("cpu", **settings))


def documents_of_many_lengths(generator):
    lengths = [1, 500, 2, 17, 33, 64, 65, 128, 129, *generator.integers(1, 7, 300).tolist()]
    return [generator.standard_normal((n, DIM)).astype(np.float32) for n in lengths]


class TestScan:
    """All centroids on the device."""

    @pytest.fixture(params=["int8", "float16"])
    def segment(self, request, directory):
        return segment_of(directory, documents_of_many_lengths(np.random.default_rng(1)), request.param)

    @pytest.mark.parametrize("n_queries", [1, 7, 256, 1000])
    @pytest.mark.parametrize("beta", [None, 0.5, 8.0])
    def test_the_best_are_found_with_their_final_scores(self, segment, beta, n_queries):
        backend = open_backend("gpu", segment, on_cpu())
        queries = np.random.default_rng(2).standard_normal((n_queries, DIM)).astype(np.float32)
        found = backend.candidates(queries, SearchParameters(10, 20, None, 1, beta=beta))
        assert len(found) == n_queries
        for query, each in list(zip(queries, found, strict=True))[:: max(1, n_queries // 20)]:
            expected = document_scores(segment, query, beta)
            assert set(each.docs) == set(np.argsort(-expected)[:20])
            np.testing.assert_allclose(each.scores, expected[each.docs], atol=1e-5, rtol=1e-6)
            best_left_out = np.delete(expected, each.docs).max()
            largest = np.linalg.norm(query) * segment.reader.centroids.largest_norm
            assert best_left_out <= each.upper_bound < best_left_out + 1e-4 * largest

    @pytest.mark.parametrize("beta", [None, 2.0])
    def test_documents_that_may_not_be_found_are_not(self, segment, beta):
        backend = open_backend("gpu", segment, on_cpu())
        generator = np.random.default_rng(3)
        queries = generator.standard_normal((5, DIM)).astype(np.float32)
        for share in (0.5, 0.05):
            allowed = generator.random(segment.reader.n_docs) < share
            allowed.flags.writeable = False  # as a filter may give it
            found = backend.candidates(queries, SearchParameters(5, 12, None, 1, allowed, beta))
            for query, each in zip(queries, found, strict=True):
                expected = np.where(allowed, document_scores(segment, query, beta), -np.inf)
                assert set(each.docs) == set(np.argsort(-expected)[: min(12, allowed.sum())])
        none = backend.candidates(queries, SearchParameters(5, 12, None, 1, np.zeros_like(allowed), beta))
        assert [len(each.docs) for each in none] == [len(each.scores) for each in none] == [0] * 5

    def test_int8_scores_are_those_of_the_cpu_to_the_last_bit(self, directory):
        segment = segment_of(directory, documents_of_many_lengths(np.random.default_rng(4)))
        backend = open_backend("gpu", segment, on_cpu())
        queries = np.random.default_rng(5).standard_normal((30, DIM)).astype(np.float32)
        stored, offsets = StoredVectors(segment), segment.reader.centroids.offsets
        for query, each in zip(
            queries, backend.candidates(queries, SearchParameters(1, EVERYTHING, None, 1)), strict=True
        ):
            expected = aggregate(stored.scores(query, np.arange(offsets[-1])), offsets, None)
            assert each.scores.tolist() == expected[each.docs].tolist()

    def test_little_work_memory_makes_smaller_blocks_of_the_same_answer(self, segment, monkeypatch):
        queries = np.random.default_rng(6).standard_normal((3, DIM)).astype(np.float32)
        wanted = SearchParameters(10, 20, None, 1, beta=1.0)
        expected = open_backend("gpu", segment, on_cpu()).candidates(queries, wanted)
        monkeypatch.setattr("quarry.engine.gpu.device._LEAST_WORK_BYTES", 2000)
        backend = open_backend("gpu", segment, on_cpu(limit_bytes=16000 + segment.reader.n_rows * 100))
        for each, same in zip(backend.candidates(queries, wanted), expected, strict=True):
            assert dict(zip(each.docs, each.scores, strict=True)) == dict(zip(same.docs, same.scores, strict=True))


@pytest.mark.parametrize("dim", [1, 24, 384])
def test_sums_of_digits_are_the_same_query(dim):
    """Queries for int8 rows are rounded on the device as the CPU rounds them."""
    from quarry.engine.backends.gpu.queries import ExactQueries

    generator = np.random.default_rng(dim)
    queries = generator.standard_normal((40, dim)).astype(np.float32)
    queries[3] = 0
    queries[4] *= np.float32(1e-38)
    rows = generator.integers(-127, 128, (50, dim)).astype(np.int8)
    rows_scales = generator.random(50).astype(np.float32)
    exact = ExactQueries.of(torch.from_numpy(queries), for_int8=True)
    for query, values, scale in zip(queries, exact.values.numpy(), exact.scales.numpy(), strict=True):
        found = ((rows.astype(np.float64) @ values) * (rows_scales.astype(np.float64) * scale)).astype(np.float32)
        assert found.tolist() == Int8Query(query).scores(rows, rows_scales).tolist()


@pytest.mark.parametrize("apart", [False, True], ids=["one codebook", "two codebooks"])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "rotated"])
@pytest.mark.parametrize("by_residual", [False, True], ids=["whole", "residual"])
@pytest.mark.parametrize(("n_sub", "nbits"), [(8, 4), (8, 8), (1, 8)])
class TestLists:
    """Only the codes on the device."""

    @pytest.fixture
    def segment(self, directory, n_sub, nbits, by_residual, turned, apart):
        generator = np.random.default_rng(n_sub * nbits)
        quantizer = random_quantizer(generator, n_sub, nbits, by_residual, turned, apart)
        return segment_of(directory, random_documents(generator), quantizer=quantizer, keep_centroids=False)

    def test_all_lists_are_the_exact_score_of_the_codes(self, segment):
        backend = open_backend("gpu", segment, on_cpu())
        queries = np.random.default_rng(7).standard_normal((20, DIM)).astype(np.float32)
        found = backend.candidates(queries, SearchParameters(10, 10, EVERYTHING, 1))
        for query, each in zip(queries, found, strict=True):
            expected = document_scores(segment, query)
            np.testing.assert_allclose(expected[each.docs], np.sort(expected)[::-1][:10], atol=1e-4)

    @pytest.mark.parametrize("beta", [None, 2.0])
    def test_final_scores_are_those_of_the_cpu_whatever_the_batch(self, segment, beta):
        backend, rescorer = open_backend("gpu", segment, on_cpu()), Rescorer(segment, beta)
        queries = np.random.default_rng(12).standard_normal((20, DIM)).astype(np.float32)
        for n, nprobe in ((10, 2), (30, EVERYTHING), (EVERYTHING, None)):
            wanted = SearchParameters(1, n, nprobe, 1, beta=beta)
            found = backend.candidates(queries, wanted)
            for number, each in enumerate(found):
                expected = rescorer.scores(queries[number], each.docs)
                np.testing.assert_allclose(each.scores, expected, atol=1e-5, rtol=1e-5)
                alone = backend.candidates(queries[number : number + 1], wanted)[0]
                assert alone.docs.tolist() == each.docs.tolist()
                assert alone.scores.tolist() == each.scores.tolist()

    def test_little_work_memory_makes_smaller_batches_of_the_same_answer(self, segment, monkeypatch):
        queries = np.random.default_rng(13).standard_normal((6, DIM)).astype(np.float32)
        wanted = SearchParameters(5, 20, 3, 1, beta=1.0)
        expected = open_backend("gpu", segment, on_cpu()).candidates(queries, wanted)
        monkeypatch.setattr("quarry.engine.gpu.device._LEAST_WORK_BYTES", 2000)
        monkeypatch.setattr("quarry.engine.gpu.device._HOST_WORK_BYTES", 2000)
        backend = open_backend("gpu", segment, on_cpu())
        for each, same in zip(backend.candidates(queries, wanted), expected, strict=True):
            assert dict(zip(each.docs, each.scores, strict=True)) == dict(zip(same.docs, same.scores, strict=True))

    def test_one_list_is_widened_until_there_are_enough(self, segment):
        backend = open_backend("gpu", segment, on_cpu())
        queries = np.random.default_rng(8).standard_normal((20, DIM)).astype(np.float32)
        allowed = np.random.default_rng(9).random(60) < 0.5
        for k in (1, 20, int(allowed.sum())):
            for each in backend.candidates(queries, SearchParameters(k, max(k, 22), 1, 1, allowed)):
                assert len(each.docs) >= k
                assert allowed[each.docs].all()
                assert len(set(each.docs)) == len(each.docs)


@pytest.mark.parametrize("n_docs", [1, 63, 64, 1000, 6400, 6401])
def test_the_best_of_groups_are_the_best_of_all(n_docs):
    from quarry.engine.backends.gpu.scan import best_documents

    generator = np.random.default_rng(n_docs)
    scores = generator.integers(0, 300, (n_docs, 9)).astype(np.float32)  # many ties
    scores[generator.random(scores.shape) < 0.2] = -np.inf
    for n in (1, 5, 40):
        found, places = best_documents(torch.from_numpy(scores), n)
        assert found.tolist() == np.sort(scores, axis=0)[::-1][:n].T.tolist()
        assert found.tolist() == np.take_along_axis(scores.T, places.numpy(), 1).tolist()
        assert all(len(set(row)) == min(n, n_docs) for row in places.tolist())
        turned = torch.from_numpy(np.ascontiguousarray(scores.T)).T
        assert best_documents(turned, n)[0].tolist() == found.tolist()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index with inverted lists and centroids, and its documents' vectors."""
    path = tmp_path_factory.mktemp("gpu") / "index"
    generator = np.random.default_rng(10)
    vectors = generator.standard_normal((800, 3, 32)).astype(np.float32)
    vectors = list(vectors / np.linalg.norm(vectors, axis=2, keepdims=True))
    encoder, docs = table_of(vectors)
    thresholds = Thresholds(list_rows=1000)
    engine.build(docs, path, encoder=encoder, representation=KMeans(8), code_bytes=16, thresholds=thresholds)
    return path, vectors


ROWS_BYTES = 800 * 3 * (32 + 4)


def test_where_the_centroids_do_not_fit_the_codes_are_taken(index):
    path, vectors = index
    queries = np.stack([each[0] for each in vectors[:50]])
    for limit, whole in ((None, True), ((1 << 20) + ROWS_BYTES - 1, False)):
        with Engine.open(path, backend="gpu", device="cpu", device_bytes=limit) as opened:
            hits = opened.search_vectors(queries, k=1)
            backend = opened._view.get().searcher.backends[0]
        assert [each[0].id for each in hits] == [str(number) for number in range(50)]
        assert (backend._lists is None) == whole
        assert (backend._final is not None) == whole  # of centroids that stay on the host, stage 2 does too
        assert backend.device_bytes > 0
        assert limit is None or backend.device_bytes < limit - (1 << 20)


def test_a_budget_that_nothing_fits_is_said(index):
    with (
        Engine.open(index[0], backend="gpu", device="cpu", device_bytes=1 << 20) as opened,
        pytest.raises(InvalidSetting, match=r"does not fit .* device cpu; expected \d+ bytes left; found 0"),
    ):
        opened.search_vectors(index[1][0], k=1)


def test_closing_frees_the_device(index):
    opened = Engine.open(index[0], backend="gpu", device="cpu")
    opened.search_vectors(index[1][0], k=1)
    backend = opened._view.get().searcher.backends[0]
    gone, device = weakref.ref(backend), opened._device
    assert device._used_bytes == backend.device_bytes
    del backend
    opened.close()
    gc.collect()
    assert gone() is None
    assert device._used_bytes == 0


def test_closing_gives_memory_back_when_nothing_holds_it_any_more(index, monkeypatch):
    opened = Engine.open(index[0], backend="gpu", device="cpu")
    opened.search_vectors(index[1][0], k=1)
    backend = weakref.ref(opened._view.get().searcher.backends[0])
    held = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: held.append(backend()))
    opened._device.__dict__["place"] = torch.device("cuda")
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


def test_hybrid_search_by_a_device_is_that_by_the_cpu(small_index):
    queries = ["how long does the dough rest", "which piece stays on its colour"]
    with Engine.open(small_index, backend="gpu", device="cpu") as device, Engine.open(small_index) as cpu:
        for mode in ("dense", "hybrid"):
            assert device.search(queries, k=5, mode=mode) == cpu.search(queries, k=5, mode=mode)


def test_a_device_that_is_fuller_than_thought(index, monkeypatch):
    """If it is requested by name an error is raised; "auto" continues without it."""

    def full(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("quarry.engine.backends.gpu.rows.upload", full)
    resources = Resources(device=Device("cpu"))
    snapshot = Snapshot(Directory(index[0]))
    with pytest.raises(InvalidSetting, match=r"has less memory than its budget; expected \d+ bytes"):
        open_backend("gpu", snapshot.segments[0], resources)
    gc.collect()
    assert resources.device._used_bytes == 0
    snapshot.close()


def test_what_triton_raises_is_a_failure_of_the_device(index, monkeypatch):
    """A variant of a kernel is compiled when it is first needed, long after the kernels were looked at."""

    class TritonError(Exception):
        pass

    def failing(*_):
        raise TritonError("out of resource: shared memory")

    monkeypatch.setitem(sys.modules, "triton.errors", SimpleNamespace(TritonError=TritonError))
    monkeypatch.setattr("quarry.engine.backends.gpu.rows.DeviceRows.document_scores", failing)
    with (
        Engine.open(index[0], backend="gpu", device="cpu") as opened,
        pytest.raises(BackendUnavailable, match="device cpu failed; found out of resource"),
    ):
        opened.search_vectors(index[1][0], k=1)


@pytest.mark.parametrize(("limit_gib", "work_mib"), [(1, 128), (8, 512), (24, 768), (128, 4096), (1024, 4096)])
def test_larger_devices_have_more_room_to_work_in(limit_gib, work_mib):
    device = Device(limit_bytes=limit_gib << 30)
    device.__dict__["place"] = torch.device("cuda")
    assert device.work_bytes == work_mib << 20
    assert device.left_bytes == device.limit_bytes - device.work_bytes
