"""The language of filters, and what a search with a filter answers in every mode."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidFilter, InvalidQuery, KMeans
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.filter import AllOf, parse_filter
from quarry.engine.options import SearchOptions
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder()
N_DOCS = 120


def document(number):
    return {
        "id": str(number),
        "text": f"word{number} word{number % 7} common",
        "metadata": {
            "number": number,
            "third": number % 3 == 0,
            "tags": [f"tag{number % 5}", f"tag{number % 2}"],
            "author": {"name": f"name{number % 4}", "born": 1900 + number % 50},
            "nothing": None,
            "half": number / 2,
            "story": f"{number % 2}" * 200,
        }
        | ({"rare": 1} if number % 40 == 0 else {}),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters") / "index"
    engine.build(map(document, range(80)), folder, encoder=ENCODER, representation=KMeans(2))
    with Engine.open(folder, writable=True, encoder=ENCODER) as index:
        index.add(map(document, range(70, N_DOCS)))
        index.delete([str(number) for number in range(0, N_DOCS, 11)])
        index.commit()
    return folder


LIVE = [document(number) for number in range(N_DOCS) if number % 11]

CASES = [
    ({}, lambda _: True),
    ({"number": 17}, lambda m: m["number"] == 17),
    ({"number": 17.0}, lambda m: m["number"] == 17),
    ({"number": np.int64(17)}, lambda m: m["number"] == 17),
    ({"third": np.True_}, lambda m: m["third"]),
    ({"number": {"$in": np.array([3, 17, 500])}}, lambda m: m["number"] in {3, 17}),
    ({"number": {"$nin": range(50)}}, lambda m: m["number"] >= 50),
    ({"half": 8}, lambda m: m["half"] == 8),
    ({"half": {"$gt": 8, "$lte": 20.5}}, lambda m: 8 < m["half"] <= 20.5),
    ({"number": {"$gte": 20, "$lt": 90}}, lambda m: 20 <= m["number"] < 90),
    ({"number": {"$in": [3, 5, 1000]}}, lambda m: m["number"] in (3, 5)),
    ({"number": {"$in": list(range(0, 100, 3))}}, lambda m: m["number"] in range(0, 100, 3)),
    ({"number": {"$in": []}}, lambda _: False),
    ({"number": {"$nin": [3, 5]}}, lambda m: m["number"] not in (3, 5)),
    ({"third": True}, lambda m: m["third"]),
    ({"third": {"$ne": True}}, lambda m: not m["third"]),
    ({"tags": "tag4"}, lambda m: "tag4" in m["tags"]),
    ({"tags": {"$gt": "tag3"}}, lambda m: any(tag > "tag3" for tag in m["tags"])),
    ({"author.name": "name2"}, lambda m: m["author"]["name"] == "name2"),
    ({"author": {"$exists": True}}, lambda _: True),
    ({"author.died": {"$exists": True}}, lambda _: False),
    ({"nothing": None}, lambda _: True),
    ({"rare": None}, lambda _: False),
    ({"rare": {"$exists": False}}, lambda m: "rare" not in m),
    ({"rare": {"$ne": 1}}, lambda m: "rare" not in m),
    ({"rare": {"$not": {"$gt": 0}}}, lambda m: "rare" not in m),
    ({"story": "0" * 200}, lambda m: m["number"] % 2 == 0),
    ({"story": {"$gte": "0" * 201}}, lambda m: m["number"] % 2 == 1),
    ({"$or": [{"number": 5}, {"third": True, "number": {"$lt": 30}}]},
     lambda m: m["number"] == 5 or (m["third"] and m["number"] < 30)),
    ({"$not": {"number": {"$lt": 50}}}, lambda m: m["number"] >= 50),
    ({"$and": [{"number": {"$gt": 10}}, {"number": {"$lt": 13}}], "third": True}, lambda m: m["number"] == 12),
    ({"absent": "x"}, lambda _: False),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "passes"), CASES)
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_every_mode_finds_what_passes_and_nothing_else(path, condition, passes, mode):
    expected = {each["id"] for each in LIVE if passes(each["metadata"])}
    with Engine.open(path, encoder=ENCODER) as index:
        hits = index.search("common word3", k=N_DOCS, mode=mode, filter=condition)
        assert {hit.id for hit in hits} == expected
        assert all(passes(hit.metadata) for hit in hits)
        assert index.count(condition) == len(expected)
        few = index.search("common word3", k=3, mode=mode, filter=condition)
        assert len(few) == min(3, len(expected))
        if mode != "hybrid":  # whose scores are relative to the candidates
            unfiltered = index.search("common word3", k=N_DOCS, mode=mode)
            assert hits == [hit for hit in unfiltered if hit.id in expected]
            assert few == hits[:3]


@pytest.mark.parametrize("backend", ["auto", "exact", "scan"])
def test_vectors(path, backend):
    queries = np.random.default_rng(0).standard_normal((4, ENCODER.dim)).astype(np.float32)
    with Engine.open(path, encoder=ENCODER, backend=backend) as index:
        every = index.search_vectors(queries, k=N_DOCS)
        for condition, passes in CASES:
            found = index.search_vectors(queries, k=5, filter=condition)
            assert found == [[hit for hit in hits if passes(hit.metadata)][:5] for hits in every]


def test_explanations_are_the_same(path):
    with Engine.open(path, encoder=ENCODER) as index:
        (hit,) = index.search("common word17", filter={"number": 17}, explain=True)
        (other,) = [each for each in index.search("common word17", 5, explain=True) if each.id == "17"]
    assert (hit.matches, hit.terms, hit.dense_score) == (other.matches, other.terms, other.dense_score)
    assert set(hit.terms) == {"common", "word17"}


def test_reranking_reads_what_passes(path):
    class Reversed:
        def scores(self, query, texts):
            return np.arange(len(texts), dtype=np.float32)

    with Engine.open(path, encoder=ENCODER) as index:
        index._reranker = Reversed()
        hits = index.search("common", 4, filter={"tags": "tag3"}, rerank=10)
    assert len(hits) == 4
    assert all("tag3" in hit.metadata["tags"] for hit in hits)


def test_a_filter_follows_changes(path, tmp_path):
    engine.build(map(document, range(10)), tmp_path / "index", encoder=ENCODER, representation=KMeans(2))
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        assert index.count({"number": {"$gte": 5}}) == 5
        index.delete("7")
        index.add([document(3) | {"metadata": {"number": 50}}])
        assert index.count({"number": {"$gte": 5}}) == 5
        index.commit()
        assert index.count({"number": {"$gte": 5}}) == 5
        assert index.count({"number": 3}) == 0
        assert [hit.id for hit in index.search("word3", filter={"number": 50})] == ["3"]


def test_merged_segments_pass_the_same(path, tmp_path):
    shutil.copytree(path, tmp_path / "index")
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        before = [[hit.id for hit in index.search("common", N_DOCS, filter=condition)] for condition, _ in CASES]
        assert index.stats()["n_segments"] == 2
        index.merge()
        assert index.stats()["n_segments"] == 1
        after = [[hit.id for hit in index.search("common", N_DOCS, filter=condition)] for condition, _ in CASES]
    assert [sorted(ids) for ids in after] == [sorted(ids) for ids in before]


def test_an_empty_index(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER, representation=KMeans(2))
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        assert index.count({"a": 1}) == 0
        for mode in ("dense", "lexical", "hybrid"):
            assert index.search("word", mode=mode, filter={"a": {"$ne": 1}}) == []


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ([], "no mapping; expected a mapping; found"),
        ("year", "no mapping"),
        ({1: 2}, "key that is no text; expected a path; found 1"),
        ({"a\ud800": 1}, "key that is no text"),
        ({"$nor": [{}]}, r"unknown operator; expected a path, \$and, \$or or \$not; found '\$nor'"),
        ({"$and": []}, r"field '\$and'; expected a list of one or more filters; found \[\]"),
        ({"$or": {"a": 1}}, r"field '\$or'; expected a list"),
        ({"$or": [1]}, "no mapping"),
        ({"$not": 1}, "no mapping"),
        ({"a": {}}, r"field 'a'; expected a value, or one of \$eq"),
        ({"a": {"$gtt": 1}}, r"field 'a': unknown operator; expected \$eq, .*; found '\$gtt'"),
        ({"a": {"b": 1}}, r"field 'a': unknown operator; .*written with dots; found 'b'"),
        ({"a": {1: 1}}, "field 'a': unknown operator; .*; found 1"),
        (
            {"a": [1, 2]},
            r"field 'a'; expected a str, int, float, bool or None; \$in takes several; found \[1, 2\]",
        ),
        ({"a": {"$eq": {"b": 1}}}, "field 'a'; expected a str, int"),
        ({"a": float("nan")}, "field 'a'; .* found nan"),
        ({"a": b"x"}, "field 'a'; .* found b'x'"),
        ({"a": np.float32(1)}, "field 'a'; expected a str, int"),
        ({"a": "\udc00"}, "field 'a'; expected a str"),
        ({"a": {"$in": 1}}, "field 'a'; expected a list; found 1"),
        ({"a": {"$in": "text"}}, "field 'a'; expected a list"),
        ({"a": {"$nin": [[1]]}}, "field 'a'; expected a str"),
        ({"a": {"$gt": True}}, r"field 'a: \$gt'; expected a number or a text, which have an order; found True"),
        ({"a": {"$lte": None}}, r"field 'a: \$lte'; expected a number or a text"),
        ({"a": {"$gte": [1]}}, "field 'a'; expected a str"),
        ({"a": {"$exists": 1}}, r"field 'a: \$exists'; expected True or False; found 1"),
        ({"a": {"$not": 1}}, r"field 'a: \$not'; expected a mapping of operators"),
        ({"x" * 500: [1]}, r"field 'x+\.\.\.x+'; expected"),
    ],
)
def test_malformed_filters(path, condition, message):
    with pytest.raises(InvalidFilter, match=message):
        SearchOptions(filter=condition)
    with Engine.open(path, encoder=ENCODER) as index, pytest.raises(InvalidQuery, match=message):
        index.count(condition)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inside: {"$not": inside},
        lambda inside: {"$and": [inside]},
        lambda inside: {"a": {"$not": inside["a"]}},
    ],
)
def test_depth_is_bounded(wrap):
    start = {"a": {"$eq": 1}}
    for levels, fits in ((30, True), (40, False), (5000, False)):
        condition = start
        for _ in range(levels):
            condition = wrap(condition)
        if fits:
            parse_filter(condition)
        else:
            with pytest.raises(InvalidFilter, match="levels"):
                parse_filter(condition)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"number": "17"}, "field 'number': compared with what it never holds; expected number; found text '17'"),
        ({"number": {"$gte": "2020"}}, "expected number; found text '2020'"),
        ({"number": True}, "expected number; found bool True"),
        ({"third": {"$gt": 0}}, "field 'third'.*expected bool; found number 0"),
        ({"author.name": {"$in": [1, 2]}}, "expected text; found number 1"),
        ({"$or": [{"$not": {"tags": {"$ne": 5}}}]}, "field 'tags'.*expected text; found number 5"),
        ({"story": 7}, "field 'story'.*expected text; found number 7"),
    ],
)
def test_operands_of_another_type(path, condition, message):
    with Engine.open(path, encoder=ENCODER) as index:
        for mode in ("dense", "lexical", "hybrid"):
            with pytest.raises(InvalidFilter, match=message):
                index.search("word", mode=mode, filter=condition)


def test_operands_that_may_be_of_any_type(path):
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.count({"number": {"$in": ["17", 17]}}) == 1
        assert index.count({"number": None}) == index.count({"nothing": 5}) == index.count({"absent": "x"}) == 0


def test_conditions_are_kept_apart_by_type():
    assert parse_filter({"a": True}) != parse_filter({"a": 1}) == parse_filter({"a": 1.0})
    assert parse_filter({"a": None}) != parse_filter({"a": 0})
    assert parse_filter({}) == AllOf(())
    assert len({parse_filter({"a": value}) for value in (True, 1, 1.0, "1", None, False, 0, -0.0)}) == 6


def test_many_filters_from_many_threads(path):
    snapshot, wrong = Snapshot(Directory(path)), []
    document_filter = DocumentFilter(snapshot.segments, 3 * 4800)

    def ask(first):
        for number in range(first, first + 60):
            below = number % 20
            expected = sum(1 for each in LIVE if each["metadata"]["number"] < below)
            if document_filter.count(parse_filter({"number": {"$lt": below}})) != expected:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(7 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < document_filter.resident_bytes <= 3 * 4800
    assert wrong == []
    snapshot.close()
