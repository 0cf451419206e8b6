"""Given vectors of documents, and searches in an index without an encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes.sharded import shard_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Document, Engine
from quarry.formats.errors import EncoderMismatch, InvalidDocument, InvalidQuery, InvalidSetting

DIM = 4
DOCS = [
    {"id": "a", "text": "red apple", "title": "Fruit", "vectors": [1, 0, 0, 0]},
    {"id": "b", "text": "green pear", "vectors": [[0, 1, 0, 0], [0, 0, 1, 0]], "spans": [(0, 5), (6, 10)]},
    {"id": "c", "vectors": np.array([0.5, 0.5, 0.5, 0.5])},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    engine.build(DOCS, folder, dim=DIM)
    return folder


def test_a_text_is_searched_lexically_without_an_encoder(path):
    with Engine.open(path) as index:
        assert [hit.id for hit in index.search("apple")] == ["a"]
        assert [hit.id for hit in index.search(["pear", "nothing"])[0]] == ["b"]
        for mode in ("dense", "hybrid"):
            with pytest.raises(EncoderMismatch, match=r"without an encoder.*vector="):
                index.search("apple", mode=mode)


def test_a_vector_beside_a_text_makes_the_search_hybrid(path):
    with Engine.open(path) as index:
        hits = index.search("apple", vector=[0, 1, 0, 0])
        assert {hit.id for hit in hits} == {"a", "b", "c"}
        assert all(hit.dense_score is not None and hit.lexical_score is not None for hit in hits)
        assert index.search("apple", vector=[0, 1, 0, 0], mode="dense")[0].id == "b"
        both = index.search(["apple", "pear"], vector=np.eye(4)[:2])
        assert [hits[0].id for hits in both] == ["a", "b"]


def test_a_vector_alone_makes_the_search_dense(path):
    with Engine.open(path) as index:
        hits = index.search(vector=(0, 0, 1, 0), k=2, explain=True)
        assert [hit.id for hit in hits] == ["b", "c"]
        assert hits[0].matches[0].spans == ((6, 10),)
        assert hits[0].matches[0].text == "pear"
        assert hits[1].matches[0].text == ""
        assert ([each.text for each in hits[0].passages], hits[1].passages, hits[1].place) == (["pear"], (), None)
        assert [len(each) for each in index.search(vector=np.eye(4), k=1)] == [1, 1, 1, 1]
        assert index.search_vectors(np.eye(4), k=1)[0][0].id == "a"


def test_what_a_search_refuses(path):
    with Engine.open(path) as index:
        for queries, vector, message in (
            (None, None, "nothing to search for"),
            ("apple", np.eye(4), "does not fit"),
            (["apple"], [1, 0, 0, 0], "does not fit"),
            (["apple"], np.eye(4), "not as many vectors"),
            (None, [1, 0, 0], "wrong shape"),
            (None, [1, 0, 0, np.nan], "not finite"),
            (None, ["a", "b", "c", "d"], "not numbers"),
            (None, [[1, 0], [1]], "not an array"),
            (None, 3, "wrong shape"),
        ):
            with pytest.raises(InvalidQuery, match=message):
                index.search(queries, vector=vector)
        for queries, options in (
            (None, {"mode": "hybrid"}),
            (None, {"mode": "lexical"}),
            ("apple", {"mode": "lexical"}),
            (None, {"rerank": 10}),
        ):
            with pytest.raises(InvalidSetting):
                index.search(queries, vector=[1, 0, 0, 0], **options)


def test_get_returns_vectors_and_spans(path):
    with Engine.open(path) as index:
        plain, full = index.get("b")[0], index.get("b", vectors=True)[0]
        assert (plain.vectors, plain.stored_as) == (None, "")
        np.testing.assert_array_equal(full.vectors, np.eye(4, dtype=np.float32)[1:3])
        assert (full.spans, full.stored_as, full.text) == (((0, 5), (6, 10)), "int8", "green pear")
        assert index.get("a", vectors=True)[0].spans == ((0, len("Fruit\nred apple")),)
        with pytest.raises(InvalidSetting, match="vectors is not a flag"):
            index.get("a", vectors="yes")


def test_documents_that_were_read_can_be_added_again(path, tmp_path):
    with Engine.open(path) as index:
        given = index.get(["a", "b", "c"], vectors=True)
    engine.build(given, tmp_path, dim=DIM)
    with Engine.open(tmp_path) as copy:
        for before, after in zip(given, copy.get(["a", "b", "c"], vectors=True), strict=True):
            assert (before, before.spans) == (after, after.spans)
            np.testing.assert_array_equal(before.vectors, after.vectors)


@pytest.mark.parametrize(
    "vectors",
    [
        np.arange(8, dtype=np.float64).reshape(2, 4),
        np.arange(8, dtype=np.int16).reshape(2, 4),
        np.arange(8, dtype=np.uint8).reshape(2, 4),
        np.asfortranarray(np.arange(8, dtype=np.float32).reshape(2, 4)),
        np.arange(16, dtype=np.float32).reshape(2, 8)[:, ::2] / 2,
        np.arange(8, dtype=np.float16).reshape(2, 4),
        np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=object),
        [np.arange(4), np.arange(4, 8)],
        ((0, 1, 2, 3), (4.0, 5, 6, 7)),
    ],
    ids=["float64", "int16", "uint8", "fortran", "strided", "float16", "objects", "list of arrays", "tuples"],
)
def test_kinds_of_arrays(tmp_path, vectors):
    if isinstance(vectors, np.ndarray):
        vectors.setflags(write=False)
    engine.build([{"id": "x", "vectors": vectors}], tmp_path, dim=DIM, centroids="float16")
    with Engine.open(tmp_path) as index:
        np.testing.assert_array_equal(
            index.get("x", vectors=True)[0].vectors, np.arange(8, dtype=np.float32).reshape(2, 4)
        )


def test_later_changes_of_an_array_have_no_effect(tmp_path):
    array = np.zeros((1, 4), np.float32)

    def changing():
        for number in range(600):
            array[:] = number
            yield {"id": str(number), "vectors": array}

    engine.build(changing(), tmp_path, dim=DIM, centroids="float16")
    with Engine.open(tmp_path) as index:
        assert [float(each.vectors[0, 0]) for each in index.get(["3", "599"], vectors=True)] == [3, 599]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vectors": [1, 2, 3]}, r"document 2 \(id 'x'\): field 'vectors' has the wrong shape; expected \(n, 4\)"),
        ({"vectors": [1, np.nan, 3, 4]}, "not finite in row 0, column 1; found nan"),
        ({"vectors": [[1, 2, 3, 4], [1, 2, 3, 1e300]]}, "not finite in row 1, column 3"),
        ({"vectors": [1, 2, 3, 65536]}, "numbers that are too large"),
        ({"vectors": np.empty((0, 4))}, "wrong shape"),
        ({"vectors": []}, "wrong shape"),
        ({"vectors": np.zeros((1, 1, 4))}, "wrong shape"),
        ({"vectors": 5}, "wrong shape"),
        ({"vectors": "1 2 3 4"}, "is not numbers; .*found str"),
        ({"vectors": [True, False, True, True]}, "is not numbers"),
        ({"vectors": [1j, 2, 3, 4]}, "is not numbers"),
        ({"vectors": [[1, 2], [3]]}, "'vectors'"),
        ({"vectors": [None, 1, 2, 3]}, "is not numbers"),
        ({"text": "no vectors"}, "'vectors' is missing, and the index was built without an encoder"),
        ({"vectors": [1, 2, 3, 4], "spans": [(0, 1), (1, 2)]}, "'spans' has the wrong length"),
        ({"vectors": [1, 2, 3, 4], "spans": [(0, 1)]}, "is not within the text"),
        ({"vectors": [1, 2, 3, 4], "text": "abc", "spans": [(2, 1)]}, "is not within the text"),
        ({"vectors": [1, 2, 3, 4], "text": "abc", "spans": [(0, 1.5)]}, "not a pair of integers"),
        ({"vectors": [1, 2, 3, 4], "text": "abc", "spans": 3}, "'spans' is not a list of pairs"),
        (
            {"vectors": [[1, 2, 3, 4]] * 2, "text": "abc", "spans": {(0, 1), (1, 2)}},
            "'spans' is not a list of pairs",
        ),
        ({"text": "abc", "spans": [(0, 1)]}, "'spans' is given without vectors"),
    ],
)
def test_invalid_vectors_are_refused_by_name(tmp_path, fields, message):
    good = {"id": "good", "vectors": [1, 2, 3, 4]}
    docs = [good, {"id": "x", **fields}, {**good, "id": "last"}]
    with pytest.raises(InvalidDocument, match=message):
        engine.build(docs, tmp_path / "refused", dim=DIM)
    report = engine.build(docs, tmp_path / "skipped", dim=DIM, skip_invalid=True)
    assert (report.n_documents, report.n_skipped) == (2, 1)
    engine.build([], tmp_path / "added", dim=DIM)
    with Engine.open(tmp_path / "added", writable=True) as index:
        with pytest.raises(InvalidDocument, match=message):
            index.add(docs)
        index.commit()
        assert [each.id for each in index.get(["good", "x", "last"])] == ["good"]


def test_a_vector_of_zeros_has_no_cosine(tmp_path):
    docs = [{"id": str(n), "vectors": np.full((2, 4), n)} for n in range(-1, 2)]
    with pytest.raises(InvalidDocument, match=r"id '0'.*vector of zeros, row 0.*cosine"):
        engine.build(docs, tmp_path / "cosine", dim=DIM, metric="cosine")
    for metric in ("ip", "l2"):
        engine.build(docs, tmp_path / metric, dim=DIM, metric=metric)
        with Engine.open(tmp_path / metric) as index:
            assert index.search(vector=np.zeros(4))[0].score == 0


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_huge_and_tiny_norms(tmp_path, metric):
    scales = [1e-30, 1e-2, 1.0, 100.0] if metric == "l2" else [1e-30, 1.0, 1e30, 3e38]
    docs = [{"id": str(n), "vectors": scale * np.eye(4)[n]} for n, scale in enumerate(scales)]
    engine.build(docs, tmp_path, dim=DIM, metric=metric, centroids="float16")
    with Engine.open(tmp_path) as index:
        for number, scale in enumerate(scales[1:], 1):
            best = index.search(vector=np.minimum(scale, 1e18) * np.eye(4)[number], k=1)[0]
            assert best.id == str(number)
            assert best.score == pytest.approx(0 if metric == "l2" else 1, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim is out of range"),
        ({"dim": True}, "dim is out of range"),
        ({"dim": "4"}, "dim is out of range"),
        ({"dim": 4, "encoder": WordEncoder()}, "dim is for an index without an encoder"),
        ({"dim": 4, "representation": "mean"}, "dim is for an index without an encoder"),
        ({"dim": 4, "metric": "manhattan"}, "unknown metric"),
        ({"dim": 6, "code_bytes": 2}, "code_bytes does not divide"),
        ({"encoder": WordEncoder(beta=2.0), "metric": "l2"}, "softmax"),
    ],
)
def test_settings_that_are_refused(tmp_path, options, message):
    with pytest.raises(InvalidSetting, match=message):
        engine.build(DOCS, tmp_path / "index", **options)
    assert not (tmp_path / "index").exists()


def test_json_lines(tmp_path):
    lines = [{"id": "a", "vectors": [1, 0, 0, 0.5]}, {"id": "b", "text": "x", "vectors": [[0, 1, 0, 0]] * 2}]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "docs.json").write_text(json.dumps(lines))
    for name in ("docs.jsonl", "docs.json"):
        engine.build(tmp_path / name, tmp_path / "index", dim=DIM, overwrite=True)
        with Engine.open(tmp_path / "index") as index:
            assert [len(each.vectors) for each in index.get(["a", "b"], vectors=True)] == [1, 2]


def test_columns_of_tables(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rows = {"id": ["a", "b"], "emb": [[1.0, 0, 0, 0], [0, 1.0, 0, 0]], "year": [1, 2]}
    arrays = {**rows, "emb": [np.array(each, np.float32) for each in rows["emb"]]}
    for table in (pandas.DataFrame(rows), pandas.DataFrame(arrays), pyarrow.table(rows)):
        engine.build(table, tmp_path, dim=DIM, vectors="emb", overwrite=True)
        with Engine.open(tmp_path) as index:
            assert index.search(vector=[0, 1, 0, 0], k=1)[0].id == "b"
            assert index.get("a")[0].metadata == {"year": 1}
    with pytest.raises(InvalidSetting, match="the table has no column 'vec'"):
        engine.build(pyarrow.table(rows), tmp_path / "x", dim=DIM, vectors="vec")


def test_an_index_with_an_encoder_takes_vectors_without_it(tmp_path):
    encoder = WordEncoder()
    engine.build(["some text"], tmp_path, encoder=encoder)
    with Engine.open(tmp_path, writable=True) as index:
        assert index.add([{"id": "v", "vectors": np.arange(1, encoder.dim + 1)}]) == 1
        with pytest.raises(EncoderMismatch):
            index.add([{"id": "w", "vectors": np.ones(encoder.dim)}, "a text"])
        index.commit()
        assert np.linalg.norm(index.get("v", vectors=True)[0].vectors) == pytest.approx(1, abs=0.01)
        assert "w" in index


def test_an_index_without_an_encoder_has_none(path):
    with pytest.raises(EncoderMismatch, match="without an encoder"):
        Engine.open(path, encoder=WordEncoder(dim=4))


def test_an_empty_index_is_created_when_it_is_opened(tmp_path):
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM, metric="l2") as index:
        index.add(DOCS)
        index.commit()
        assert index.search(vector=[0, 1, 0, 0], k=1)[0].score == pytest.approx(0, abs=1e-2)
    for other in ({"dim": 5}, {"metric": "ip"}):
        with pytest.raises(InvalidSetting, match="another value"):
            Engine.open(tmp_path / "index", create=True, **other)


def test_documents_compare_without_their_vectors():
    one = Document("a", "text", vectors=np.zeros((1, 2), np.float32))
    assert one == Document("a", "text", vectors=np.ones((1, 2), np.float32))


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
@pytest.mark.parametrize(("offset", "stored"), [(0, "int8"), (100, "float16")])
def test_vectors_with_a_common_offset_are_stored_precisely(tmp_path, metric, offset, stored):
    vectors = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    vectors += offset
    documents = [{"id": str(n), "vectors": row} for n, row in enumerate(vectors)]
    engine.build(documents, tmp_path / "index", dim=16, metric=metric, progress=False)
    with Engine.open(tmp_path / "index") as index:
        assert index.stats()["stored"] == stored


@pytest.mark.parametrize(
    ("metric", "offset", "how"),
    pairs_of(["ip", "cosine", "l2"], [100, 1000], [{}, {"shards": 3}, {"workers": 2}, {"centroids": "float16"}]),
    ids=str,
)
def test_vectors_far_from_the_origin_are_told_apart(tmp_path, metric, offset, how):
    generator = np.random.default_rng(0)
    vectors, queries = (
        (generator.standard_normal((n, 16)) + offset * (generator.random(16) < 0.7)).astype(np.float32)
        for n in (200, 10)
    )
    documents = [{"id": str(n), "vectors": row} for n, row in enumerate(vectors)]
    engine.build(documents, tmp_path / "index", dim=16, metric=metric, progress=False, **how)
    exact, found = vectors.astype(np.float64), []
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add([{"id": "later", "vectors": vectors[0]}])
        index.delete(["0"])
        index.commit()
        for query in queries:
            if metric == "l2":
                scores = -np.square(exact - query.astype(np.float64)).sum(axis=1)
            else:
                scores = exact @ query.astype(np.float64)
                if metric == "cosine":
                    scores /= np.linalg.norm(exact, axis=1) * np.linalg.norm(query.astype(np.float64))
            hits = index.search(vector=query, k=10)
            numbers = [0 if hit.id == "later" else int(hit.id) for hit in hits]
            found.append(len(set(numbers) & set(np.argsort(-scores)[:10].tolist())) / 10)
            error = np.abs(np.array([hit.score for hit in hits]) - scores[numbers]).max()
            assert error <= 0.1 * scores.std()
        given = index.get("7", vectors=True)[0].vectors[0]
        expected = vectors[7] / np.linalg.norm(vectors[7]) if metric == "cosine" else vectors[7]
        np.testing.assert_allclose(given, expected, rtol=2**-10, atol=2**-10 * np.abs(expected).max())
    assert np.mean(found) >= 0.95


def test_the_first_documents_of_shards_decide_how_all_store_vectors(tmp_path):
    """Also those of shards that are empty for some time, and after a crash between the commits of two shards."""
    vectors = (np.random.default_rng(0).standard_normal((60, 8)) + 100).astype(np.float32)
    docs = [{"id": str(n), "vectors": row} for n, row in enumerate(vectors)]
    options = {"writable": True, "create": True, "dim": 8, "metric": "cosine", "shards": 3}
    with Engine.open(tmp_path / "index", **options) as index:
        index.add([each for each in docs[:40] if shard_of(each["id"], 3) == 1])
        index.commit()
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add(docs)
        index.commit()
    exact = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    with Engine.open(tmp_path / "index") as index:
        for number in range(0, 60, 7):
            best = np.argsort(-(exact @ exact[number]))[:5].tolist()
            assert [int(hit.id) for hit in index.search(vector=vectors[number], k=5)] == best


@pytest.mark.parametrize("dim", [2, 24, 384])
def test_vectors_of_any_length_that_an_index_gave_out_are_stored_as_they_are(tmp_path, dim):
    """Short vectors are changed most by rounding to int8, and were scaled to norm 1 again."""
    vectors = np.random.default_rng(dim).normal(size=(300, dim)).astype(np.float32)
    documents = [{"id": str(n), "vectors": row} for n, row in enumerate(vectors)]
    given = []
    for folder in ("index", "copy"):
        engine.build(documents, tmp_path / folder, dim=dim, metric="cosine")
        with Engine.open(tmp_path / folder) as index:
            given.append(np.concatenate([each.vectors for each in index.get(map(str, range(300)), vectors=True)]))
        documents = [{"id": str(n), "vectors": row} for n, row in enumerate(given[0])]
    np.testing.assert_array_equal(given[0], given[1])
