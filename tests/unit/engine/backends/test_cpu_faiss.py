"""Properties of the FAISS backend alone; tests/contract tests those of all backends."""

from __future__ import annotations

from dataclasses import replace

import faiss
import numpy as np
import pytest
from support.indexes import small_index
from support.indexes.format_samples import quantizer

from quarry.engine.backends.cpu_faiss import FaissBackend
from quarry.engine.backends.faiss_lists import build_faiss_lists
from quarry.engine.backends.probing import ProbingPolicy
from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.quantization.candidates import rows_per_candidate
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.snapshot import Snapshot


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    snapshot = Snapshot(small_index.build(tmp_path_factory.mktemp("index")))
    yield snapshot.segments
    snapshot.close()


@pytest.fixture(scope="module")
def queries():
    generator = np.random.default_rng(3)
    return generator.standard_normal((20, small_index.DIM)).astype(np.float32)


def best_scores(segment, queries):
    """Return (n_queries, n_docs) maxima of each document."""
    table = segment.reader.centroids
    scores = queries @ StoredVectors(segment).vectors(np.arange(table.n_rows)).T
    return np.maximum.reduceat(scores, table.offsets[:-1], axis=1)


def allowed_by(segment, share):
    """Return flags of live documents, of which the first `share` are allowed."""
    allowed = ~segment.deleted
    allowed[int(share * len(allowed)) :] = False
    return allowed


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("rows_per_scored", [1, 10, 1 << 40])
def test_only_allowed_documents_and_enough_of_them(segments, queries, share, rows_per_scored):
    for segment in segments:
        policy = replace(ProbingPolicy.of(segment), rows_per_scored=rows_per_scored)
        backend, allowed = FaissBackend(segment, Resources(), policy), allowed_by(segment, share)
        for k, n, nprobe in ((1, 1, 1), (10, 10, None), (10, 40, 2), (200, 200, 1)):
            for found in backend.candidates(queries, SearchParameters(k, n, nprobe, 2, allowed)):
                assert allowed[found.docs].all()
                assert len(np.unique(found.docs)) == len(found.docs) >= min(k, allowed.sum())
                assert found.upper_bound == np.inf or len(found.docs) == allowed.sum()


def test_the_best_of_the_allowed_are_found(segments, queries):
    segment = segments[0]
    policy = replace(ProbingPolicy.of(segment), rows_per_scored=1 << 40)
    allowed, backend = allowed_by(segment, 0.5), FaissBackend(segment, Resources(), policy)
    scores = np.where(allowed, best_scores(segment, queries), -np.inf)
    found = backend.candidates(queries, SearchParameters(10, 40, 16, 1, allowed))
    first = [row.argmax() in each.docs for row, each in zip(scores, found, strict=True)]
    assert all(first)
    all_allowed = backend.candidates(queries, SearchParameters(10, 40, 16, 1, ~segment.deleted))
    unfiltered = backend.candidates(queries, SearchParameters(10, 40, 16, 1))
    for one, other in zip(all_allowed, unfiltered, strict=True):
        assert sorted(one.docs) == sorted(other.docs)


def test_the_calibrated_number_of_lists_is_read(segments):
    settings = quantizer(measured=True).search_settings
    settings = tuple(replace(each, nprobe=n) for each, n in zip(settings, (3, 7), strict=True))
    segment = replace(segments[0], quantizer=replace(segments[0].quantizer, search_settings=settings))
    policy = ProbingPolicy.of(segment)
    assert [policy.first_probe(k, k, None, 1.0).nprobe for k in (1, 10, 100, 1 << 20)] == [3, 3, 7, 16]


def test_more_rows_are_collected_for_coarser_codes(segments):
    """A quarter of the bits per dimension needs four times as many rows per candidate."""
    segment = segments[0]
    usual = ProbingPolicy.of(segment).rows_per_candidate
    generator = np.random.default_rng(0)
    shape = (2, 16, small_index.DIM // 2)
    codebook = generator.standard_normal(shape).astype(np.float32)
    coarse = replace(segment.quantizer, encode_codebook=codebook, score_codebook=codebook)
    assert rows_per_candidate(replace(segment, quantizer=coarse)) == pytest.approx(4 * usual)


def test_searches_with_filters_by_turns(segments, queries):
    """Alternating filters do not affect one another."""
    segment = segments[0]
    backend = FaissBackend(segment, Resources())
    filters = [allowed_by(segment, 0.7), None, allowed_by(segment, 0.8), allowed_by(segment, 0.7)]
    for allowed in [*filters, *filters]:
        expected = FaissBackend(segment, Resources()).candidates(queries, SearchParameters(10, 20, 8, 1, allowed))
        found = backend.candidates(queries, SearchParameters(10, 20, 8, 1, allowed))
        assert [sorted(each.docs) for each in found] == [sorted(each.docs) for each in expected]


@pytest.mark.parametrize("steps", [1, 3, 32])
def test_lists_are_copied_part_by_part_as_a_whole(segments, queries, steps):
    """Lists that are copied in parts give the same index as all lists at once."""
    segment = segments[0]
    owners = np.arange(segment.reader.n_rows)
    owners[::5] = -1
    index = build_faiss_lists(segment.quantizer, segment.reader.lists, owners, steps)
    whole = interleaved_at_once(segment.quantizer, segment.reader.lists, owners)
    assert index.ntotal == (owners >= 0).sum()
    parameters = faiss.SearchParametersIVF(nprobe=small_index.NLIST)
    for found, expected in zip(
        index.search(queries, 50, params=parameters), whole.search(queries, 50, params=parameters), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def interleaved_at_once(quantizer, lists, owners):
    n_sub, _, dsub = quantizer.score_codebook.shape
    coarse = faiss.IndexFlatIP(n_sub * dsub)
    coarse.add(quantizer.coarse)
    plain = faiss.IndexIVFPQ(coarse, n_sub * dsub, quantizer.nlist, n_sub, 4, faiss.METRIC_INNER_PRODUCT)
    plain.by_residual, plain.is_trained = quantizer.by_residual, True
    faiss.copy_array_to_vector(np.ascontiguousarray(quantizer.score_codebook).ravel(), plain.pq.centroids)
    rows, codes = lists.rows(), lists.codes()
    for number in range(quantizer.nlist):
        low, high = lists.offsets[number : number + 2].tolist()
        for place in range(low, high):
            if owners[rows[place]] >= 0:
                ids, code = owners[rows[place]][None].copy(), codes[place : place + 1].copy()
                plain.invlists.add_entries(number, 1, faiss.swig_ptr(ids), faiss.swig_ptr(code))
    plain.ntotal = int((owners >= 0).sum())
    interleaved = faiss.IndexIVFPQFastScan(plain)
    interleaved.referenced_objects = [coarse, plain]
    return interleaved
