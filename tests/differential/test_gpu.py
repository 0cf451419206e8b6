"""The parts of the GPU backend, on torch's CPU device, are compared with numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="backend gpu needs torch")

from support.combinations import pairs_of
from support.indexes.decoded_codes import share_of_mean
from support.indexes.one_segment import DIM, QUANTIZERS, random_documents, random_quantizer, segment_of

from quarry.engine import Engine
from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.backends.registry import open_backend
from quarry.engine.gpu.device import Device
from quarry.engine.scoring.aggregation import Rescorer, aggregate
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.container.directory import Directory

EVERYTHING = 1 << 20


def document_scores(segment, query, beta=None):
    """Return (n_docs,) float64 scores."""
    offsets, share = segment.reader.centroids.offsets, share_of_mean(segment)
    scores = StoredVectors(segment).vectors(np.arange(offsets[-1])).astype(np.float64) @ query
    parts = np.split(scores, offsets[1:-1])
    means = np.array([part.mean() for part in parts])
    if beta is None:
        return (1 - share) * np.array([part.max() for part in parts]) + share * means
    weights = [np.exp(beta * (part - part.max())) for part in parts]
    aggregated = np.array([(w * part).sum() / w.sum() for w, part in zip(weights, parts, strict=True)])
    return (1 - share) * aggregated + share * means


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


def on_cpu(work_bytes=None, **settings):
    device = Device("cpu", **settings)
    if work_bytes is not None:
        device.work_bytes = work_bytes
    return Resources(device=device)


def documents_of_many_lengths(generator):
    lengths = [1, 500, 2, 17, 33, 64, 65, 128, 129, *generator.integers(1, 7, 300).tolist()]
    return [generator.standard_normal((n, DIM)).astype(np.float32) for n in lengths]


class TestScan:
    """All centroids are on the device."""

    @pytest.fixture(params=["int8", "float16"])
    def segment(self, request, directory):
        return segment_of(directory, documents_of_many_lengths(np.random.default_rng(1)), request.param)

    @pytest.mark.parametrize("n_queries", [1, 7, 300])
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
            allowed.flags.writeable = False  # as from a filter
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

    def test_little_work_memory_makes_smaller_blocks_of_the_same_answer(self, segment):
        queries = np.random.default_rng(6).standard_normal((3, DIM)).astype(np.float32)
        wanted = SearchParameters(10, 20, None, 1, beta=1.0)
        expected = open_backend("gpu", segment, on_cpu()).candidates(queries, wanted)
        backend = open_backend("gpu", segment, on_cpu(work_bytes=2000))
        for each, same in zip(backend.candidates(queries, wanted), expected, strict=True):
            assert dict(zip(each.docs, each.scores, strict=True)) == dict(zip(same.docs, same.scores, strict=True))


@pytest.mark.parametrize(
    ("codes", "kind", "turned", "apart"),
    pairs_of(["8x4", "8x8", "1x8"], QUANTIZERS, ["plain", "rotated"], ["one codebook", "two codebooks"]),
)
class TestLists:
    """Only the codes are on the device."""

    @pytest.fixture
    def segment(self, directory, codes, kind, turned, apart):
        n_sub, nbits = map(int, codes.split("x"))
        generator = np.random.default_rng(n_sub * nbits)
        by_residual, unit_length = QUANTIZERS[kind]
        options = (by_residual, turned == "rotated", apart == "two codebooks", unit_length)
        quantizer = random_quantizer(generator, n_sub, nbits, *options)
        return segment_of(directory, random_documents(generator), quantizer=quantizer, keep_centroids=False)

    def test_all_lists_are_the_exact_score_of_the_codes(self, segment):
        backend = open_backend("gpu", segment, on_cpu())
        queries = np.random.default_rng(7).standard_normal((20, DIM)).astype(np.float32)
        n = EVERYTHING if segment.quantizer.unit_length else 10  # stage 1 does not scale
        found = backend.candidates(queries, SearchParameters(10, n, EVERYTHING, 1))
        for query, each in zip(queries, found, strict=True):
            expected = document_scores(segment, query)
            best = each.docs[np.argsort(-each.scores, kind="stable")[:10]]
            np.testing.assert_allclose(expected[best], np.sort(expected)[::-1][:10], atol=1e-4)

    @pytest.mark.parametrize("beta", [None, 2.0])
    def test_final_scores_are_those_of_the_cpu_whatever_the_batch(self, segment, beta):
        backend, rescorer = open_backend("gpu", segment, on_cpu()), Rescorer(segment, beta)
        queries = np.random.default_rng(12).standard_normal((6, DIM)).astype(np.float32)
        for n, nprobe in ((10, 2), (30, EVERYTHING), (EVERYTHING, None)):
            wanted = SearchParameters(1, n, nprobe, 1, beta=beta)
            found = backend.candidates(queries, wanted)
            for number, each in enumerate(found):
                expected = rescorer.scores(queries[number], each.docs)
                np.testing.assert_allclose(each.scores, expected, atol=1e-5, rtol=1e-5)
                slow = document_scores(segment, queries[number], beta)[each.docs]
                np.testing.assert_allclose(each.scores, slow, atol=1e-4)
                alone = backend.candidates(queries[number : number + 1], wanted)[0]
                assert alone.docs.tolist() == each.docs.tolist()
                assert alone.scores.tolist() == each.scores.tolist()

    def test_little_work_memory_makes_smaller_batches_of_the_same_answer(self, segment):
        queries = np.random.default_rng(13).standard_normal((6, DIM)).astype(np.float32)
        wanted = SearchParameters(5, 20, 3, 1, beta=1.0)
        expected = open_backend("gpu", segment, on_cpu()).candidates(queries, wanted)
        backend = open_backend("gpu", segment, on_cpu(work_bytes=2000))
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


def test_hybrid_search_by_a_device_is_that_by_the_cpu(small_index):
    queries = ["how long does the dough rest", "which piece stays on its colour"]
    with Engine.open(small_index, backend="gpu", device="cpu") as device, Engine.open(small_index) as cpu:
        for mode in ("dense", "hybrid"):
            assert device.search(queries, k=5, mode=mode) == cpu.search(queries, k=5, mode=mode)
