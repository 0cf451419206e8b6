"""Searches that keep the vectors of queries on a device (torch's CPU device) equal those by way of numpy.

The vectors of the queries are read once at the end, for relevance and the best passages of the hits.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.models.tiny_checkpoint import write_checkpoint

from quarry import engine
from quarry.engine import Engine
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import write_bundle
from quarry.formats.errors import BackendUnavailable, InvalidQuery

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

from support.models.downloads import Downloads  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

from quarry.engine.gpu.transfer import download, send  # noqa: E402
from quarry.engine.thresholds import Thresholds  # noqa: E402

WORDS = ["cat", "dog", "dough", "bread", "rook", "pawn", "the", "a", "of", "piece", "rest", "flour", "queen"]
READS = {"cpu", "numpy", "__array__", "tolist", "item", "__int__", "__float__", "__bool__", "__index__", "nonzero"}


class NoReading(TorchFunctionMode):
    """Refuses calls that make the host wait for a device, except downloads of answers and uploads of inputs."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in READS and not self._coming_back():
            raise AssertionError(f"{func.__name__} reads a tensor")
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _coming_back():
        frame = sys._getframe()
        while frame and frame.f_code not in (download.__code__, send.__code__):
            frame = frame.f_back
        return frame is not None


@pytest.fixture
def downloads():
    """Return the shapes of the tensors in each download from the device."""
    with Downloads() as seen:
        yield seen.shapes


class Spoiled(OnnxRunner):
    """Returns NaN for the last text of a batch."""

    def run(self, output, ids, mask):
        found = super().run(output, ids, mask)
        found[-1, 0] = torch.nan
        return found


class Shortened(OnnxRunner):
    """Returns vectors that are too short."""

    def run(self, output, ids, mask):
        return super().run(output, ids, mask)[..., :-1]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    exported = export(write_checkpoint(folder / "checkpoint"), folder / "exported", "fp32")
    contents = {name: exported.path / name for name in exported.files}
    return write_bundle(folder / "bundle", replace(exported.settings, cut_queries=False), contents)


@pytest.fixture(scope="module")
def encoder(bundle):
    return BatchedEncoder(bundle, partial(OnnxRunner, device="cpu"))


def texts(n, seed):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 40))) for _ in range(n)]


@pytest.fixture(scope="module", params=["int8", "float16"])
def index(request, encoder, tmp_path_factory):
    """Build an index of two segments, with texts of several windows and 200 identical ones."""
    path = tmp_path_factory.mktemp("pipeline") / "index"
    docs = [*texts(300, 1), *["the same bread"] * 200, "cat " * 300]
    engine.build(docs, path, encoder=encoder, centroids=request.param)
    with Engine.open(path, encoder=encoder, writable=True) as opened:
        opened.add(texts(60, 2))
        opened.delete([opened.search("dog", k=1)[0].id])
        opened.commit()
    return path


@pytest.fixture(scope="module", params=[0, 1 << 30], ids=["8 bits", "4 bits"])
def coded_index(request, encoder, tmp_path_factory):
    """Build an index of codes alone, of 8 or 4 bits a sub-quantizer."""
    path = tmp_path_factory.mktemp("coded") / "index"
    engine.build(
        texts(600, 1),
        path,
        encoder=encoder,
        centroids="none",
        code_bytes=8,
        thresholds=Thresholds(calibration_queries=64, training_rows=300, long_code_rows=request.param),
    )
    return path


def on_device(path, encoder, **options):
    return Engine.open(path, encoder=encoder, backend="gpu", device="cpu", **options)


def columns(hits):
    return [[(hit.id, hit.score) for hit in each] for each in hits]


@pytest.mark.parametrize("n", [1, 7, 300])
def test_answers_are_those_by_way_of_numpy(index, encoder, downloads, n):
    queries = texts(n, n)
    with on_device(index, encoder) as opened:
        vectors = encode_queries(encoder, queries, 2)
        assert isinstance(vectors, DeviceVectors)
        expected = opened.search_vectors(vectors.host, k=10, candidates=30)
        downloads.clear()
        with NoReading():
            found = opened.search(queries, k=10, candidates=30, mode="dense")
        assert columns(found) == columns(expected)
        assert [hits.exactness for hits in found] == [hits.exactness for hits in expected]
    assert [each for each in downloads if any(encoder.dim in shape for shape in each)] == [[(n, encoder.dim)]]


