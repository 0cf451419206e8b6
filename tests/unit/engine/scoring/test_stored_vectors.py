"""Stored vectors are compared with float64, and codes with every layout of quantizer files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes.one_segment import (
    DIM,
    QUANTIZERS,
    candidates_of,
    random_documents,
    random_quantizer,
    segment_of,
)

from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.scoring.stored_vectors import StoredVectors, lengths_of, mean_share, unpack_codes
from quarry.formats.container.directory import Directory


def coded(vector, quantizer):
    """Return the list number and the decoded vector of one vector, computed step by step."""
    turned = vector if quantizer.rotation is None else quantizer.rotation.astype(np.float64) @ vector
    number = int(np.argmax(quantizer.coarse.astype(np.float64) @ turned))
    rest = turned - quantizer.coarse[number] if quantizer.by_residual else turned
    parts = []
    for part, (encode, score) in enumerate(zip(quantizer.encode_codebook, quantizer.score_codebook, strict=True)):
        width = encode.shape[1]
        code = int(((encode - rest[part * width : (part + 1) * width]) ** 2).sum(axis=1).argmin())
        parts.append(score[code])
    decoded = np.concatenate(parts).astype(np.float64)
    if quantizer.by_residual:
        decoded += quantizer.coarse[number]
    if quantizer.unit_length:
        decoded /= np.linalg.norm(decoded)
    return decoded if quantizer.rotation is None else decoded @ quantizer.rotation.astype(np.float64)


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.5 / 127), ("float16", 2**-11)])
def test_stored_vectors_are_near_the_given_ones(directory, kind, error):
    generator = np.random.default_rng(1)
    documents = random_documents(generator)
    given = np.concatenate(documents)
    stored = StoredVectors(segment_of(directory, documents, kind))
    rows = np.arange(len(given))
    found = stored.vectors(rows)
    assert found.dtype == np.float32
    assert (np.abs(found - given) <= error * 1.001 * np.abs(given).max(axis=1, keepdims=True)).all()
    query = generator.standard_normal(DIM).astype(np.float32)
    np.testing.assert_allclose(stored.scores(query, rows), found.astype(np.float64) @ query, atol=2e-5)


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_rows_in_any_order(directory, kind):
    generator = np.random.default_rng(2)
    stored = StoredVectors(segment_of(directory, random_documents(generator), kind))
    query = generator.standard_normal(DIM).astype(np.float32)
    rows = generator.integers(0, 60, 500)
    everything = stored.scores(query, np.arange(60))
    np.testing.assert_allclose(stored.scores(query, rows), everything[rows], atol=2e-6)
    assert stored.vectors(rows).tolist() == stored.vectors(np.arange(60))[rows].tolist()
    assert stored.scores(query, rows[:0]).shape == (0,)
    assert stored.vectors(rows[:0]).shape == (0, DIM)


@pytest.mark.parametrize(
    ("codes", "kind", "turned", "apart"),
    pairs_of(["8x4", "4x4", "8x8", "1x8"], QUANTIZERS, ["plain", "rotated"], ["one codebook", "two codebooks"]),
)
class TestCodes:
    @pytest.fixture
    def case(self, directory, codes, kind, turned, apart):
        n_sub, nbits = map(int, codes.split("x"))
        by_residual, unit_length = QUANTIZERS[kind]
        generator = np.random.default_rng(n_sub * nbits)
        documents = random_documents(generator)
        options = (by_residual, turned == "rotated", apart == "two codebooks", unit_length)
        quantizer = random_quantizer(generator, n_sub, nbits, *options)
        segment = segment_of(directory, documents, quantizer=quantizer, keep_centroids=False)
        # codes are computed from the int8 vectors in temporary files
        plain = StoredVectors(segment_of(directory, documents))
        vectors = plain.vectors(np.arange(sum(map(len, documents)))).astype(np.float64)
        return segment, vectors, generator

    def test_decoded_and_scored(self, case):
        segment, vectors, generator = case
        expected = np.stack([coded(vector, segment.quantizer) for vector in vectors])
        stored = StoredVectors(segment)
        rows = generator.permutation(len(expected))
        np.testing.assert_allclose(stored.vectors(rows), expected[rows], atol=2e-5)
        query = generator.standard_normal(DIM).astype(np.float32)
        np.testing.assert_allclose(stored.scores(query, rows), (expected @ query)[rows], atol=5e-5)
        assert stored.scores(query, rows[:0]).shape == (0,)
        assert stored.vectors(rows[:0]).shape == (0, DIM)

    def test_scores_are_the_same_whichever_rows_were_scored_before(self, case):
        """Lengths of decoded vectors are kept from one call to the next."""
        segment, vectors, generator = case
        query = generator.standard_normal(DIM).astype(np.float32)
        rows = generator.permutation(len(vectors))
        expected = StoredVectors(segment).scores(query, rows)
        stored = StoredVectors(segment)
        some = rows[: len(rows) // 3]
        twice = np.concatenate([some, some])
        assert stored.scores(query, twice).tolist() == expected[: len(some)].tolist() * 2
        assert stored.scores(query, rows).tolist() == expected.tolist()

    def test_faiss_finds_what_scores_best(self, case):
        """The document with the best vector before scaling is among the ten candidates that FAISS finds."""
        segment, vectors, generator = case
        in_first_stage = replace(segment.quantizer, unit_length=False)
        expected = np.stack([coded(vector, in_first_stage) for vector in vectors])
        queries = generator.standard_normal((20, DIM)).astype(np.float32)
        best = np.maximum.reduceat(queries @ expected.T, segment.reader.centroids.offsets[:-1], axis=1)
        found = candidates_of(segment, "cpu_faiss", queries, 10)
        hits = [int(scores.argmax()) in each.docs for each, scores in zip(found, best, strict=True)]
        assert all(hits)


@pytest.mark.parametrize("dim", [24, 4096, 8256, 12288])
def test_a_length_does_not_depend_on_the_rows_it_is_computed_with(dim):
    vectors = np.random.default_rng(9).standard_normal((20, dim)).astype(np.float32)
    expected = np.linalg.norm(vectors.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths_of(vectors), expected, rtol=2e-6)
    alone = np.concatenate([lengths_of(vectors[low : low + 1]) for low in range(len(vectors))])
    assert alone.tolist() == lengths_of(vectors).tolist()


def test_decoded_vectors_of_length_0_keep_their_length(directory):
    generator = np.random.default_rng(8)
    random = random_quantizer(generator, 8, 8, False, False, False, True)
    quantizer = replace(random, score_codebook=np.zeros_like(random.score_codebook))
    documents = random_documents(generator)
    stored = StoredVectors(segment_of(directory, documents, quantizer=quantizer, keep_centroids=False))
    query, rows = generator.standard_normal(DIM).astype(np.float32), np.arange(sum(map(len, documents)))
    assert not stored.vectors(rows).any()
    assert not stored.scores(query, rows).any()


def test_unpacking():
    packed = np.array([[0x21, 0xF0]], np.uint8)
    assert unpack_codes(packed, 4).tolist() == [[1, 2, 0, 15]]
    assert unpack_codes(packed, 8).tolist() == [[0x21, 0xF0]]
    assert unpack_codes(packed[:0], 4).shape == (0, 4)


class TestShareOfTheMean:
    def segment(self, directory, unit_length=True, keep_centroids=False, fit=()):
        generator = np.random.default_rng(3)
        quantizer = random_quantizer(generator, 8, 4, True, False, False, unit_length)
        if fit is None or fit:
            quantizer = replace(quantizer, fit=fit and replace(quantizer.fit, code_error=fit[0]))
        return segment_of(
            directory, random_documents(generator), quantizer=quantizer, keep_centroids=keep_centroids
        )

    @pytest.mark.parametrize(("error", "share"), [(0.0, 0.0), (0.25, 0.1), (1.0, 0.4), (7.0, 0.4)])
    def test_it_grows_with_the_quantization_error(self, directory, error, share):
        assert mean_share(self.segment(directory, fit=(error,))) == pytest.approx(share)

    @pytest.mark.parametrize("kept", [{"unit_length": False}, {"keep_centroids": True}, {"fit": None}], ids=repr)
    def test_full_vectors_other_lengths_and_unknown_errors_have_none(self, directory, kept):
        assert mean_share(self.segment(directory, **kept)) == 0

    def test_a_segment_without_a_quantizer_has_none(self, directory):
        assert mean_share(segment_of(directory, random_documents(np.random.default_rng(4)))) == 0

    def test_final_scores_have_it(self, directory):
        segment = self.segment(directory)
        share, offsets = mean_share(segment), segment.reader.centroids.offsets
        assert share == pytest.approx(0.24)
        query = np.random.default_rng(5).standard_normal(DIM).astype(np.float32)
        scores = StoredVectors(segment).scores(query, np.arange(offsets[-1]))
        parts = np.split(scores.astype(np.float64), offsets[1:-1])
        expected = [(1 - share) * part.max() + share * part.mean() for part in parts]
        found = aggregate(scores, offsets, None, share)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        alone = np.flatnonzero(np.diff(offsets) == 1)
        assert len(alone) > 0
        assert found[alone].tolist() == [np.float32(parts[doc][0]) for doc in alone]


@pytest.mark.parametrize("factor", [1e-3, 1.0, 30.0])
def test_no_decoded_vector_of_unit_length_is_longer_than_the_largest_norm(directory, factor):
    generator = np.random.default_rng(6)
    documents = [factor * rows for rows in random_documents(generator)]
    quantizer = random_quantizer(generator, 8, 4, True, False, False, True)
    vectors = StoredVectors(segment_of(directory, documents, quantizer=quantizer, keep_centroids=False))
    decoded = vectors.vectors(np.arange(sum(map(len, documents))))
    assert np.linalg.norm(decoded, axis=1).max() <= vectors.largest_norm * (1 + 1e-6)
