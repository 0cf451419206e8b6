"""Batches of codes are compared with the nearest sub-vectors in float64."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.quantization.coder import ProductEncoder, VectorCoder
from quarry.engine.quantization.training import train_quantizer
from quarry.formats.errors import InvalidSetting


def numbers(codes):
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)


def distances(codebook, vectors):
    """Return squared distances of the parts of vectors to all sub-vectors: (n, n_sub, 16) float64."""
    parts = vectors.reshape(len(vectors), len(codebook), 1, -1).astype(np.float64)
    return ((parts - codebook) ** 2).sum(axis=3)


@pytest.mark.parametrize("scale", [1e-3, 1, 3e4])
@pytest.mark.parametrize(("n_sub", "dsub"), [(2, 1), (6, 3), (96, 4), (16, 24), (768, 1)])
def test_nearest_sub_vectors(n_sub, dsub, scale):
    generator = np.random.default_rng(n_sub)
    codebook = (scale * generator.standard_normal((n_sub, 16, dsub))).astype(np.float32)
    vectors = (scale * generator.standard_normal((301, n_sub * dsub))).astype(np.float32)
    codes = ProductEncoder(codebook).encode(vectors)
    assert (codes.dtype, codes.shape) == (np.uint8, (301, n_sub // 2))
    away = distances(codebook, vectors)
    chosen = np.take_along_axis(away, numbers(codes)[..., None].astype(np.int64), axis=2)[..., 0]
    lengths = (vectors.reshape(301, n_sub, dsub).astype(np.float64) ** 2).sum(axis=2) + (codebook**2).sum(2).max()
    assert (chosen - away.min(axis=2) <= 1e-5 * lengths).all()
    assert (numbers(codes) == away.argmin(axis=2)).mean() > 0.99  # two codewords may be nearly equal


def test_no_vectors():
    codebook = np.ones((4, 16, 2), np.float32)
    assert ProductEncoder(codebook).encode(np.empty((0, 8), np.float32)).shape == (0, 2)


def test_equal_and_zero_vectors_have_one_code():
    codebook = np.zeros((4, 16, 2), np.float32)
    codes = ProductEncoder(codebook).encode(np.zeros((700, 8), np.float32))
    assert len(np.unique(codes, axis=0)) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_are_coded_in_their_order(threads):
    vectors = np.random.default_rng(0).standard_normal((3000, 32)).astype(np.float32)
    quantizer = train_quantizer(vectors, 16, 4, seed=0, threads=1)
    one, several = VectorCoder(quantizer, 1), VectorCoder(quantizer, threads)
    expected = one.code(vectors)
    found = []
    several.code_all((vectors[low : low + 1600 - low % 7] for low in (0, 1600)), lambda *each: found.append(each))
    for whole, parts in zip(expected, zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(parts))
    sizes = np.bincount(expected[0], minlength=16)
    assert several.fit(sizes).code_error == pytest.approx(one.fit(sizes).code_error, rel=1e-5)


@pytest.mark.parametrize("n", [0, 1, 1025, 2991])
def test_the_parts_that_threads_encode_join_seamlessly(n):
    vectors = np.random.default_rng(0).standard_normal((3000, 32)).astype(np.float32)
    quantizer = train_quantizer(vectors, 16, 4, seed=0, threads=1)
    one, several = VectorCoder(quantizer, 1), VectorCoder(quantizer, 3)
    for expected, found in zip(one.code(vectors[:n]), several.code(vectors[:n]), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    sizes = np.bincount(one.code(vectors[:n])[0], minlength=16)
    several.code(vectors[:n])  # counted twice, as by the other
    assert several.fit(sizes).code_error == pytest.approx(one.fit(sizes).code_error, rel=1e-5)


def test_an_error_while_reading_comes_after_the_batches_before_it():
    vectors = np.random.default_rng(0).standard_normal((1100, 32)).astype(np.float32)
    coder, found = VectorCoder(train_quantizer(vectors, 4, 4, seed=0, threads=1), 2), []

    def batches():
        yield vectors[:500]
        raise InvalidSetting("unreadable")

    with pytest.raises(InvalidSetting, match="unreadable"):
        coder.code_all(batches(), lambda lists, _: found.append(len(lists)))
    assert found == [500]
