"""Documents with given vectors: every metric, storage type and backend is compared with numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes.decoded_codes import share_of_mean
from support.indexes.word_encoder import TableEncoder, WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

DIM = 12
N_DOCS = 300
METRICS = ("ip", "cosine", "l2")
STORED = ("int8", "float16", "none")
LISTS = Thresholds(calibration_queries=64, list_rows=100, training_rows=100, graph_rows=100, graph_step_rows=1)


def gaussian(generator, n):
    return (generator.standard_normal((n, DIM)) * 3).astype(np.float32)


def rank_deficient(generator, n):
    """Return vectors in a plane."""
    return (generator.standard_normal((n, 2)) @ generator.standard_normal((2, DIM))).astype(np.float32)


def far_from_origin(generator, n):
    """Return vectors that are much closer to one another than to the origin."""
    return (generator.standard_normal((n, DIM)) + 40).astype(np.float32)


def whole_numbers(generator, n):
    return generator.integers(-3, 4, (n, DIM)).astype(np.float32) + np.float32(0.5)


COLLECTIONS = (gaussian, rank_deficient, far_from_origin, whole_numbers)


def documents(vectors, counts):
    """Yield documents with ids "0", "1", ...; `counts` has the number of vectors of each."""
    bounds = np.concatenate([[0], np.cumsum(counts)])
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        yield {"id": str(number), "text": f"number {number}", "vectors": vectors[low:high]}


def collection(make, seed=0):
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 4, N_DOCS)
    return make(generator, int(counts.sum())), counts, make(generator, 5)


def true_scores(metric, query, vectors):
    """Return (n,) float64 scores of vectors."""
    q, x = query.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return -((x - q) ** 2).sum(axis=1)
    return x @ (q / np.linalg.norm(q) if metric == "cosine" else q)


def share_of_mean_in(path):
    """Return the share of the mean in the scores of an index."""
    snapshot = Snapshot(Directory(path))
    (share,) = {share_of_mean(segment) for segment in snapshot.segments}
    snapshot.close()
    return share


def check(hits, metric, query, stored, k=10, share=0.0):
    """Check that hits have the exact scores of their stored vectors and are the k best documents."""
    products = {doc_id: true_scores(metric, query, vectors) for doc_id, vectors in stored.items()}
    scores = {doc_id: (1 - share) * each.max() + share * each.mean() for doc_id, each in products.items()}
    largest = max(np.linalg.norm(query), 1) * max(np.linalg.norm(each, axis=1).max() for each in stored.values())
    tolerance = 1e-5 * largest if metric != "cosine" else 1e-5
    found = [hit.score for hit in hits]
    np.testing.assert_allclose(found, [scores[hit.id] for hit in hits], atol=tolerance)
    assert len({hit.id for hit in hits}) == k
    if hits.exactness == "exact":
        best = sorted(scores.values(), reverse=True)[:k]
        np.testing.assert_allclose([scores[hit.id] for hit in hits], best, atol=2 * tolerance)


def stored_vectors(index):
    return {document.id: document.vectors for document in index.get([str(n) for n in range(N_DOCS)], vectors=True)}


@pytest.mark.parametrize(("make", "metric", "stored"), pairs_of(COLLECTIONS, METRICS, STORED))
def test_hits_are_those_of_numpy(tmp_path, make, metric, stored):
    vectors, counts, queries = collection(make)
    engine.build(documents(vectors, counts), tmp_path, dim=DIM, metric=metric, centroids=stored)
    with Engine.open(tmp_path) as index:
        known = compared = stored_vectors(index)
        if metric == "cosine" and make is far_from_origin:  # by distances, if the mean was subtracted
            compared = {name: each / np.linalg.norm(each, axis=1, keepdims=True) for name, each in known.items()}
        for query, hits in zip(queries, index.search(vector=queries), strict=True):
            assert hits.exactness == "exact"
            check(hits, metric, query, compared if stored == "none" else known)
        assert (index.stats()["metric"], index.stats()["dim"], index.stats()["encoder"]) == (metric, DIM, "none")
        # int8 is too coarse for the differences of vectors that are far from the origin
        kept_as = "int8" if stored == "none" else "float16" if make is far_from_origin else stored
        assert index.get("0", vectors=True)[0].stored_as == kept_as
        rounding = {"int8": 1 / 127, "float16": 2**-10}[kept_as]
        expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if metric == "cosine" else vectors
        found = np.concatenate([known[str(n)] for n in range(N_DOCS)])
        assert np.abs(found - expected).max() <= rounding * max(1, np.abs(expected).max())


@pytest.mark.parametrize(
    ("metric", "stored", "backend"), pairs_of(METRICS, STORED, ["exact", "scan", "cpu_faiss", "hnsw"])
)
def test_changes_merges_and_backends(tmp_path, metric, stored, backend):
    """All backends find the best documents after replacements, deletions and a merge of several segments."""
    if (backend, stored) == ("scan", "none"):
        backend = "auto"
    vectors, counts, queries = collection(gaussian)
    docs = list(documents(vectors, counts))
    options = {"metric": metric, "centroids": stored, "code_bytes": 2 if metric != "l2" else 4}
    engine.build(docs[:200], tmp_path, dim=DIM, thresholds=LISTS, **options)
    with Engine.open(tmp_path, writable=True, backend=backend, thresholds=LISTS) as index:
        assert index.add([{**each, "vectors": -each["vectors"]} for each in docs[:50]]) == 50
        assert index.add(docs[200:]) == 100
        index.commit()
        assert index.add(docs[:50]) == 50
        assert index.delete([str(n) for n in range(100, 110)]) == 10
        index.commit()
        for is_merged in (False, True):
            if is_merged:
                index.merge()
                assert index.stats()["n_segments"] == 1
            if backend == "hnsw":
                index.optimize()
            known, share = stored_vectors(index), share_of_mean_in(tmp_path)
            assert (share > 0) == ((metric, stored) == ("cosine", "none"))
            assert len(known) == 290
            for query, hits in zip(queries, index.search(vector=queries), strict=True):
                check(hits, metric, query, known, share=share)
        assert index.verify().n_documents == 290


@pytest.mark.parametrize(("seed", "stored", "backend"), pairs_of(range(3), STORED, ["auto", "exact", "hnsw"]))
def test_distances_of_vectors_of_all_norms(tmp_path, seed, stored, backend):
    """Norms from 1e-6 to 1e4, added in any order, rank as distances of the stored vectors in float64."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((N_DOCS, DIM))
    vectors *= 10 ** generator.uniform(-6, 4, (N_DOCS, 1)) / np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[generator.integers(N_DOCS)] = 0
    docs = [{"id": str(number), "vectors": vector} for number, vector in enumerate(vectors)]
    options = {"dim": DIM, "metric": "l2", "centroids": stored, "code_bytes": 0 if stored != "none" else 4}
    order = [np.argsort(np.linalg.norm(vectors, axis=1)), generator.permutation(N_DOCS)][seed % 2].tolist()
    thresholds = Thresholds(graph_rows=50, graph_step_rows=1)
    with Engine.open(
        tmp_path, writable=True, create=True, backend=backend, thresholds=thresholds, **options
    ) as index:
        for low in range(0, N_DOCS, 100):
            assert index.add([docs[number] for number in order[low : low + 100]]) == 100
            index.commit()
        known = stored_vectors(index)
        stored_rows = np.concatenate([known[str(number)] for number in range(N_DOCS)]).astype(np.float64)
        if stored != "float16":  # which rounds numbers below 6e-5 to multiples of 6e-8
            np.testing.assert_array_less(
                np.abs(stored_rows - vectors).max(axis=1), np.abs(vectors).max(axis=1) / 253 + 1e-30
            )
        for query in (stored_rows[::20] * generator.uniform(0.5, 2, (15, 1))).astype(np.float32):
            hits = index.search(vector=query)
            squares = np.square(stored_rows - query.astype(np.float64)).sum(axis=1)
            found = squares[[int(hit.id) for hit in hits]]
            np.testing.assert_allclose([-hit.score for hit in hits], found, rtol=2e-7, atol=1e-37)
            np.testing.assert_allclose(found, np.sort(squares)[:10], rtol=2e-7, atol=1e-37)


