"""The Triton kernels are compared with the torch code they replace: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import os

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes.one_segment import random_documents, random_quantizer, segment_of

from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.backends.registry import open_backend
from quarry.engine.gpu.device import Device
from quarry.formats.container.directory import Directory

torch = pytest.importorskip("torch", reason="backend gpu needs torch")
gpu_kernels = pytest.importorskip(
    "quarry.engine.gpu.kernels", reason="the kernels need triton", exc_type=ImportError
)
SIZES = [(24, 1), (150, 19), (40, 70)]  # dimensions and numbers of queries
PLACE = "cuda" if torch.cuda.is_available() else "cpu"
if PLACE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("without a GPU the kernels need TRITON_INTERPRET=1", allow_module_level=True)


def device_with(kernels):
    """Return this machine's device with the given kernels."""
    device = Device(PLACE)
    device.kernels = kernels
    return device


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


def documents(generator, dim):
    """Return documents of 1 to 300 centroids, most of few."""
    lengths = [1, 300, 2, 17, 64, 128, 129, *generator.integers(1, 7, 30).tolist()]
    return [generator.standard_normal((n, dim)).astype(np.float32) for n in lengths]


def block_scores(segment, queries, kernels, beta, allowed):
    """Return (n_docs, n_queries) scores of unit queries, computed in two blocks, and bounds of their errors."""
    from quarry.engine.backends.gpu.queries import ScanQueries
    from quarry.engine.backends.gpu.rows import DeviceRows
    from quarry.engine.backends.gpu.scores import KernelScores, TorchScores, error_factor, fastest_scores

    with torch.inference_mode():
        device = device_with(kernels)
        rows = DeviceRows(segment.reader.centroids, device)
        scores = fastest_scores(rows, device)
        assert isinstance(scores, KernelScores if kernels else TorchScores)
        units = ScanQueries.of(torch.tensor(queries, device=PLACE), beta, scores.kind, scores.wide_sums)
        mask = None if allowed is None else torch.from_numpy(allowed).to(PLACE)
        middle = segment.reader.n_docs // 3
        blocks = [scores.scores(units, *each, mask) for each in ((0, middle), (middle, segment.reader.n_docs))]
    slack = float(units.slack.max()) * error_factor(rows.documents.most_rows, beta) * rows.largest_norm
    return torch.cat(blocks).cpu().numpy(), slack


@pytest.mark.parametrize(
    ("kind", "beta", "dim", "n_queries"),
    [(kind, beta, *size) for kind, beta, size in pairs_of(("int8", "float16"), (None, 0.5, 8.0), SIZES)],
)
def test_documents_are_scored(directory, monkeypatch, kind, beta, dim, n_queries):
    monkeypatch.setattr("support.indexes.one_segment.DIM", dim)
    generator = np.random.default_rng(dim)
    segment = segment_of(directory, documents(generator, dim), kind)
    queries = generator.standard_normal((n_queries, dim)).astype(np.float32)
    allowed = generator.random(segment.reader.n_docs) < 0.7 if beta else None
    expected, _ = block_scores(segment, queries, None, beta, allowed)
    found, slack = block_scores(segment, queries, gpu_kernels, beta, allowed)
    assert np.isfinite(found).sum() == found.size if allowed is None else allowed.sum() * n_queries
    assert slack < 0.05
    np.testing.assert_allclose(found, expected, atol=slack)


@pytest.mark.parametrize("beta", [None, 2.0])
@pytest.mark.parametrize("tiling", [(64, 16, 128, 4, 3), (16, 32, 16, 8, 2), (256, 64, 32, 4, 4)])
def test_tiles_of_any_size_give_the_same_scores(tiling, beta):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 9, (50,), generator=generator)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(PLACE)
    values = torch.randn((int(starts[-1]), 40), generator=generator).half().to(PLACE)
    units = torch.nn.functional.normalize(torch.randn((19, 40), generator=generator)).half().to(PLACE)
    docs = torch.arange(50, dtype=torch.int32, device=PLACE)
    betas = None if beta is None else torch.full((19,), beta, device=PLACE)
    found = []
    for each in (None, gpu_kernels.Tiling(*tiling)):
        found.append(torch.empty((50, 19), device=PLACE))
        gpu_kernels.document_scores(values, None, starts, docs, 4, None, units, betas, found[-1], 0, each)
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beta", [None, 2.0])
@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_final_scores(directory, kind, beta):
    generator = np.random.default_rng(3)
    segment = segment_of(directory, documents(generator, 24)[:12], kind)
    queries = generator.standard_normal((2, 24)).astype(np.float32)
    wanted = SearchParameters(1, 1 << 20, None, 1, beta=beta)
    answers = [
        open_backend("gpu", segment, Resources(device=device_with(kernels))).candidates(queries, wanted)
        for kernels in (None, gpu_kernels)
    ]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by_residual", [False, True], ids=["whole", "residual"])
