"""Two-stage search is compared with one pass over all vectors, on collections that are hard for stage 1."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder, table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

EVERYTHING = 1 << 20


def stored_documents(path):
    """Return the stored vectors of each document, (n, dim) float64."""
    snapshot = Snapshot(Directory(path))
    documents = []
    for segment in snapshot.segments:
        table = segment.reader.centroids
        values, scales = table.stored_slice(0, table.n_rows)
        vectors = values.astype(np.float64) * scales.astype(np.float64)[:, None]
        documents += np.split(vectors, table.offsets[1:-1])
    snapshot.close()
    return documents


def expected_scores(documents, query, beta):
    """Return the float64 score of every document."""
    scores = [vectors @ query.astype(np.float64) for vectors in documents]
    if beta is None:
        return np.array([each.max() for each in scores])
    weights = [np.exp(beta * (each - each.max())) for each in scores]
    return np.array([(w * s).sum() / w.sum() for w, s in zip(weights, scores, strict=True)])


def assert_exact(found, scores, k, tolerance):
    """Check that the hits are k best documents; scores within `tolerance` count as ties."""
    numbers = [int(hit.id) for hit in found]
    assert len(numbers) == len(set(numbers)) == min(k, len(scores))
    np.testing.assert_allclose([hit.score for hit in found], scores[numbers], atol=tolerance)
    left_out = np.delete(scores, numbers)
    assert left_out.max(initial=-np.inf) <= min(scores[numbers]) + tolerance
    assert (np.diff(scores[numbers]) <= tolerance).all()


def sphere(generator, n, dim):
    vectors = generator.standard_normal((n, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def plain(generator, dim):
    return [sphere(generator, int(n), dim) for n in generator.integers(1, 7, 600)]


def crowd(generator, dim):
    """Return hundreds of documents whose maxima differ by less than the rounding error of stage 1."""
    middle = sphere(generator, 1, dim)
    near = (middle + 1e-4 * generator.standard_normal((600, dim))).astype(np.float32)
    return [np.concatenate([vector[None], sphere(generator, 2, dim) * 0.5]) for vector in near]


def misleading_maxima(generator, dim):
    """Return documents of which the first half has the best maxima, and the second half the best softmax."""
    middle = sphere(generator, 1, dim)
    one_good = [np.concatenate([middle * 1.1, sphere(generator, 15, dim)]) for _ in range(200)]
    all_good = [middle + 0.05 * sphere(generator, 15, dim) for _ in range(200)]
    return one_good + all_good


def one_giant(generator, dim):
    """Return documents with one vector that is a thousand times as long, which weakens all error bounds."""
    documents = [sphere(generator, 3, dim) for _ in range(500)]
    documents[77] = documents[77] * np.float32(1000)
    return documents


def many_lengths(generator, dim):
    return [sphere(generator, 2, dim) * np.float32(10 ** generator.uniform(-3, 3)) for _ in range(500)]


def mostly_equal(generator, dim):
    """Return three kinds of documents, each hundreds of times."""
    kinds = [sphere(generator, 2, dim) for _ in range(3)]
    return [kinds[number] for number in generator.integers(0, 3, 700)]


COLLECTIONS = [plain, crowd, misleading_maxima, one_giant, many_lengths, mostly_equal]


@pytest.mark.parametrize(
    ("beta", "stored", "dim"), [(None, "int8", 2), (None, "float16", 33), (8.0, "int8", 33), (8.0, "float16", 2)]
)
@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda each: each.__name__)
def test_the_answer_is_exact(tmp_path, collection, beta, stored, dim):
    generator = np.random.default_rng(dim)
    documents = collection(generator, dim)
    encoder, docs = table_of(documents, beta)
    engine.build(
        docs, tmp_path / "index", encoder=encoder, representation=KMeans(4096), centroids=stored, threads=1
    )
    queries = np.concatenate([documents[5][:1], documents[-1][:1], sphere(generator, 1, dim)])
    stored_vectors = stored_documents(tmp_path / "index")
    expected = [expected_scores(stored_vectors, query, beta) for query in queries]
    for backend in ("scan", "exact"):
        with Engine.open(tmp_path / "index", backend=backend, threads=1) as index:
            for k in (1, 10, 130):
                found = index.search_vectors(queries, k=k)
                fewest = index.search_vectors(queries, k=k, candidates=k)
                for scores, hits, same in zip(expected, found, fewest, strict=True):
                    assert_exact(hits, scores, k, 2e-6 * max(1.0, np.abs(scores).max()))
                    assert same == hits


@pytest.mark.parametrize("beta", [None, 5.0])
def test_where_stage_1_is_approximate_the_scores_are_not(tmp_path, beta):
    generator = np.random.default_rng(1)
    documents = plain(generator, 32)
    encoder, docs = table_of(documents, beta)
    small = Thresholds(calibration_queries=64, list_rows=1000)
    engine.build(docs, tmp_path / "index", encoder=encoder, representation=KMeans(4096), thresholds=small)
    queries = sphere(generator, 5, 32)
    stored_vectors = stored_documents(tmp_path / "index")
    with Engine.open(tmp_path / "index", backend="cpu_faiss") as index:
        assert index.stats()["bytes"]["codes"] > 0
        few = index.search_vectors(queries, k=10, candidates=10, nprobe=1)
        everything = index.search_vectors(queries, k=10, candidates=EVERYTHING, nprobe=EVERYTHING)
    for query, hits, best in zip(queries, few, everything, strict=True):
        scores = expected_scores(stored_vectors, query, beta)
        assert_exact(best, scores, 10, 2e-6)
        np.testing.assert_allclose([hit.score for hit in hits], scores[[int(hit.id) for hit in hits]], atol=2e-6)
        assert len(hits) == 10


def test_segments_are_one_collection(tmp_path):
    """One segment and six segments of the same documents give the same hits."""
    generator = np.random.default_rng(2)
    documents = plain(generator, 32) + mostly_equal(generator, 32)
    encoder, docs = table_of(documents)
    engine.build(docs, tmp_path / "one", encoder=encoder, representation=KMeans(4096))
    engine.build(docs[:300], tmp_path / "six", encoder=encoder, representation=KMeans(4096))
    with Engine.open(tmp_path / "six", writable=True, encoder=encoder) as writer:
        for low in range(300, 1300, 200):
            writer.add(docs[low : low + 240])
            writer.commit()
    queries = np.concatenate([sphere(generator, 20, 32), documents[-1][:1]])
    with Engine.open(tmp_path / "one") as one, Engine.open(tmp_path / "six") as six:
        assert six.stats()["n_segments"] == 6
        for k in (1, 10, 700, 5000):
            assert one.search_vectors(queries, k=k) == six.search_vectors(queries, k=k)


def test_texts_with_the_bundled_encoder(tmp_path, small_corpus):
    engine.build(small_corpus, tmp_path / "index")
    questions = ["Why does bread rise?", "the king in the endgame", "how do bees survive the cold", "é 文"]
    answers = {}
    for backend in ("auto", "scan", "exact"):
        with Engine.open(tmp_path / "index", backend=backend) as index:
            answers[backend] = index.search(questions, k=7)
            assert [index.search(question, k=7) for question in questions] == answers[backend]
    assert answers["auto"] == answers["scan"] == answers["exact"]
    subjects = [hits[0].metadata["subject"] for hits in answers["auto"]]
    assert subjects[:3] == ["bread", "chess", "bee"]


def test_scores_are_the_aggregation_of_all_centroids(tmp_path):
    """Scores of texts are the aggregated scores of the encoder's vectors."""
    encoder = WordEncoder(beta=3.0)
    texts = ["one two three", "four five", "two", "one one one two"]
    engine.build(texts, tmp_path / "index", encoder=encoder, representation=KMeans(8), centroids="float16")
    query = encoder.encode_query("two one")
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        hits = index.search("two one", k=4, mode="dense")
    for hit in hits:
        words = np.stack([encoder.vector(word) for word in sorted(set(hit.text.split()))])
        expected = aggregate(words @ query, np.array([0, len(words)]), 3.0)[0]
        assert hit.score == pytest.approx(expected, abs=2e-3)