@pytest.mark.parametrize("n", [1, 7, 20])
def test_answers_of_codes_alone_are_those_by_way_of_numpy(coded_index, encoder, downloads, n):
    queries = texts(n, n)
    with on_device(coded_index, encoder) as opened:
        expected = opened.search_vectors(
            encode_queries(encoder, queries, 2).host, k=10, candidates=30, nprobe=1000
        )
        downloads.clear()
        with NoReading():
            found = opened.search(queries, k=10, candidates=30, nprobe=1000, mode="dense")
        assert columns(found) == columns(expected)
        assert downloads == [[(n,), (n,), (n, 30), (n, 30)], [(n, encoder.dim)]]
        # The vectors of this encoder are nearly alike; stage 1, which does not scale them, has another order.
        found = opened.search(queries, k=10, candidates=600, nprobe=1000, mode="dense")
    with Engine.open(coded_index, encoder=encoder, backend="exact") as exact:
        best = exact.search(queries[:20], k=10, mode="dense")
        by_all = [dict(*columns([hits])) for hits in exact.search(queries[:20], k=600, mode="dense")]
    shares = [
        len({hit.id for hit in one} & {hit.id for hit in other}) for one, other in zip(found, best, strict=False)
    ]
    assert np.mean(shares) >= 9.9  # any of several tied documents may be found
    for hits, scores in zip(found, by_all, strict=False):
        np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-5)


def test_one_answer_of_each_segment_comes_back(index, encoder, downloads):
    with on_device(index, encoder) as opened:
        opened.search("rook", k=3, mode="dense")
    assert downloads == [[(1,), (1, 100), (1,), (1, 100)], [(1,), (1, 60)], [(1, encoder.dim)]]


def test_reading_on_the_way_would_be_noticed():
    for read in (
        torch.Tensor.cpu,
        torch.Tensor.numpy,
        torch.Tensor.tolist,
        torch.Tensor.item,
        int,
        bool,
        np.asarray,
    ):
        with NoReading(), pytest.raises(AssertionError, match="reads a tensor"):
            read(torch.ones(1))


def test_queries_that_tie_are_looked_at_more_widely(index, encoder):
    with on_device(index, encoder) as opened, Engine.open(index, encoder=encoder, backend="exact") as exact:
        found, expected = (
            each.search("the same bread", k=150, candidates=150, mode="dense") for each in (opened, exact)
        )
    assert [hit.id for hit in found] == [hit.id for hit in expected]
    np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in expected], atol=1e-5)


@pytest.mark.parametrize("backend", ["gpu", "scan", "exact"])
@pytest.mark.parametrize("options", [{}, {"explain": True}, {"mode": "dense", "explain": True}])
def test_every_mode_and_backend_answers(index, encoder, backend, options):
    queries = texts(5, 9)
    with Engine.open(index, encoder=encoder, backend=backend, device="cpu") as opened:
        found = opened.search(queries, k=5, **options)
        for query, hits in zip(queries, found, strict=True):
            np.testing.assert_allclose(
                [hit.score for hit in hits], [hit.score for hit in opened.search(query, k=5, **options)], atol=1e-5
            )
            assert not options.get("explain") or hits[0].matches


@pytest.mark.parametrize("backend", ["gpu", "scan"])
def test_vectors_that_cannot_be_searched_with_are_found_out(index, bundle, backend):
    spoiled = BatchedEncoder(bundle, partial(Spoiled, device="cpu"))
    queries = ["rook pawn queen flour", "dog", "cat the a"]  # the shortest is the last of the batch
    with Engine.open(index, encoder=spoiled, backend=backend, device="cpu") as opened:
        for mode in ("dense", "hybrid"):
            with pytest.raises(InvalidQuery, match="query vector 1 holds numbers that are not finite"):
                opened.search(queries, mode=mode)


def test_they_are_found_out_in_an_empty_index_too(bundle, encoder, tmp_path):
    engine.build([], tmp_path / "index", encoder=encoder)
    spoiled = BatchedEncoder(bundle, partial(Spoiled, device="cpu"))
    with on_device(tmp_path / "index", spoiled) as opened, pytest.raises(InvalidQuery, match="not finite"):
        opened.search("dog", mode="dense")


def test_vectors_of_another_length_are_found_out(index, bundle):
    shortened = BatchedEncoder(bundle, partial(Shortened, device="cpu"))
    with on_device(index, shortened) as opened, pytest.raises(InvalidQuery, match="no valid vector"):
        opened.search("dog")


def test_long_queries_are_the_mean_of_their_windows(encoder, bundle):
    alone = engine.open_encoder(bundle.path, runtime="onnx-cpu")
    queries = ["cat " * 200, "dog", "the bread of the queen " * 30, "a"]
    assert len(encoder.prepare_query(queries[0]).rows) > 1
    expected = np.stack([alone.encode_query(query) for query in queries])
    np.testing.assert_allclose(encode_queries(encoder, queries, 1).host, expected, atol=2e-6)


def failing(*_, **options):
    raise torch.OutOfMemoryError("out of memory")


def test_a_device_that_fails_at_a_search_is_an_error(index, encoder, monkeypatch):
    monkeypatch.setattr(torch, "searchsorted", failing)
    with (
        on_device(index, encoder) as opened,
        pytest.raises(BackendUnavailable, match="device cpu failed; found out of"),
    ):
        opened.search("dog")
