"""The contract of backends: each finds the results of the oracle below."""

from __future__ import annotations

import os
import shutil
import weakref
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
import pytest
from support.indexes.decoded_codes import best_and_mean, decoded_vectors, share_of_mean
from support.indexes.inside import view_of
from support.indexes.small_index import allowed_docs, searcher_of
from support.indexes.word_encoder import TableEncoder, table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.backends.protocol import Resources, SearchParameters
from quarry.engine.backends.registry import BACKENDS, Adapter, open_backend
from quarry.engine.gpu.device import Device
from quarry.engine.options import SearchOptions
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, InvalidQuery, InvalidSetting
from quarry.formats.snapshot import Snapshot

DIM = 32
N_DOCS = 600  # in the first segment; the second has 300, the third 400
EVERYTHING = 1 << 20  # candidates or nprobe that include all

SMALL = Thresholds(calibration_queries=64, list_rows=1700, graph_rows=100, graph_step_rows=1)
open_index, build = partial(Engine.open, thresholds=SMALL), partial(engine.build, thresholds=SMALL)

LIBRARIES = {"gpu": "torch"}  # a backend is tested only if its library is installed
DEVICES = {"gpu": os.environ.get("QUARRY_TEST_DEVICE", "cpu")}  # use cuda on a machine with a GPU
COMBINATIONS = [
    ("exact", "int8"),
    ("exact", "float16"),
    ("exact", "none"),
    ("scan", "int8"),
    ("scan", "float16"),
    ("cpu_faiss", "int8"),
    ("cpu_faiss", "float16"),
    ("cpu_faiss", "none"),
    ("hnsw", "int8"),
    ("hnsw", "float16"),
    ("hnsw", "none"),
    ("gpu", "int8"),
    ("gpu", "float16"),
    ("gpu", "none"),
]


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def clustered(generator, n):
    centres = unit(np.random.default_rng(7).standard_normal((60, DIM)))
    return unit(centres[generator.integers(0, 60, n)] + 0.12 * generator.standard_normal((n, DIM)))


def documents(seed, n_docs):
    """Return documents of 1 to 6, and of 1 and 500 centroids; every hundredth is a duplicate of document 50."""
    generator = np.random.default_rng(seed)
    docs = [clustered(generator, int(n)) for n in generator.integers(1, 7, n_docs)]
    docs[3], docs[4] = clustered(generator, 1), clustered(generator, 500)
    docs[50] = clustered(generator, 2)
    for copy in range(150, n_docs, 100):
        docs[copy] = docs[50]
    return docs


# The oracle: float64, without optimizations and without code of the engine.


def stored_vectors(segment):
    """Read and dequantize the rows of a segment: (n_rows, DIM) float64."""
    table = segment.reader.centroids
    if table.kind != "none":
        values, scales = table.stored_slice(0, table.n_rows)
        return values.astype(np.float64) * scales.astype(np.float64)[:, None]
    return decoded_vectors(segment)


class Oracle:
    """Reads all live documents of an index with their vectors, in the order of insertion."""

    def __init__(self, path):
        self.ids, self.vectors, shares = [], [], set()
        snapshot = Snapshot(Directory(path))
        self.beta = snapshot.manifest.settings.beta
        for segment in snapshot.segments:
            vectors, offsets = stored_vectors(segment), segment.reader.centroids.offsets
            shares.add(share_of_mean(segment))
            for doc in range(segment.reader.n_docs):
                if segment.deleted is None or not segment.deleted[doc]:
                    self.ids.append(segment.reader.ids[doc])
                    self.vectors.append(vectors[offsets[doc] : offsets[doc + 1]])
        snapshot.close()
        (self._share,) = shares
        self._matrix = np.concatenate(self.vectors)
        self._offsets = np.cumsum([0, *map(len, self.vectors)])

    def scores(self, query):
        """Return the score of each document by id."""
        scores = self._matrix @ query.astype(np.float64)
        best = best_and_mean(scores, self._offsets, self._share)
        if self.beta is not None:
            starts, weights = self._offsets[:-1], np.exp(self.beta * scores)
            aggregated = np.add.reduceat(weights * scores, starts) / np.add.reduceat(weights, starts)
            best += (1 - self._share) * (aggregated - np.maximum.reduceat(scores, starts))
        return dict(zip(self.ids, best.tolist(), strict=True))

    def best(self, query, k):
        scores = self.scores(query)
        return sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))[:k]


