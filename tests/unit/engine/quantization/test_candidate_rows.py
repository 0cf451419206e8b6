from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.indexes import small_index
from support.indexes.format_samples import quantizer

from quarry.engine.options import SearchOptions
from quarry.engine.quantization.candidates import default_candidates, measure_candidate_rows, rows_per_candidate
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.training import train_quantizer
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.quantizer import SearchSetting


def decoded(made, lists, codes):
    """Return the vectors that 4-bit codes represent."""
    halves = [[half for byte in code for half in (byte & 15, byte >> 4)] for code in codes.tolist()]
    vectors = np.array(
        [np.concatenate([made.score_codebook[m][n] for m, n in enumerate(code)]) for code in halves]
    )
    return vectors + made.coarse[lists] if made.by_residual else vectors


def n_before(scores, row, tolerance):
    """Return the number of rows that score better than `row`, or lower by less than the rounding error."""
    return sum(score > scores[row] - tolerance for other, score in scores.items() if other != row)


@pytest.mark.parametrize("input_dim", [None, 12], ids=["plain", "rotated"])
@pytest.mark.parametrize("by_residual", [False, True])
def test_the_number_is_a_count(by_residual, input_dim):
    n = 2100  # more than are counted at a time
    sample = np.random.default_rng(0).standard_normal((n, input_dim or 8)).astype(np.float32)
    made = quantizer(by_residual=by_residual, input_dim=input_dim)
    turned = sample if input_dim is None else sample @ made.rotation.T
    lists, codes = VectorCoder(made, 1).code(sample)
    vectors, ranks = decoded(made, lists, codes), []
    for place in np.linspace(0, n - 1, 30).astype(int):
        others = [row for row in range(n) if abs(row - place) > 16]
        near = sorted(others, key=lambda row: -(sample[row] @ sample[place]))[:10]
        scores = {row: vectors[row] @ turned[place] for row in others}
        ranks += [n_before(scores, row, 1e-5 * np.linalg.norm(turned[place])) for row in near]
    found = measure_candidate_rows(made, sample, lists, codes, n_held_out=30)
    shares = [np.mean(np.array(ranks) < most) for most in (found // 2 - 1, found // 2)]
    assert found % 2 == 0
    assert shares[0] < 0.995 <= shares[1]


def measured(sample, made=None):
    made = made or quantizer()
    return measure_candidate_rows(made, sample, *VectorCoder(made, 1).code(sample))


@pytest.mark.parametrize("n", [1, 5, 11, 20])
def test_tiny_samples_are_not_enough(n):
    """In a tiny sample no row has ten others that are not its neighbors in the sample, so nothing is measured."""
    assert measured(np.random.default_rng(0).standard_normal((n, 8)).astype(np.float32)) is None


def test_a_small_sample():
    assert 1 <= measured(np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)) <= 2 * 60


def sphere(n, dim=8, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class TestDegenerate:
    """Indistinguishable rows count as not found, and samples without information give no result."""

    @pytest.mark.parametrize("n_kinds", [1, 3, 20])
    @pytest.mark.parametrize("scatter", [0, 1e-7])
    def test_identical_vectors(self, n_kinds, scatter):
        """Nothing is measured if rounding decides which of hundreds of identical rows are nearest."""
        generator = np.random.default_rng(1)
        sample = sphere(n_kinds)[generator.integers(0, n_kinds, 3000)]
        sample += (scatter * generator.standard_normal(sample.shape)).astype(np.float32)
        assert measured(sample, train_quantizer(sample, 16, 4, 0, 1)) is None

    def test_some_identical_vectors_among_others(self):
        """Only rows with distinct nearest neighbors are measured."""
        sample, same = sphere(3000), sphere(1)
        made = train_quantizer(sample, 16, 4, 0, 1)
        usual = measured(sample, made)
        sample[100:1500] = same
        assert usual / 2 < measured(sample, made) < usual * 2

    @pytest.mark.parametrize("scale", [1e-6, 0, 1e-9])
    def test_codes_that_cannot_tell_rows_apart(self, scale):
        """If all scores by codes are equal, nearly all rows are needed."""
        sample, made = sphere(2000), quantizer()
        book = made.encode_codebook * np.float32(scale) + np.float32(1)
        flat = replace(made, encode_codebook=book, score_codebook=book)
        assert measured(sample, flat) > 2 * 0.9 * 2000

    @pytest.mark.parametrize("rank", [1, 2, 3])
    def test_vectors_in_few_directions(self, rank):
        """If hundreds of rows share a code, the measured number suffices in the worst order of them."""
        sample = (np.random.default_rng(2).standard_normal((3000, rank)) @ sphere(rank, 32)).astype(np.float32)
        made = train_quantizer(sample, 16, 8, 0, 1)
        n, vectors, ranks = measured(sample, made), decoded(made, *VectorCoder(made, 1).code(sample)), []
        for place in range(7, 3000, 60):
            scores = dict(enumerate(vectors @ sample[place]))
            near = np.argsort(-(sample @ sample[place]))[:10]
            ranks += [n_before(scores, row, 1e-5 * np.linalg.norm(sample[place])) for row in near]
        assert np.mean(np.array(ranks) < n) > 0.98


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    snapshot = Snapshot(small_index.build(tmp_path_factory.mktemp("index")))
    yield snapshot.segments[0]
    snapshot.close()


def test_the_default_grows_with_the_hits(segment):
    rows = round(rows_per_candidate(segment) * 50)
    segment = replace(segment, quantizer=replace(segment.quantizer, candidate_rows=rows))
    assert default_candidates(segment, 1) == default_candidates(segment, 10)
    assert default_candidates(segment, 10) == pytest.approx(50, abs=1)
    assert default_candidates(segment, 100) == pytest.approx(50 * 10**0.62, rel=0.03)


def test_what_was_measured_with_queries_goes_before_rows(segment):
    each = rows_per_candidate(segment)
    settings = (SearchSetting(10, 1, round(50 * each)), SearchSetting(100, 1, round(300 * each)))
    made = replace(segment.quantizer, candidate_rows=1, search_settings=settings)
    found = [default_candidates(replace(segment, quantizer=made), k) for k in (1, 10, 100)]
    assert found == pytest.approx([50, 50, 300], abs=1)


@pytest.mark.parametrize("rows", [1, 1 << 32])
def test_the_default_has_bounds(segment, rows):
    segment = replace(segment, quantizer=replace(segment.quantizer, candidate_rows=rows))
    assert default_candidates(segment, 10) >= 30
    assert default_candidates(segment, 10_000) >= 10_000


@pytest.mark.parametrize(("k", "expected"), [(1, 100), (10, 100), (100, 300)])
def test_without_a_measurement(segment, k, expected):
    for made in (None, replace(segment.quantizer, candidate_rows=None)):
        assert default_candidates(replace(segment, quantizer=made), k) == expected


def test_a_search_takes_the_measured_number(tmp_path):
    """A search is exact if it takes more candidates of every segment than there are documents."""
    snapshot = Snapshot(small_index.build(tmp_path))
    queries = np.random.default_rng(1).standard_normal((3, small_index.DIM)).astype(np.float32)
    exactness = {}
    for rows in (1, 10_000):
        snapshot.segments = [
            replace(each, quantizer=replace(each.quantizer, candidate_rows=rows)) for each in snapshot.segments
        ]
        searcher = small_index.searcher_of(snapshot, backend="cpu_faiss")
        exactness[rows] = {answer.exactness.value for answer in searcher.search(queries, SearchOptions(k=10))}
    assert exactness == {1: {"approximate"}, 10_000: {"exact"}}


def test_fewer_where_a_filter_leaves_fewer(segment):
    segment = replace(segment, quantizer=replace(segment.quantizer, candidate_rows=100_000))
    n = segment.record.n_docs
    found = [default_candidates(segment, 10, n_allowed) for n_allowed in (n, n // 64, 1, 0)]
    assert found[0] == default_candidates(segment, 10)
    assert found[0] > found[1] > found[2] == found[3] >= 10
    assert found[1] == pytest.approx(found[0] * ((n // 64) / n) ** (1 / 6), rel=0.01)
