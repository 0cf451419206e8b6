"""Tensors on torch's "meta" device have no data: reading one, or mixing it with another device, fails.

So these tests prove that nothing is read between the texts and the final downloads, and that no tensor is on the
wrong device.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.one_segment import DIM, QUANTIZERS, random_quantizer, segment_of
from support.models.tiny_checkpoint import DIM as ENCODER_DIM
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.exporters.export import export
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidQuery

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

from support.models.downloads import Downloads  # noqa: E402

from quarry.engine.backends.gpu.rows import DeviceRows  # noqa: E402
from quarry.engine.backends.gpu.scan import DeviceScan  # noqa: E402
from quarry.engine.backends.gpu.scores import TorchScores  # noqa: E402

NOWHERE = torch.device("meta")
TEXTS = ["the cat sat.", "a", "abc def ghi. " * 30, "x y z"]


class EmptyRunner(OnnxRunner):
    """Claims that its vectors are on the meta device."""

    def __init__(self, bundle, name):
        super().__init__(bundle, name, "cpu")
        self.place = NOWHERE

    def run(self, output, ids, mask):
        shape = (*ids.shape, ENCODER_DIM) if output == "token_vectors" else (len(ids), ENCODER_DIM)
        return torch.empty(shape, device=NOWHERE)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nothing")
    bundle = export(write_checkpoint(folder / "checkpoint"), folder / "bundle", "fp32")
    return BatchedEncoder(bundle, EmptyRunner)


@pytest.fixture
def coming_back():
    """Return the shapes of all downloads, which return zeros, or ones for integers."""
    with Downloads() as seen:
        yield seen.shapes


def nowhere():
    device = Device("cuda", 1 << 30)
    device.__dict__ |= {"place": NOWHERE, "kernels": None}
    return device


def nowhere_backend(segment):
    return GpuBackend(segment, Resources(device=nowhere()))


def int8_or_float16(tmp_path, monkeypatch, stored):
    monkeypatch.setattr("support.indexes.one_segment.DIM", ENCODER_DIM)
    documents = [np.ones((n, ENCODER_DIM), np.float32) for n in (1, 70, *[3] * 300)]
    return segment_of(Directory(tmp_path), documents, stored)


@pytest.mark.parametrize("beta", [None, 2.0])
@pytest.mark.parametrize("stored", ["int8", "float16"])
def test_both_stages(tmp_path, monkeypatch, coming_back, stored, beta):
    backend = nowhere_backend(int8_or_float16(tmp_path, monkeypatch, stored))
    queries = DeviceVectors(torch.empty((7, ENCODER_DIM), device=NOWHERE))
    assert backend.accepts(queries)
    for wanted in (
        SearchParameters(5, 20, None, 1, beta=beta),
        SearchParameters(5, 20, None, 1, np.ones(302, bool), beta),
        SearchParameters(5, 400, None, 1, beta=beta),
    ):
        with pytest.raises(InvalidQuery, match="query vector 0 "):  # zero vectors are invalid queries
            backend.candidates(queries, wanted)
    assert coming_back == [[(7,), (7, n), (7,), (7, n)] for n in (20, 20)] + [[(7,), (7, 302)]]


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
@pytest.mark.parametrize("beta", [None, 2.0])
@pytest.mark.parametrize("stored", ["int8", "float16"])
def test_scan_in_either_type(tmp_path, monkeypatch, coming_back, stored, beta, kind):
    device = nowhere()
    rows = DeviceRows(int8_or_float16(tmp_path, monkeypatch, stored).reader.centroids, device)
    scores = TorchScores(rows, device.work_bytes)
    scores.kind = kind
    scan = DeviceScan(rows, scores, device.work_bytes)
    for allowed in (None, torch.empty(302, dtype=torch.bool, device=NOWHERE)):
        docs, bounds = scan.find(torch.empty((7, ENCODER_DIM), device=NOWHERE), 20, allowed, beta)
        assert (docs.shape, docs.device, bounds.device) == ((7, 20), NOWHERE, NOWHERE)
    assert coming_back == []


@pytest.mark.parametrize("beta", [None, 2.0])
@pytest.mark.parametrize(("by_residual", "unit_length"), QUANTIZERS.values(), ids=QUANTIZERS)
@pytest.mark.parametrize("nbits", [4, 8])
def test_both_stages_by_codes_alone(tmp_path, coming_back, nbits, by_residual, unit_length, beta):
    generator = np.random.default_rng(nbits)
    documents = [generator.standard_normal((n, DIM)).astype(np.float32) for n in (1, 70, *[3] * 300)]
    quantizer = random_quantizer(generator, 8, nbits, by_residual, True, True, unit_length)
    segment = segment_of(Directory(tmp_path), documents, quantizer=quantizer, keep_centroids=False)
    backend = nowhere_backend(segment)
    queries = DeviceVectors(torch.empty((7, DIM), device=NOWHERE))
    for wanted in (
        SearchParameters(5, 20, 2, 1, beta=beta),
        SearchParameters(5, 20, 2, 1, np.ones(302, bool), beta),
        SearchParameters(5, 400, 2, 1, beta=beta),
    ):
        with pytest.raises(InvalidQuery, match="query vector 0 "):
            backend.candidates(queries, wanted)
    assert coming_back == [[(7,), (7,), (7, 20), (7, 20)]] * 2 + [[(7,), (7, 302)]]


def test_queries(encoder, coming_back):
    vectors = encode_queries(encoder, TEXTS, 1)
    assert isinstance(vectors, DeviceVectors)
    assert vectors.shape == (4, ENCODER_DIM)
    assert coming_back == []
    with pytest.raises(NotImplementedError, match="meta"):
        vectors.values.cpu()


def test_documents(encoder, coming_back):
    tokens = encoder.run_on_device([encoder.prepare(text) for text in TEXTS])
    assert tokens.values.device == NOWHERE
    assert coming_back == []
