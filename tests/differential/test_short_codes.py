"""Indexes of short codes, whose vectors are rotated into fewer dimensions first, are compared with numpy."""

from __future__ import annotations

import os
import shutil
from functools import cache

import numpy as np
import pytest
from support.indexes.decoded_codes import decoded_vectors, share_of_mean
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.index.statistics import FINE, RETRAIN
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

DIM, N = 48, 3000
ENCODER = WordEncoder(dim=DIM)
THRESHOLDS = {
    4: Thresholds(calibration_queries=64, list_rows=1000),
    8: Thresholds(calibration_queries=64, list_rows=1000, long_code_rows=0),  # of codes alone
}
SMALL = THRESHOLDS[4]
BACKENDS = [("exact", {}), ("cpu_faiss", {}), ("gpu", {"device": os.environ.get("QUARRY_TEST_DEVICE", "cpu")})]


def of_topics(seed, n, basis_seed=0):
    """Return vectors around topics of a subspace."""
    basis = np.random.default_rng(basis_seed).standard_normal((8, DIM))
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((60, 8))
    inner = centres[generator.integers(0, 60, n)] + 0.4 * generator.standard_normal((n, 8))
    vectors = inner @ basis + 0.2 * generator.standard_normal((n, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def add(path, vectors, first=0, thresholds=SMALL):
    """Add documents of two vectors each."""
    pairs = enumerate(vectors.reshape(-1, 2, DIM), first)
    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=thresholds) as index:
        index.add({"id": str(number), "text": "text", "vectors": pair} for number, pair in pairs)
        index.commit()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that builds an index of two segments once, encoded with the quantizer of the first."""

    @cache
    def index(centroids, nbits):
        path = tmp_path_factory.mktemp("codes") / "index"
        engine.build([], path, encoder=ENCODER, representation=KMeans(1), code_bytes=4, centroids=centroids)
        add(path, of_topics(1, N), thresholds=THRESHOLDS[nbits])
        add(path, of_topics(2, N), N // 2, THRESHOLDS[nbits])
        snapshot = Snapshot(Directory(path))
        assert {segment.quantizer.nbits for segment in snapshot.segments} == {nbits}
        snapshot.close()
        return path

    return index


@pytest.fixture
def made(built, tmp_path):
    """Return a function that copies such an index."""
    return lambda centroids, nbits=4: shutil.copytree(built(centroids, nbits), tmp_path / "index")


def oracle(path):
    """Return the stored vectors of each document, (2, DIM) float64, and the share of the mean, as in SPEC.md."""
    snapshot, documents, shares = Snapshot(Directory(path)), {}, set()
    for segment in snapshot.segments:
        reader, quantizer = segment.reader, segment.quantizer
        shares.add(share_of_mean(segment))
        assert quantizer.rotation.shape[0] < DIM
        if reader.centroids.kind == "none":
            assert (quantizer.by_residual, quantizer.unit_length) == (True, True)
            vectors = decoded_vectors(segment)
        else:
            values, scales = reader.centroids.stored(np.arange(reader.n_rows))
            vectors = values.astype(np.float64) * scales[:, None]
        for doc, pair in enumerate(vectors.reshape(-1, 2, DIM)):
            documents[reader.ids[doc]] = pair
    snapshot.close()
    (share,) = shares
    return documents, share


def check(path, backend, device):
    """Check that every hit has the score of its stored vectors, and that nearly all of the best are found."""
    (documents, share), queries = oracle(path), of_topics(3, 40)
    ids, pairs = list(documents), np.stack(list(documents.values()))
    with Engine.open(path, backend=backend, **device) as index:
        answers = index.search_vectors(queries, k=10)
    n_found = 0
    for query, hits in zip(queries, answers, strict=True):
        scores = (1 - share) * (pairs @ query).max(axis=1) + share * (pairs @ query).mean(axis=1)
        own = dict(zip(ids, scores.tolist(), strict=True))
        np.testing.assert_allclose([hit.score for hit in hits], [own[hit.id] for hit in hits], atol=1e-5)
        tenth = np.sort(scores)[-10]
        n_found += sum(own[hit.id] >= tenth - 1e-6 for hit in hits)
    assert n_found >= (400 if backend == "exact" else 392)


@pytest.mark.parametrize(("backend", "device"), BACKENDS)
@pytest.mark.parametrize(("centroids", "nbits"), [("none", 4), ("none", 8), ("int8", 4)])
def test_scores_are_those_of_what_is_stored(made, backend, device, centroids, nbits):
    if backend == "gpu":
        pytest.importorskip("torch", reason="backend gpu needs torch")
    path = made(centroids, nbits)
    check(path, backend, device)
    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL) as index:
        assert index.stats()["n_segments"] == 2
        index.merge()
        assert index.stats()["n_segments"] == 1
        index.verify()
    check(path, backend, device)


def test_a_retraining_turns_to_where_vectors_vary_now(made):
    """Drift reports new topics outside the kept dimensions, and retraining turns the dimensions towards them."""
    path = made("int8")
    with Engine.open(path) as index:
        assert index.stats()["drift"]["advice"] == FINE
    add(path, of_topics(4, 2 * N, basis_seed=1), N)
    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL) as index:
        drift = index.stats()["drift"]
        assert drift["advice"].startswith(RETRAIN)
        assert "code_error_ratio" in drift["advice"]
        index.merge(retrain=True)
        assert index.stats()["drift"]["advice"] == FINE
    check(path, "cpu_faiss", {})