@pytest.mark.parametrize(("n_sub", "nbits"), [(8, 4), (8, 8), (1, 8)])
def test_lists_are_read(directory, n_sub, nbits, by_residual):
    generator = np.random.default_rng(n_sub * nbits)
    quantizer = random_quantizer(generator, n_sub, nbits, by_residual, turned=False, apart=True)
    segment = segment_of(directory, random_documents(generator, 200), quantizer=quantizer, keep_centroids=False)
    queries = generator.standard_normal((4, 24)).astype(np.float32)
    from quarry.engine.backends.gpu.lists import DeviceLists

    best = []
    for kernels in (None, gpu_kernels):
        lists = DeviceLists(segment, device_with(kernels))
        best.append(lists.scores(lists.quantizer.tables(torch.tensor(queries, device=PLACE), 3)))
    assert 0 < torch.isinf(best[0]).sum() < best[0].numel()
    np.testing.assert_allclose(best[1].cpu(), best[0].cpu(), rtol=1e-5, atol=1e-5)


@pytest.fixture
def huge(tmp_path):
    """Return a function that makes zero tensors of any size, which use memory only for written pages."""

    def tensor(shape, kind):
        if PLACE != "cpu":
            return torch.zeros(shape, dtype=kind, device=PLACE)
        path, size = tmp_path / f"{len(list(tmp_path.iterdir()))}", int(np.prod(shape))
        with path.open("wb") as file:
            file.truncate(size * kind.itemsize)
        return torch.from_file(str(path), shared=True, size=size, dtype=kind).view(shape)

    return tensor


BEYOND = 1 << 31  # offsets that do not fit into 32 bits


def rows_at_the_end(huge, kind):
    """Return three rows whose offsets do not fit into 32 bits, after zeros, as two documents."""
    n_rows = BEYOND // 96 + 1000
    values, scales = huge((n_rows, 96), kind), huge((n_rows,), torch.float32)
    made = torch.from_numpy(np.random.default_rng(1).integers(-127, 128, (3, 96))).to(PLACE)
    values[-3:], scales[-3:] = made.to(kind), 1 / 500
    return values, scales, torch.tensor([0, n_rows - 3, n_rows], device=PLACE)


@pytest.mark.parametrize("kind", [torch.int8, torch.float16])
def test_rows_beyond_32_bits_are_scored(huge, kind):
    values, scales, starts = rows_at_the_end(huge, kind)
    queries = torch.nn.functional.normalize(torch.randn((5, 96), dtype=torch.float64)).to(PLACE)
    expected = (values[-3:].double() @ queries.T / 500).amax(0).float()
    ones = torch.ones(5, dtype=torch.float64, device=PLACE)
    docs = torch.ones((5, 1), dtype=torch.int64, device=PLACE)
    found = gpu_kernels.pair_scores(values, scales, starts, docs, queries, ones, None)
    torch.testing.assert_close(found[:, 0], expected)
    row = BEYOND // 5 + 10  # of the scores
    block = huge((row + 1, 5), torch.float32)
    docs = torch.ones(1, dtype=torch.int32, device=PLACE)
    gpu_kernels.document_scores(values, scales, starts, docs, 4, None, queries.half(), None, block, 1 - row)
    torch.testing.assert_close(block[row], expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("ksub", [16, 256])
def test_codes_and_documents_beyond_32_bits_are_scored(huge, ksub):
    n_rows, n_docs = BEYOND // 32 + 100, BEYOND // 2 + 100
    codes, owners = huge((n_rows, 32), torch.uint8), huge((n_rows,), torch.int32)
    codes[-1], owners[-1] = 1 if ksub == 256 else 0x11, n_docs - 1
    starts = torch.tensor([0, n_rows - 1, n_rows], device=PLACE)
    tables = torch.zeros((3, 32 * (2 if ksub == 16 else 1), ksub), device=PLACE)
    tables[2, :, 1] = 0.5
    best = huge((3, n_docs), torch.float32)
    probed, lists = torch.ones((3, 1), dtype=torch.int64, device=PLACE), torch.ones((3, 1), device=PLACE)
    gpu_kernels.score_lists(codes, owners, starts, 1, tables, probed, lists, best)
    assert best[:, -1].tolist() == [1, 1, 1 + 0.5 * tables.shape[1]]