@pytest.mark.parametrize("metric", METRICS)
def test_shards_rank_as_one_index(tmp_path, metric):
    vectors, counts, queries = collection(gaussian)
    docs = list(documents(vectors, counts))
    for shards in (None, 3):
        engine.build(docs, tmp_path / str(shards), dim=DIM, metric=metric, shards=shards)
    with Engine.open(tmp_path / "None") as one, Engine.open(tmp_path / "3", writable=True) as three:
        assert three.stats()["metric"] == metric
        for mode in ("dense", "hybrid"):
            texts = [f"number {n}" for n in range(len(queries))]
            for ours, theirs in zip(
                three.search(texts, vector=queries, mode=mode),
                one.search(texts, vector=queries, mode=mode),
                strict=True,
            ):
                np.testing.assert_allclose([h.score for h in ours], [h.score for h in theirs], rtol=1e-6)
                np.testing.assert_allclose(
                    [h.dense_score for h in ours], [h.dense_score for h in theirs], rtol=1e-5
                )
        np.testing.assert_array_equal(
            three.get("7", vectors=True)[0].vectors, one.get("7", vectors=True)[0].vectors
        )
        assert three.add([docs[0]]) == 1
        three.commit()
        assert len(three) == N_DOCS


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_default_searches_of_lists_find_nearly_all(tmp_path, metric):
    """Default searches of lists find nearly all of the best, also for l2, whose queries differ from rows."""
    generator = np.random.default_rng(5)
    centers = generator.standard_normal((40, 16)) * 2
    vectors = (centers[generator.integers(0, 40, 4000)] + generator.standard_normal((4000, 16))).astype(np.float32)
    vectors *= generator.uniform(0.5, 2, (4000, 1)).astype(np.float32)
    docs = [{"id": str(n), "vectors": each} for n, each in enumerate(vectors)]
    engine.build(docs, tmp_path, dim=16, metric=metric, code_bytes=8, thresholds=LISTS)
    queries = vectors[generator.integers(0, 4000, 50)] + generator.standard_normal((50, 16)).astype(np.float32) / 2
    with Engine.open(tmp_path, backend="cpu_faiss", thresholds=LISTS) as index:
        assert index.stats()["drift"] is not None
        shares = []
        for query, hits in zip(queries, index.search(vector=queries), strict=True):
            scores = true_scores(
                metric,
                query,
                vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if metric == "cosine" else vectors,
            )
            shares.append(len({int(hit.id) for hit in hits} & set(np.argsort(-scores)[:10].tolist())) / 10)
    assert np.mean(shares) >= 0.9


