from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes import format_samples

from quarry.engine.quantization.codebook import extract_codebook, train_codes
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.training import (
    choose_nlist,
    count_training_rows,
    measured,
    train_lists,
    train_on,
    train_quantizer,
)
from quarry.engine.scoring.stored_vectors import decode_vectors
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.centroids import RoundedRows, StoredBatch
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting

DIM = 32


def vectors(n, seed=0):
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((40, DIM))
    return (centres[generator.integers(0, 40, n)] + 0.3 * generator.standard_normal((n, DIM))).astype(np.float32)


def settings_of(centroids):
    return IndexSettings(
        dim=DIM,
        centroids=centroids,
        code_bytes=4,
        representation="",
        beta=None,
        representation_settings={},
        language="none",
        analysis_rules=1,
        k1=1.2,
        b=0.75,
        seed=0,
    )


@pytest.fixture(scope="module")
def sample():
    return vectors(4000)


@pytest.fixture(scope="module")
def quantizer(sample):
    return train_quantizer(sample, 32, 8, seed=1, threads=1)


def test_layout(quantizer):
    assert (quantizer.nlist, quantizer.code_bytes, quantizer.nbits, quantizer.input_dim) == (32, 8, 4, DIM)
    assert quantizer.encode_codebook.shape == (16, 16, 2)
    assert quantizer.score_codebook is quantizer.encode_codebook
    for part in (quantizer.coarse, quantizer.encode_codebook):
        assert part.dtype == np.float32
        assert np.isfinite(part).all()


def test_the_same_seed_gives_the_same_quantizer(sample, quantizer):
    assert train_quantizer(sample, 32, 8, seed=1, threads=1).identity() == quantizer.identity()
    assert train_quantizer(sample, 32, 8, seed=2, threads=1).identity() != quantizer.identity()


@pytest.mark.parametrize(
    ("kind", "codes_only", "code_bytes"), pairs_of(["int8", "float16"], [False, True], [2, 8])
)
def test_rows_as_stored_train_the_quantizer_of_float32_rows(kind, codes_only, code_bytes):
    rows = vectors(6000)
    rounded = RoundedRows.of(rows / np.linalg.norm(rows, axis=1, keepdims=True), kind)
    stored = StoredBatch(rounded.values, rounded.scales)
    found = [
        measured(train_quantizer(rows, 300, code_bytes, 1, 1, codes_only=codes_only), rows, 9000, 2)
        for rows in (stored, stored[:])
    ]
    assert found[0].identity() == found[1].identity()
    assert found[0].candidate_rows == found[1].candidate_rows is not None


@pytest.mark.parametrize("kinds", [("int8", "int8"), ("float16", "int8"), ("float32", "float32")])
def test_a_sample_of_batches_as_stored_is_that_of_float32(kinds):
    rows = vectors(5000)
    parts = [
        RoundedRows.of(part, kind)[:2] if kind != "float32" else (part, None)
        for part, kind in zip((rows[:1700], rows[1700:]), kinds, strict=True)
    ]
    batches = [StoredBatch(*part) for part in parts]
    settings, lists = settings_of("int8"), Thresholds(nlist=4)
    stored, decoded = (
        train_on(each, 5000, settings, 1, lists) for each in (batches, [part[:] for part in batches])
    )
    assert stored.identity() == decoded.identity()