def skip_without_library(backend):
    if backend in LIBRARIES and find_spec(LIBRARIES[backend]) is None:
        pytest.skip(f"backend {backend} needs {LIBRARIES[backend]}")


def is_approximate(backend, stored):
    """Return whether documents are found by codes or by a graph."""
    return backend in ("cpu_faiss", "hnsw") or (backend == "gpu" and stored == "none")


@dataclass(frozen=True)
class Case:
    backend: str
    stored: str
    path: object
    encoder: TableEncoder
    oracle: Oracle

    @property
    def approximate(self):
        return is_approximate(self.backend, self.stored)

    def open(self):
        return open_index(self.path, backend=self.backend, device=DEVICES.get(self.backend))


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """Return a function (stored, beta, changed) -> (path, encoder, oracle) that builds each index once."""
    made = {}

    def index(stored, beta, changed):
        key = (stored, beta, changed)
        if key not in made:
            made[key] = (changed_index if changed else plain_index)(stored, beta)
        return made[key]

    def plain_index(stored, beta):
        path = tmp_path_factory.mktemp("plain") / "index"
        encoder, docs = table_of(documents(1, N_DOCS) + documents(2, 300) + documents(3, 400), beta)
        build(
            docs[:N_DOCS],
            path,
            encoder=encoder,
            representation=KMeans(4096),
            centroids=stored,
            code_bytes=16,
            passage_words=None,
        )
        with open_index(path, writable=True, encoder=encoder) as writer:
            writer.optimize()
        return path, encoder, docs, Oracle(path)

    def changed_index(stored, beta):
        plain, encoder, docs, _ = index(stored, beta, False)
        path = tmp_path_factory.mktemp("changed") / "index"
        shutil.copytree(plain, path)
        with open_index(path, writable=True, encoder=encoder) as writer:
            writer.add(docs[N_DOCS : N_DOCS + 300])
            writer.commit()
            writer.delete([str(number) for number in range(0, N_DOCS + 300, 7)])
            writer.add(docs[N_DOCS + 300 :])
            writer.add([{"id": "50", "text": docs[51]["text"]}, {"id": "60", "text": docs[50]["text"]}])
            writer.commit()
            writer.delete([str(number) for number in range(N_DOCS + 300, N_DOCS + 700, 5)])
            writer.commit()
            writer.optimize()
        return path, encoder, docs, Oracle(path)

    return index


@pytest.fixture(params=[None, 8.0], ids=["max", "softmax"])
def beta(request):
    return request.param


# Each combination with each of beta and changed, but not with all pairs of them: the next one has the others.
CASES = [
    (backend, stored, beta, (beta is None) == bool(number % 2))
    for number, (backend, stored) in enumerate(COMBINATIONS)
    for beta in (None, 8.0)
]


@pytest.fixture(params=CASES, ids=lambda each: "-".join(map(str, each)))
def case(request, indexes):
    backend, stored, beta, changed = request.param
    skip_without_library(backend)
    path, encoder, _, oracle = indexes(stored, beta, changed)
    return Case(backend, stored, path, encoder, oracle)


def some_queries(n, seed=11):
    generator = np.random.default_rng(seed)
    return clustered(generator, n)


def ids_of(hits):
    return [hit.id for hit in hits]


def assert_scores(hits, oracle, query):
    scores = oracle.scores(query)
    np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-5)
    found = [hit.score for hit in hits]
    assert found == sorted(found, reverse=True)


def test_the_cases_are_what_they_claim(indexes):
    """The indexes have segments with and without lists, of three sizes, with deleted documents."""
    for stored in ("int8", "float16", "none"):
        snapshot = Snapshot(Directory(indexes(stored, None, True)[0]))
        lists = [segment.reader.lists is not None for segment in snapshot.segments]
        # 300 documents have too few rows to train lists, but an index of codes alone has a quantizer already
        assert lists == [True, stored == "none", True]
        assert [segment.reader.centroids.kind for segment in snapshot.segments] == [stored] * 3
        assert all(segment.deleted is not None for segment in snapshot.segments)
        assert [segment.reader.n_docs for segment in snapshot.segments] == [600, 300, 402]
        snapshot.close()


