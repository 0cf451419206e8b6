"""Degenerate collections of vectors, with every backend and storage type.

Documents with NaN or infinities are refused with their ids. All others can be searched, and lists and codes are
trained on them: outliers of any length, thousands of identical vectors, zero vectors, vectors in a plane,
subnormal numbers. Collections are small in normal runs and have at least 22,000 vectors in the full torture tests.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from support.faults.torture import SHARE, figure
from support.indexes.decoded_codes import best_and_mean, decoded_vectors, share_of_mean
from support.indexes.word_encoder import TableEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.documents.document import Document
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidDocument
from quarry.formats.snapshot import Snapshot

DIM = 16
N_ROWS = figure(1300, 44_000)  # two per document, possibly equal: at least half of them are stored
LARGEST = 65_000.0  # just below the largest float16
STORED = ("int8", "float16", "none")
COMBINATIONS = [
    (backend, stored)
    for backend in ("exact", "scan", "cpu_faiss", "hnsw", "gpu")
    for stored in STORED
    if (backend, stored) != ("scan", "none")  # a scan needs stored centroids
]


def sphere(generator, n):
    vectors = generator.standard_normal((n, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def outliers(generator):
    """Return vectors of which 1 % are up to 65,000 times as long, or up to 1e20 times as short, as the others."""
    vectors = sphere(generator, N_ROWS)
    vectors[::100] *= np.float32(10) ** generator.uniform(-20, np.log10(LARGEST), len(vectors[::100]))[
        :, None
    ].astype(np.float32)
    return vectors


def clusters(generator):
    """Return copies of thirty vectors, half of them of one, mixed with a tenth of other vectors."""
    kinds = sphere(generator, 30)
    number = np.where(generator.random(N_ROWS) < 0.5, 0, generator.integers(0, 30, N_ROWS))
    vectors = kinds[number]
    vectors[::10] = sphere(generator, len(vectors[::10]))
    return vectors


def one_vector(generator):
    return np.tile(sphere(generator, 1), (N_ROWS, 1))


def zeros(generator):
    """Return vectors of which nine in ten are zero."""
    vectors = sphere(generator, N_ROWS)
    vectors[np.arange(N_ROWS) % 10 > 0] = 0
    return vectors


def plane(generator):
    """Return vectors in a plane."""
    return (generator.standard_normal((N_ROWS, 2)) @ sphere(generator, 2)).astype(np.float32)


def tiny(generator):
    """Return subnormal vectors, whose products all underflow to zero."""
    return sphere(generator, N_ROWS) * np.float32(1e-40)


COLLECTIONS = (outliers, clusters, one_vector, zeros, plane, tiny)
N_LIKE_DOCUMENTS = 6  # of eleven queries, those that are like documents
NOT_FINITE = (np.nan, np.inf, -np.inf, 1e30)


def table_encoder(vectors, generator):
    """Return an encoder of these and of invalid vectors, valid documents of two vectors, and invalid documents."""
    bad = sphere(generator, 8)
    bad[np.arange(8), generator.integers(0, DIM, 8)] = NOT_FINITE * 2
    encoder = TableEncoder(np.concatenate([vectors, bad]))
    starts = np.arange(0, len(vectors) - 1, 2)
    good = [{"id": f"good {row}", "text": f"{row} {row + 1}"} for row in starts.tolist()]
    worse = [{"id": f"bad {row}", "text": f"{row % 50} {len(vectors) + row}"} for row in range(8)]
    return encoder, good, worse


class Oracle:
    """Scores documents by their stored vectors, in float64."""

    def __init__(self, path):
        snapshot = Snapshot(Directory(path))
        self.ids, self.vectors, self.starts, shares = [], [], [0], set()
        for segment in snapshot.segments:
            table = segment.reader.centroids
            self.ids += [segment.reader.ids[doc] for doc in range(segment.reader.n_docs)]
            self.vectors.append(stored_vectors(segment))
            shares.add(share_of_mean(segment))
            self.starts += (self.starts[-1] + table.offsets[1:]).tolist()
        snapshot.close()
        (self.share,) = shares
        self.places = {name: place for place, name in enumerate(self.ids)}
        self.vectors = np.concatenate(self.vectors)

    def scores(self, query):
        scores = self.vectors @ query.astype(np.float64)
        return best_and_mean(scores, self.starts, self.share)


def stored_vectors(segment):
    table = segment.reader.centroids
    if table.kind != "none":
        values, scales = table.stored_slice(0, table.n_rows)
        return values.astype(np.float64) * scales.astype(np.float64)[:, None]
    return decoded_vectors(segment)


THRESHOLDS = Thresholds(calibration_queries=64, list_rows=N_ROWS // 2, graph_rows=100, graph_step_rows=1)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """Return a function (collection, stored) -> (path, oracle, queries) that builds each index once."""
    made = {}

    def index(collection, stored):
        if (collection, stored) not in made:
            made[collection, stored] = built(tmp_path_factory.mktemp(collection.__name__), collection, stored)
        return made[collection, stored]

    return index


def built(path, collection, stored):
    generator = np.random.default_rng(4)
    vectors = collection(generator)
    encoder, good, bad = table_encoder(vectors, generator)
    docs = [*good[:100], *bad[:4], *good[100:], *bad[4:]]
    report = engine.build(
        docs,
        path,
        encoder=encoder,
        representation=KMeans(4),
        centroids=stored,
        code_bytes=4,
        skip_invalid=True,
        thresholds=THRESHOLDS,
    )
    assert (report.n_documents, report.n_skipped) == (len(good), len(bad))
    assert all(f"bad {row}" in said for row, said in enumerate(report.skipped))
    rows = generator.integers(0, len(vectors), N_LIKE_DOCUMENTS)
    queries = np.concatenate([vectors[rows], sphere(generator, 4), np.zeros((1, DIM), np.float32)])
    return path, Oracle(path), queries


def is_approximate(backend, stored):
    return backend in ("cpu_faiss", "hnsw") or (backend == "gpu" and stored == "none")


# Each collection with each backend and each type of vectors, and with all pairs of them in torture tests.
FOUND = [
    pytest.param(collection, backend, stored, id=f"{collection.__name__}-{backend}-{stored}")
    for first, collection in enumerate(COLLECTIONS)
    for second, (backend, stored) in enumerate(COMBINATIONS)
    if SHARE or (first + second) % 5 == 0
]


@pytest.mark.parametrize(("collection", "backend", "stored"), FOUND)
def test_found_documents_are_correct(indexes, collection, stored, backend, torture):
    """Searches find k distinct documents with their true scores, and the best of all if the backend is exact."""
    if backend == "gpu" and find_spec("torch") is None:
        pytest.skip("backend gpu needs torch")
    path, oracle, queries = indexes(collection, stored)
    device = os.environ.get("QUARRY_TEST_DEVICE", "cpu") if backend == "gpu" else None
    with Engine.open(path, backend=backend, device=device, thresholds=THRESHOLDS) as index:
        assert index.verify().n_documents == len(oracle.ids)
        for k in (1, 10, 100):
            for query, hits in zip(queries, index.search_vectors(queries, k=k), strict=True):
                check(hits, oracle.scores(query), oracle, k, is_approximate(backend, stored))
                torture.add(searches=1)


MERGED = [
    pytest.param(collection, stored, id=f"{collection.__name__}-{stored}")
    for collection, stored in (
        product(COLLECTIONS, STORED) if SHARE else zip((outliers, clusters, one_vector), STORED, strict=True)
    )
]


@pytest.mark.parametrize(("collection", "stored"), MERGED)
def test_a_merge_trains_on_them_too(tmp_path, collection, stored, torture):
    """A merge after additions and deletions works, and retrains the quantizer if vectors are stored."""
    generator = np.random.default_rng(4)
    others, vectors = sphere(generator, 40), collection(generator)
    encoder, docs, bad = table_encoder(np.concatenate([others, vectors]), generator)
    settings = {"representation": KMeans(4), "centroids": stored, "code_bytes": 4}
    engine.build(docs[:20], tmp_path, encoder=encoder, thresholds=THRESHOLDS, **settings)
    with Engine.open(tmp_path, encoder=encoder, writable=True, thresholds=THRESHOLDS) as index:
        assert index.add(docs[20:]) == len(docs) - 20
        with pytest.raises(InvalidDocument, match="bad 0"):
            index.add(bad)
        index.commit()
        gone = [doc["id"] for doc in docs[::7]]
        assert index.delete(gone) == len(gone)
        index.commit()
        index.merge(retrain=stored != "none")
        assert index.verify().n_documents == len(docs) - len(gone)
    oracle, queries = Oracle(tmp_path), np.concatenate([vectors[:4], sphere(generator, 2)])
    for backend in ("exact", "cpu_faiss"):
        with Engine.open(tmp_path, backend=backend, thresholds=THRESHOLDS) as index:
            assert index.stats()["n_segments"] == 1
            for query, hits in zip(queries, index.search_vectors(queries, k=10), strict=True):
                check(hits, oracle.scores(query), oracle, 10, is_approximate(backend, stored))
                torture.add(searches=1)


def check(hits, scores, oracle, k, approximate):
    places = [oracle.places[hit.id] for hit in hits]
    assert len(places) == len(set(places)) == min(k, len(scores))
    found = np.array([hit.score for hit in hits])
    tolerance = 2e-6 * max(np.abs(scores).max(), 1e-30)
    assert np.isfinite(found).all()
    assert (np.diff(found) <= 0).all()
    np.testing.assert_allclose(found, scores[places], atol=tolerance)
    if not approximate:
        assert np.delete(scores, places).max(initial=-np.inf) <= found[-1] + tolerance


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("collection", [clusters, one_vector, zeros, plane], ids=lambda each: each.__name__)
def test_the_default_finds_what_is_as_good_as_the_best(indexes, collection, stored):
    """Default searches by codes find at least 90 % of the best; any of several tied documents counts as found."""
    path, oracle, queries = indexes(collection, stored)
    queries = queries[:N_LIKE_DOCUMENTS]
    shares = []
    with Engine.open(path, backend="cpu_faiss") as index:
        for query, hits in zip(queries, index.search_vectors(queries, k=10), strict=True):
            scores = oracle.scores(query)
            least = np.sort(scores)[-10] - 1e-5 * np.abs(scores).max()
            shares.append(np.mean([hit.score >= least for hit in hits]))
    assert np.mean(shares) >= 0.9


@pytest.mark.parametrize("collection", [one_vector, tiny], ids=lambda each: each.__name__)
def test_degenerate_collections_have_no_measurements(indexes, collection):
    snapshot = Snapshot(Directory(indexes(collection, "int8")[0]))
    quantizer = snapshot.segments[0].quantizer
    assert quantizer is not None
    assert (quantizer.search_settings, quantizer.candidate_rows, quantizer.probe_recall) == ((), None, None)
    snapshot.close()


@pytest.mark.parametrize("number", NOT_FINITE)
def test_a_document_that_is_not_finite_is_refused_by_name(tmp_path, number):
    vectors = sphere(np.random.default_rng(0), 20)
    vectors[13, 5] = number
    encoder = TableEncoder(vectors)
    docs = [Document(f"id {row}", str(row)) for row in range(20)]
    with pytest.raises(InvalidDocument, match="id 13"):
        engine.build(docs, tmp_path / "index", encoder=encoder)
    assert not (tmp_path / "index").exists()
    engine.build(docs[:13], tmp_path / "index", encoder=encoder)
    with Engine.open(tmp_path / "index", encoder=encoder, writable=True) as index:
        with pytest.raises(InvalidDocument, match="id 13"):
            index.add(docs[13:])
        index.add(docs[14:])
        index.commit()
        assert len(index) == 19
        assert "id 13" not in index