@pytest.mark.parametrize(("n_sub", "threads"), [(16, 3), (2, 5), (1, 2)])
def test_codes_do_not_depend_on_the_number_of_threads(sample, n_sub, threads):
    one, several = (extract_codebook(train_codes(sample, n_sub, 1, each)) for each in (1, threads))
    assert several.shape == (n_sub, 16, DIM // n_sub)
    np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize("n", [1, 5, 15])
def test_fewer_rows_than_words_of_a_codebook(sample, n):
    quantizer = train_quantizer(sample[:n], 4, DIM // 2, seed=1, threads=2)
    lists, codes = VectorCoder(quantizer, 1).code(sample[:n])
    np.testing.assert_allclose(decode_vectors(quantizer, lists, codes), sample[:n], atol=1e-4)


def test_large_seeds(sample):
    train_quantizer(sample[:1100], 4, 4, seed=(1 << 63) - 1, threads=1)


@pytest.mark.parametrize("code_bytes", [2, 8])
def test_codes_alone_of_vectors_of_length_1_find_more(sample, code_bytes):
    """Decoded vectors of residuals, scaled to length 1, have more of the nearest ten rows."""
    rows = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    nearest = np.argsort(-(rows[:200] @ rows.T), axis=1)[:, :10]

    def recall(quantizer):
        decoded = decode_vectors(quantizer, *VectorCoder(quantizer, 1).code(rows))
        if quantizer.rotation is not None:
            decoded = decoded @ quantizer.rotation
        found = np.argsort(-(rows[:200] @ decoded.T), axis=1)[:, :10]
        return np.mean([len(set(one) & set(other)) for one, other in zip(nearest, found, strict=True)]) / 10

    alone = train_quantizer(rows, 32, code_bytes, 1, 1, codes_only=True)
    plain = train_quantizer(rows, 32, code_bytes, 1, 1)
    assert (alone.by_residual, alone.unit_length) == (True, True)
    assert (plain.by_residual, plain.unit_length) == (False, False)
    assert recall(alone) > recall(plain) + 0.03


def test_numbers_of_8_bits_have_a_smaller_error_in_as_many_bytes(sample):
    rows = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    errors = []
    for nbits in (4, 8):
        made = train_quantizer(rows, 32, 4, 1, 2, codes_only=True, nbits=nbits)
        assert (made.nbits, made.code_bytes) == (nbits, 4)
        coder = VectorCoder(made, 2)
        lists, codes = coder.code(rows)
        assert codes.shape == (len(rows), 4)
        decoded = decode_vectors(made, lists, codes)
        errors.append(1 - (made.rotate(rows) * decoded).sum(axis=1).mean())
    assert errors[1] < 0.9 * errors[0]
    again = train_quantizer(rows, 32, 4, 1, 1, codes_only=True, nbits=8)
    assert again.identity() == made.identity()


@pytest.mark.parametrize(
    ("centroids", "n_rows", "nbits"), [("none", 4999, 4), ("none", 5000, 8), ("int8", 5000, 4)]
)
def test_codes_alone_of_many_rows_have_8_bits(centroids, n_rows, nbits):
    rows = vectors(n_rows)
    made = train_on([rows], n_rows, settings_of(centroids), 1, Thresholds(long_code_rows=5000, nlist=4))
    assert made.nbits == nbits


@pytest.mark.parametrize(("n_zeros", "is_scaled"), [(1, True), (40, True), (41, False), (4000, False)])
def test_a_few_rows_of_zeros_are_no_other_lengths(sample, n_zeros, is_scaled):
    rows = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    rows[:n_zeros] = 0
    made = train_quantizer(rows, 32, 8, 1, 1, codes_only=True)
    assert (made.by_residual, made.unit_length) == (is_scaled, is_scaled)


def test_codes_alone_of_vectors_of_other_lengths_are_of_the_vectors(sample):
    made = train_quantizer(sample, 32, 8, 1, 1, codes_only=True)
    assert (made.by_residual, made.unit_length) == (False, False)
    assert made.identity() == train_quantizer(sample, 32, 8, 1, 1).identity()


def test_codes_stand_for_their_vectors(sample, quantizer):
    """Codes are the nearest of 16 sub-vectors, and decode to vectors with an error below a tenth."""
    lists, codes = VectorCoder(quantizer, 1).code(sample)
    assert lists.dtype == np.int64
    assert codes.dtype == np.uint8
    assert codes.shape == (4000, 8)
    halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(4000, 16)
    decoded = quantizer.score_codebook[np.arange(16), halves].reshape(4000, DIM)
    parts = sample.reshape(4000, 16, 1, 2)
    nearest = ((parts - quantizer.encode_codebook) ** 2).sum(axis=3).min(axis=2).sum()
    error = ((decoded - sample) ** 2).sum()
    assert error == pytest.approx(nearest, rel=1e-4)
    assert error < 0.1 * (sample**2).sum()
    np.testing.assert_array_equal(lists, (sample @ quantizer.coarse.T).argmax(axis=1))


def test_a_code_does_not_depend_on_the_batch(sample, quantizer):
    coder = VectorCoder(quantizer, 2)
    lists, codes = coder.code(sample)
    for low in range(0, 4000, 611):
        one_list, one_code = coder.code(sample[low : low + 1])
        assert one_list[0] == lists[low]
        assert one_code[0].tolist() == codes[low].tolist()


@pytest.mark.parametrize("n", [16, 100, Thresholds().training_rows])
def test_small_samples_have_fewer_lists(n):
    trained = train_quantizer(vectors(n), 512, 4, seed=0, threads=2)
    assert trained.nlist == max(1, n // 16)


def test_equal_vectors(capfd):
    """Equal vectors are trained on without errors or output on the terminal."""
    same = np.tile(vectors(1), (Thresholds().training_rows, 1))
    trained = train_quantizer(same, 64, 8, seed=0, threads=1)
    assert np.isfinite(trained.coarse).all()
    assert np.isfinite(trained.encode_codebook).all()
    _, codes = VectorCoder(trained, 1).code(same)
    assert len(np.unique(codes, axis=0)) == 1
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_number_of_lists():
    sizes = [choose_nlist(n) for n in (0, 1, 10, 1_000, 100_000, 10_000_000, 1 << 32)]
    assert sizes == sorted(sizes)
    assert all(size & (size - 1) == 0 for size in sizes)
    assert sizes[0] == 1
    assert [choose_nlist(n) for n in (156_175, 1_558_039, 4_000_000, 10_000_000)] == [256, 1024, 4096, 4096]


@pytest.mark.parametrize("dim", [1, 384, 4096, 65536])
@pytest.mark.parametrize("n_rows", [1024, 40_000, 1 << 24, 1 << 32])
def test_training_rows_are_bounded(n_rows, dim):
    n = count_training_rows(n_rows, choose_nlist(n_rows), dim)
    assert 1000 <= n <= n_rows
    assert n * dim * 4 <= 256 << 20


@pytest.mark.parametrize("code_bytes", [0, 3, 255])
def test_codes_that_do_not_divide_the_vectors(code_bytes):
    with pytest.raises(InvalidSetting, match="code_bytes does not divide"):
        train_quantizer(np.ones((64, 32), np.float32), 2, code_bytes, 0, 1)


def test_lists_change_no_code() -> None:
    small = Thresholds(calibration_queries=64, list_rows=100)
    rows = np.random.default_rng(1).normal(0, 1, (500, DIM)).astype(np.float32)
    made = format_samples.quantizer(nlist=1, dim=24, n_sub=8, input_dim=DIM)
    made = replace(made, search_settings=(SearchSetting(10, 1, 7),))
    settings = settings_of("none")
    listed = train_lists(made, [rows[:300], rows[300:]], 500, settings, 1, small)
    assert listed.nlist > 1
    assert listed.search_settings == ()  # settings of other lists are dropped
    lists, codes = VectorCoder(listed, 1).code(rows)
    assert len(set(lists.tolist())) > 1
    np.testing.assert_array_equal(codes, VectorCoder(made, 1).code(rows)[1])
    assert train_lists(made, [rows[:99]], 99, settings, 1, small) is made
    residual = Quantizer(made.coarse, made.encode_codebook, made.score_codebook, made.rotation, by_residual=True)
    assert train_lists(residual, [rows], 500, settings, 1, small) is residual