def test_scores_and_ids_are_the_oracles(case):
    queries = some_queries(8)
    with case.open() as index:
        found = index.search_vectors(queries, k=20, candidates=EVERYTHING, nprobe=EVERYTHING)
        default = index.search_vectors(queries, k=20)
    for query, hits, quick in zip(queries, found, default, strict=True):
        assert ids_of(hits) == case.oracle.best(query, 20)
        assert_scores(hits, case.oracle, query)
        assert_scores(quick, case.oracle, query)
        if not case.approximate:
            assert ids_of(quick) == ids_of(hits)


@pytest.mark.parametrize(("backend", "stored"), COMBINATIONS)
def test_recall(indexes, backend, stored, beta):
    skip_without_library(backend)
    path, _, _, oracle = indexes(stored, beta, True)
    queries = some_queries(30, seed=5)
    with open_index(path, backend=backend, device=DEVICES.get(backend)) as index:
        found = index.search_vectors(queries, k=10)
    shares = [
        len(set(ids_of(hits)) & set(oracle.best(query, 10))) / 10
        for query, hits in zip(queries, found, strict=True)
    ]
    assert np.mean(shares) >= (0.95 if is_approximate(backend, stored) else 1.0)


def test_equal_documents_come_in_the_order_of_their_ids(case):
    copies = [doc_id for doc_id in case.oracle.ids if int(doc_id) % 100 == 50 or doc_id == "60"]
    vector_of = dict(zip(case.oracle.ids, case.oracle.vectors, strict=True))
    first = sorted(doc_id for doc_id in copies if np.array_equal(vector_of[doc_id], vector_of["250"]))
    assert len(first) >= 4
    query = unit(vector_of["250"][:1])
    with case.open() as index:
        hits = index.search_vectors(query, k=len(first) - 1, candidates=EVERYTHING, nprobe=EVERYTHING)[0]
    assert ids_of(hits) == first[:-1]
    assert len({hit.score for hit in hits}) == 1