@pytest.mark.parametrize(("nlist", "metric", "stored"), pairs_of([2, 3, 16], ["ip", "l2"], ["int8", "none"]))
def test_lists_of_vectors_and_their_opposites_find_nearly_all(tmp_path, nlist, metric, stored):
    """The mean of vectors and their opposites is zero, and no list may have such a centroid.

    Longer vectors attract the other centroids.
    """
    generator, dim = np.random.default_rng(2), 16
    directions = np.linalg.qr(generator.standard_normal((dim, dim)))[0][:4] * 10
    opposites = np.repeat(np.concatenate([directions[:2], -directions[:2]]), 300, axis=0)
    vectors = np.concatenate([opposites, np.repeat(20 * directions[2:], 20, axis=0)])
    vectors = (vectors + generator.standard_normal(vectors.shape) / 2)[generator.permutation(len(vectors))]
    docs = [{"id": str(n), "vectors": each} for n, each in enumerate(vectors)]
    thresholds = Thresholds(list_rows=1000, training_rows=1000, nlist=nlist)
    options = {"dim": dim, "metric": metric, "centroids": stored, "code_bytes": 8}
    engine.build(docs, tmp_path, thresholds=thresholds, **options)
    queries = opposites[::30] + generator.standard_normal((40, dim)) / 2
    with Engine.open(tmp_path, backend="cpu_faiss", thresholds=thresholds) as index:
        for query, hits in zip(queries, index.search(vector=queries), strict=True):
            along = vectors[[int(hit.id) for hit in hits]] @ query / np.linalg.norm(query)
            assert along.min() > 3  # of about 10, and of none for rows of other directions


@pytest.mark.parametrize("encoder", [WordEncoder(), WordEncoder(normalize=False)], ids=["unit", "any norm"])
def test_vectors_of_the_encoder_give_the_same_index(tmp_path, encoder):
    """Documents with the vectors of the encoder, mixed with documents without, give the same index."""
    generator = np.random.default_rng(0)
    words = ["tea", "moon", "bridge", "salt", "violin", "old", "quiet"]
    docs = [{"id": str(n), "title": f"t{n}", "text": " ".join(generator.choice(words, 70))} for n in range(40)]
    engine.build(docs, tmp_path / "encoded", encoder=encoder, centroids="float16")
    with Engine.open(tmp_path / "encoded", encoder=encoder) as encoded:
        made = {each.id: each for each in encoded.get([each["id"] for each in docs], vectors=True)}
        mixed = [
            {**each, "vectors": made[each["id"]].vectors, "spans": made[each["id"]].spans} if number % 3 else each
            for number, each in enumerate(docs)
        ]
        engine.build(mixed, tmp_path / "given", encoder=encoder, centroids="float16")
        with Engine.open(tmp_path / "given", encoder=encoder) as given:
            assert (
                given.stats()["metric"] == encoded.stats()["metric"] == ("cosine" if encoder.normalize else "ip")
            )
            again = given.get([each["id"] for each in docs], vectors=True)
            assert [each.id for each in again] == [each["id"] for each in docs]
            for document in again:
                np.testing.assert_array_equal(document.vectors, made[document.id].vectors)
            for mode in ("dense", "lexical", "hybrid"):
                for query in ("old moon", "salt", "quiet violin tea"):
                    ours = given.search(query, mode=mode, explain=True)
                    theirs = encoded.search(query, mode=mode, explain=True)
                    assert [hit.to_dict() for hit in ours] == [hit.to_dict() for hit in theirs]


