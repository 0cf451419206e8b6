"""Reports of a quantizer that no longer fits, and the effect of retraining."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.index.statistics import FINE, REBUILD, RETRAIN, advise
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.quantizer import QuantizationError, combine_errors, list_imbalance

DIM = 32
ENCODER = WordEncoder(dim=DIM)
N = 6000
SMALL = Thresholds(calibration_queries=64, list_rows=2000)


def of_topics(seed, n):
    """Return vectors around 60 topics of a subspace."""
    generator = np.random.default_rng(seed)
    basis = generator.standard_normal((10, DIM))
    centres = generator.standard_normal((60, 10))
    inner = centres[generator.integers(0, 60, n)] + 0.3 * generator.standard_normal((n, 10))
    vectors = inner @ basis + 0.05 * generator.standard_normal((n, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def add(path, vectors, first):
    with Engine.open(path, encoder=ENCODER, writable=True, thresholds=SMALL) as index:
        index.add({"id": str(n), "text": "text", "vectors": [each]} for n, each in enumerate(vectors, first))
        index.commit()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift") / "ix"
    engine.build([], folder, encoder=ENCODER, representation=KMeans(1), code_bytes=8)
    add(folder, of_topics(1, N), 0)
    return folder


@pytest.fixture
def path(built, tmp_path):
    return shutil.copytree(built, tmp_path / "ix")


def test_a_quantizer_that_no_segment_uses(path):
    directory = Directory(path)
    snapshot = Snapshot(directory)
    snapshot.manifest.next((), snapshot.manifest.quantizers).commit(directory)
    snapshot.close()
    with Engine.open(path) as index:
        assert index.stats()["drift"] is None


def test_nothing_to_say_of_a_small_index(tmp_path):
    engine.build(["some text"], tmp_path / "ix", encoder=ENCODER)
    with Engine.open(tmp_path / "ix") as index:
        assert index.stats()["drift"] is None


def test_more_of_the_same(path):
    with Engine.open(path) as index:
        assert index.stats()["drift"]["advice"] == FINE
    add(path, of_topics(1, 2 * N)[N:], N)
    with Engine.open(path) as index:
        drift = index.stats()["drift"]
    assert drift["advice"] == FINE
    assert drift["growth"] == 2.0
    for name in ("coarse_error_ratio", "code_error_ratio", "imbalance_ratio"):
        assert 0.8 < drift[name] < 1.2


def test_new_topics(path):
    old, new = of_topics(1, N), of_topics(2, N)
    add(path, new, N)
    everything, queries = np.concatenate([old, new]), of_topics(2, N + 100)[N:]
    nearest = np.argsort(-(queries @ everything.T), axis=1)[:, :10]

    def recall():
        found = index.search_vectors(queries, k=10)
        return np.mean(
            [len({int(hit.id) for hit in hits} & set(true)) for hits, true in zip(found, nearest, strict=True)]
        )

    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL) as index:
        before, drift = recall(), index.stats()["drift"]
        assert drift["advice"].startswith(f"{RETRAIN}: coarse_error_ratio ")
        assert drift["coarse_error_ratio"] > 2
        index.merge()  # keeps the quantizer and thus its errors
        merged = index.stats()["drift"]
        assert index.stats()["n_segments"] == 1
        assert merged["coarse_error_ratio"] == pytest.approx(drift["coarse_error_ratio"])
        assert merged["code_error_ratio"] == pytest.approx(drift["code_error_ratio"])
        index.merge(retrain=True)
        assert index.stats()["drift"]["advice"] == FINE
        assert index.stats()["drift"]["growth"] == 1.0
        assert recall() > max(before + 0.3, 9.0)
        assert len(index) == 2 * N
        index.verify()


def test_codes_alone_are_not_trained_on(tmp_path):
    path = tmp_path / "ix"
    engine.build([], path, encoder=ENCODER, representation=KMeans(1), code_bytes=8, centroids="none")
    add(path, of_topics(1, N), 0)
    add(path, of_topics(2, N), N)
    with Engine.open(path) as index:
        assert index.stats()["drift"]["advice"].startswith(f"{REBUILD}: coarse_error_ratio ")


def test_reported_errors_are_the_computed_ones(path):
    snapshot = Snapshot(Directory(path))
    (segment,) = snapshot.segments
    quantizer, lists, fit = segment.quantizer, segment.reader.lists, segment.reader.fit
    vectors = next(iter(segment.reader.centroids.batches(None)))
    coarse = quantizer.coarse[np.argmax(vectors @ quantizer.coarse.T, axis=1)]
    snapshot.close()
    assert fit.n_rows == N
    assert fit.coarse_error == pytest.approx(((vectors - coarse) ** 2).sum(axis=1).mean(), rel=0.05)
    sizes = np.diff(lists.offsets)
    assert fit.imbalance == pytest.approx(len(sizes) * np.mean((sizes / N) ** 2) * len(sizes))
    assert quantizer.fit.n_rows == N
    assert quantizer.fit.coarse_error == pytest.approx(fit.coarse_error, rel=0.1)
    assert quantizer.fit.code_error == pytest.approx(fit.code_error, rel=0.1)


def test_fits_together():
    fits = [QuantizationError(n_rows=9, coarse_error=1.0, code_error=2.0, imbalance=3.0)] * 2
    fits[1] = dataclasses.replace(fits[1], coarse_error=4.0)
    joined = combine_errors(fits, [10, 20], 1.5)
    assert joined == QuantizationError(n_rows=30, coarse_error=3.0, code_error=2.0, imbalance=1.5)
    assert combine_errors([*fits, None], [1, 1, 1], 1.0) is None
    assert list_imbalance(np.array([5, 5])) == 1.0
    assert list_imbalance(np.array([10, 0])) == 2.0


def test_advice_names_every_reason():
    ratios = {"coarse_error_ratio": 1.5, "code_error_ratio": 1.0, "imbalance_ratio": 2.1, "growth": 4.0}
    why = "coarse_error_ratio 1.50 is above 1.4, imbalance_ratio 2.10 is above 2.0"
    assert advise(ratios, can_retrain=True) == f"{RETRAIN}: {why}"
    assert advise(ratios, can_retrain=False) == f"{REBUILD}: {why}"