def test_batches_are_single_queries(case):
    many = 300 if case.oracle.beta is None and case.stored == "int8" else 40  # one long batch for each backend
    queries = np.concatenate([some_queries(many - 2), np.zeros((1, DIM), np.float32), some_queries(1, seed=9)])
    with case.open() as index:
        batch = index.search_vectors(queries, k=7)
        assert len(batch) == many
        for low in (0, 20, many - 7):
            assert index.search_vectors(queries[low : low + 7], k=7) == batch[low : low + 7]
        for number in range(0, many, many // 8):
            assert index.search_vectors(queries[number : number + 1], k=7) == batch[number : number + 1]
        assert index.search_vectors(queries[:0], k=7) == []


@pytest.mark.parametrize("k", [3, 300])
def test_a_query_of_zeros_finds_k_documents(case, k):
    """All scores are equal, and an exact backend returns the k documents with the smallest ids."""
    with case.open() as index:
        hits = index.search_vectors(np.zeros((1, DIM), np.float32), k=k, candidates=k)[0]
    assert [hit.score for hit in hits] == [0.0] * k
    assert len(set(ids_of(hits))) == k
    assert set(ids_of(hits)) <= set(case.oracle.ids)
    if not case.approximate:
        assert ids_of(hits) == sorted(case.oracle.ids)[:k]


def test_a_document_is_found_by_its_own_vector(case):
    """A document of one centroid and one of 500 are found by a centroid of theirs."""
    vector_of = dict(zip(case.oracle.ids, case.oracle.vectors, strict=True))
    assert len(vector_of["3"]) == 1
    assert len(vector_of["4"]) == 500
    queries = unit(np.stack([vector_of["3"][0], vector_of["4"][499]]))
    with case.open() as index:
        found = index.search_vectors(queries, k=1200, nprobe=EVERYTHING, candidates=EVERYTHING)
    assert found[0][0].id == "3"
    assert found[1][0].id == "4" or case.oracle.beta is not None  # a softmax of 500 is far below its maximum
    assert "4" in ids_of(found[1])


def allowed_in(segment, share):
    """Return a filter that lets `share` of a segment's documents pass, in runs of five; None for no filter."""
    if share is None:
        return None
    generator = np.random.default_rng(int(100 * share))
    flags = np.repeat(generator.random(-(-segment.record.n_docs // 5)) < share, 5)[: segment.record.n_docs]
    return flags if segment.deleted is None else flags & ~segment.deleted


@pytest.mark.parametrize(
    ("case", "share"),
    [(each, share) for each in CASES for share in ((None, 0.02) if each[2] is None else (0.0, 0.5))],
    indirect=["case"],
    ids=lambda each: "-".join(map(str, each)) if isinstance(each, tuple) else str(each),
)
def test_candidates_keep_the_contract(case, share):
    """Candidates are numerous, distinct, live and allowed, and exact searches leave out no better document."""
    snapshot = Snapshot(Directory(case.path))
    queries = np.concatenate([some_queries(3), np.zeros((1, DIM), np.float32)])
    for segment in snapshot.segments:
        if segment.reader.lists is None and case.backend == "cpu_faiss":
            continue
        backend = open_backend(case.backend, segment, Resources(device=Device(DEVICES.get(case.backend))))
        allowed = allowed_in(segment, share)
        findable = allowed_in(segment, 1.0) if allowed is None else allowed
        n_live = int(findable.sum())
        offsets = segment.reader.centroids.offsets
        rows = queries.astype(np.float64) @ stored_vectors(segment).T
        best = best_and_mean(rows, offsets, share_of_mean(segment))
        for k, n in ((1, 1), (10, 10), (10, 100), (max(1, n_live - 1), max(1, n_live)), (n_live + 1, EVERYTHING)):
            found = backend.candidates(queries, SearchParameters(k, n, None, 2, allowed))
            for each, scores in zip(found, best, strict=True):
                assert each.docs.dtype == np.int64
                assert len(np.unique(each.docs)) == len(each.docs)
                assert len(each.docs) >= min(k, n_live)
                assert findable[each.docs].all()
                others = np.setdiff1d(np.flatnonzero(findable), each.docs)
                assert scores[others].max(initial=-np.inf) <= each.upper_bound
    snapshot.close()


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_filter_leaves_the_best_of_what_passes(case, share):
    snapshot, queries = Snapshot(Directory(case.path)), some_queries(4)
    allowed = [allowed_docs(allowed_in(segment, share)) for segment in snapshot.segments]
    kept = {
        segment.reader.ids[doc]
        for segment, docs in zip(snapshot.segments, allowed, strict=True)
        for doc in docs.docs.tolist()
    }
    searcher = searcher_of(snapshot, backend=case.backend, device=DEVICES.get(case.backend), thresholds=SMALL)
    options = SearchOptions(k=10, candidates=200, nprobe=EVERYTHING)
    for query, found in zip(queries, searcher.search(queries, options, allowed), strict=True):
        scores = {doc_id: score for doc_id, score in case.oracle.scores(query).items() if doc_id in kept}
        ids = [
            snapshot.segments[segment].reader.ids[doc]
            for segment, doc in zip(found.segments.tolist(), found.docs.tolist(), strict=True)
        ]
        assert kept.issuperset(ids)
        assert len(set(ids)) == len(ids) == 10
        best = sorted(scores.values(), reverse=True)[:10]
        if not case.approximate:
            np.testing.assert_allclose([scores[doc_id] for doc_id in ids], best, atol=1e-4)
        np.testing.assert_allclose(found.scores, [scores[doc_id] for doc_id in ids], atol=1e-3)
    snapshot.close()


@pytest.mark.parametrize(("backend", "stored"), COMBINATIONS)
def test_one_document(tmp_path, backend, stored):
    skip_without_library(backend)
    encoder, docs = table_of([unit(np.ones((1, DIM)))])
    build(
        docs, tmp_path / "index", encoder=encoder, representation=KMeans(4), centroids=stored, passage_words=None
    )
    with open_index(tmp_path / "index", backend=backend, device=DEVICES.get(backend)) as index:
        hits = index.search_vectors(unit(np.ones((2, DIM))), k=3)
    assert [ids_of(each) for each in hits] == [["0"], ["0"]]
    np.testing.assert_allclose(hits[0][0].score, 1, atol=1e-3)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.full((1, DIM), np.nan), "query vector 0 .* not finite"),
        (np.array([[0.0] * DIM, [np.inf] * DIM]), "query vector 1 .* not finite"),
        (np.array([[-np.inf] + [0.0] * (DIM - 1)]), "query vector 0 .* not finite"),
        (np.full((1, DIM), 1e300), "query vector 0 .* not finite"),
        (np.full((1, DIM), 1e19), "query vector 0 .* above 1e"),
        (np.zeros((1, DIM - 1)), rf"expected \(n, {DIM}\); found \(1, {DIM - 1}\)"),
        (np.zeros(DIM), "wrong shape"),
        (np.zeros((1, 1, DIM)), "wrong shape"),
        (np.zeros((1, 0)), "wrong shape"),
        ([], "wrong shape"),
        (np.float32(1), "wrong shape"),
        ([["1"] * DIM], "not numbers"),
        ([[None] * DIM], "not numbers"),
        (np.zeros((1, DIM), np.complex64), "not numbers"),
        ("text", "not numbers"),
        ([[1.0], [1.0, 2.0]], "not an array"),
    ],
)
def test_queries_that_are_none(indexes, queries, message):
    with open_index(indexes("int8", None, False)[0]) as index, pytest.raises(InvalidQuery, match=message):
        index.search_vectors(queries)


def test_queries_of_other_types_are_converted(indexes):
    query = np.round(some_queries(1) * 64)
    with open_index(indexes("int8", None, False)[0]) as index:
        expected = index.search_vectors(query)
        for dtype in (np.float64, np.float16, np.int64, np.int8):
            assert index.search_vectors(query.astype(dtype)) == expected
        assert index.search_vectors(query.tolist()) == expected
        assert index.search_vectors(np.asfortranarray(np.repeat(query, 3, axis=0))[::2]) == expected * 2


@pytest.mark.parametrize("size", [1e-45, 1e-30, 1e-6, 1e6, 1e18])
def test_the_length_of_a_query_does_not_change_the_order(indexes, size):
    path, _, _, oracle = indexes("int8", None, False)
    query = some_queries(1)
    query /= np.abs(query).max()
    tiny = size < 1e-37
    with open_index(path) as index:
        hits = index.search_vectors(query * np.float32(size), k=5)[0]
    assert len(hits) == 5
    if not tiny:
        assert ids_of(hits) == oracle.best(query[0], 5)


def test_memory_is_estimated_before_opening_and_freed_at_the_end(case):
    with open_index(case.path, backend=case.backend, device=DEVICES.get(case.backend)) as index:
        searcher = view_of(index).partitions[0].searcher
        assert index.stats()["memory"]["resident_bytes"]["backends"] == 0
        index.search_vectors(some_queries(1))
        opened = searcher.backends
        estimated = sum(choice.needed_bytes for choice in searcher.choices)
        held = sum(backend.resident_bytes for backend in opened)
        assert index.stats()["memory"]["resident_bytes"]["backends"] == held
        assert held <= estimated <= 1.3 * held  # some backends hold no memory for deleted documents
        chosen = index.stats()["backend"]["chosen"]
        assert sum(group["n_segments"] for group in chosen.values()) == len(opened)
        left = [weakref.ref(backend) for backend in opened]
        del searcher, opened
    assert all(each() is None for each in left)


@pytest.fixture(scope="module")
def many_segments(tmp_path_factory):
    """Return a function that builds an index of twelve segments once for each way to store vectors."""

    @cache
    def index(stored):
        path = tmp_path_factory.mktemp("many") / "index"
        encoder, docs = table_of(documents(31, 60))
        build(docs[:5], path, encoder=encoder, representation=KMeans(4096), centroids=stored, passage_words=None)
        with open_index(path, writable=True, encoder=encoder) as writer:
            for low in range(5, 60, 5):
                writer.add(docs[low : low + 5])
                writer.commit()
        return path

    return index


@pytest.mark.parametrize(("backend", "stored"), COMBINATIONS)
def test_many_segments(many_segments, backend, stored):
    skip_without_library(backend)
    path = many_segments(stored)
    oracle = Oracle(path)
    with open_index(path, backend=backend, device=DEVICES.get(backend)) as index:
        for query, hits in zip(some_queries(3), index.search_vectors(some_queries(3), k=60), strict=True):
            assert ids_of(hits) == oracle.best(query, 60)


def test_unknown_backend(indexes):
    with pytest.raises(
        InvalidSetting, match=r"auto, exact, scan, cpu_faiss, hnsw, gpu \(the nearest: gpu\); found 'gpu9'"
    ):
        open_index(indexes("int8", None, False)[0], backend="gpu9")


def test_a_missing_library_is_named(indexes, monkeypatch):
    monkeypatch.setitem(BACKENDS, "scan", Adapter("engine.backends.of_no_library:Backend", "gpu"))
    with pytest.raises(BackendUnavailable, match=r"pip install '\.\[gpu\]' in a checkout"):
        open_index(indexes("int8", None, False)[0], backend="scan")