def test_the_order_of_mixed_documents_is_kept(tmp_path):
    """The last of several documents with the same id is kept, whether it is encoded or has vectors."""
    encoder = WordEncoder()
    generator = np.random.default_rng(0)
    docs = []
    for number in range(700):
        doc_id = f"id {generator.integers(0, 50)}"
        given = {"vectors": generator.standard_normal((2, encoder.dim))} if generator.random() < 0.5 else {}
        docs.append({"id": doc_id, "text": f"text {number}", **given})
    docs += [{"id": f"id {n}", "text": f"end {n}", "vectors": np.ones(encoder.dim)} for n in range(0, 50, 2)]
    last = {each["id"]: each["text"] for each in docs}
    engine.build(docs, tmp_path, encoder=encoder)
    with Engine.open(tmp_path) as index:
        assert {each.id: each.text for each in index.get(list(last))} == last


def test_the_metric_of_an_encoder_can_be_chosen(tmp_path):
    generator = np.random.default_rng(1)
    table = (generator.standard_normal((80, DIM)) * generator.uniform(0.2, 4, (80, 1))).astype(np.float32)
    encoder = TableEncoder(table)
    docs = [{"id": str(n), "text": str(n)} for n in range(60)]
    docs += [{"id": str(n), "text": "", "vectors": table[n]} for n in range(60, 80)]
    for metric in (None, *METRICS):
        path = tmp_path / str(metric)
        engine.build(docs, path, encoder=encoder, representation=KMeans(1), metric=metric, centroids="float16")
        with Engine.open(path, encoder=encoder) as index:
            assert index.stats()["metric"] == (metric or "ip")
            known = {each.id: each.vectors for each in index.get([str(n) for n in range(80)], vectors=True)}
            for number in (3, 70):
                hits = index.search(str(number), mode="dense")
                check(hits, metric or "ip", table[number], known)
                if metric in ("cosine", "l2"):
                    assert hits[0].id == str(number)


@pytest.mark.parametrize("shards", [None, 4])
def test_the_first_documents_of_l2_may_come_later(tmp_path, shards):
    """An index for distances may be empty first, and so may some of its shards."""
    generator = np.random.default_rng(0)
    vectors = (generator.standard_normal((60, DIM)) * 20).astype(np.float32)
    docs = [{"id": str(number), "vectors": vector} for number, vector in enumerate(vectors)]
    with Engine.open(tmp_path, writable=True, create=True, dim=DIM, metric="l2", shards=shards) as index:
        assert index.search(vector=vectors[0]) == []
        assert index.add([]) == 0
        index.add(docs[:2])
        index.commit()
        assert index.search(vector=vectors[0])[0].id == "0"
        index.delete(["0", "1"])
        index.commit()
    with Engine.open(tmp_path, writable=True) as index:
        index.add(docs)
        index.commit()
        known = {each.id: each.vectors for each in index.get([str(n) for n in range(60)], vectors=True)}
        assert np.abs(known["5"] - vectors[5]).max() < 1
        for query in vectors[:5]:
            check(index.search(vector=query), "l2", query, known)
    with Engine.open(tmp_path) as index:
        assert index.search(vector=vectors[7])[0].id == "7"


def test_documents_before_an_invalid_one_are_kept(tmp_path):
    with Engine.open(tmp_path, writable=True, create=True, dim=2, metric="l2") as index:
        with pytest.raises(engine.InvalidDocument, match="document 2"):
            index.add([{"id": "a", "vectors": [3, 4]}, {"id": "b", "vectors": "none"}])
        index.commit()
        np.testing.assert_allclose(index.get("a", vectors=True)[0].vectors, [[3, 4]], atol=0.05)
