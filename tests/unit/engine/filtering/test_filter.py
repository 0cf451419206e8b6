"""The filter language, and filtered searches in every mode."""

from __future__ import annotations

import shutil
import sys
import threading
import tracemalloc
import warnings
from datetime import date, datetime
from enum import Enum
from http import HTTPStatus

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import BackendUnavailable, Engine, InvalidFilter, InvalidQuery, KMeans, UnknownFieldWarning
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.filter import AllOf, iterate_leaves, parse_filter
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.formats.container.directory import Directory
from quarry.formats.metadata.values import Kind, Scalar
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder()
N_DOCS = 120


def document(number):
    return {
        "id": str(number),
        "text": f"word{number} word{number % 7} common",
        "title": f"The Title {number % 3}" if number % 4 else "",
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


@pytest.fixture
def unknown_fields_pass():
    """Ignore warnings of unknown fields."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownFieldWarning)
        yield


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
@pytest.mark.usefixtures("unknown_fields_pass")
def test_every_mode_finds_what_passes_and_nothing_else(path, condition, passes, mode):
    expected = {each["id"] for each in LIVE if passes(each["metadata"])}
    with Engine.open(path, encoder=ENCODER) as index:
        hits = index.search("common word3", k=N_DOCS, mode=mode, filter=condition)
        assert {hit.id for hit in hits} == expected
        assert all(passes(hit.metadata) for hit in hits)
        assert index.count(condition) == len(expected)
        few = index.search("common word3", k=3, mode=mode, filter=condition)
        assert len(few) == min(3, len(expected))
        if mode != "hybrid":  # hybrid scores are relative to the candidates
            unfiltered = index.search("common word3", k=N_DOCS, mode=mode)
            assert hits == [hit for hit in unfiltered if hit.id in expected]
            assert few == hits[:3]


@pytest.mark.usefixtures("unknown_fields_pass")
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
        name = "reversed"

        def scores(self, query, texts):
            return np.arange(len(texts), dtype=np.float32)

    with Engine.open(path, encoder=ENCODER, reranker=Reversed()) as index:
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


@pytest.mark.usefixtures("unknown_fields_pass")
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
        ([], "not a mapping; expected a mapping; found"),
        ("year", "not a mapping"),
        ({1: 2}, "key that is not text; expected a path; found 1"),
        ({"a\ud800": 1}, "key that is not text"),
        ({"$nor": [{}]}, r"unknown operator; expected a path, \$and, \$or or \$not; found '\$nor'"),
        ({"$price": 5}, r"unknown operator; .*; found '\$price'"),
        ({"$eq": {"$eq": 5}}, r"unknown operator; .*; found '\$eq'"),
        ({"$and": []}, r"field '\$and'; expected a list of one or more filters; found \[\]"),
        ({"$or": {"a": 1}}, r"field '\$or'; expected a list"),
        ({"$or": [1]}, "not a mapping"),
        ({"$not": 1}, "not a mapping"),
        ({"$not": {}}, "a filter has an empty filter in it, which matches every document; expected a condition"),
        ({"$and": [{}]}, "an empty filter in it"),
        ({"a": 1, "$or": [{"b": 2}, {}]}, "an empty filter in it"),
        ({"$or": [{"b": 2}, {"$and": [{"c": 3}, {}]}]}, "an empty filter in it"),
        ({"a": {"$not": {}}}, r"field 'a'; expected a value, or one of \$eq"),
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
        ({"a": np.float32("nan")}, "field 'a'; expected a str, int"),
        ({"a": "\udc00"}, "field 'a'; expected a str"),
        ({"a": {"$in": 1}}, "field 'a'; expected a list; found 1"),
        ({"a": {"$in": "text"}}, "field 'a'; expected a list"),
        ({"a": {"$nin": [[1]]}}, "field 'a'; expected a str"),
        ({"a": {"$gt": True}}, r"field 'a: \$gt'; expected a number or a text; found True"),
        ({"a": {"$lte": None}}, r"field 'a: \$lte'; expected a number or a text"),
        ({"a": {"$gte": [1]}}, "field 'a'; expected a str"),
        ({"a": {"$exists": 1}}, r"field 'a: \$exists'; expected True or False; found 1"),
        ({"a": {"$not": 1}}, r"field 'a: \$not'; expected a mapping of operators"),
        ({"x" * 500: [1]}, r"field 'x+\.\.\.x+'; expected"),
    ],
)
def test_malformed_filters(path, condition, message):
    with pytest.raises(InvalidFilter, match=message):
        parse_filter(condition)
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
        (
            {"number": "17"},
            "field 'number': compared with a type that none of its values has; expected number; found text '17'",
        ),
        ({"number": {"$gte": "2020"}}, "expected number; found text '2020'"),
        ({"number": True}, "expected number; found bool True"),
        ({"third": {"$gt": 0}}, "field 'third'.*expected bool; found number 0"),
        ({"author.name": {"$in": [1, 2]}}, "expected text; found number 1"),
        ({"$or": [{"$not": {"tags": {"$ne": 5}}}]}, "field 'tags'.*expected text; found number 5"),
        ({"story": 7}, "field 'story'.*expected text; found number 7"),
        ({"id": 7}, "field 'id'.*expected text; found number 7"),
        ({"title": {"$gt": 7}}, "field 'title'.*expected text; found number 7"),
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
        assert index.count({"number": None}) == index.count({"nothing": 5}) == 0
        with pytest.warns(UnknownFieldWarning):
            assert index.count({"absent": "x"}) == 0


def ids_with(condition):
    """Return the ids of the live documents that satisfy a condition."""
    return {each["id"] for each in LIVE if condition(each)}


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ({"id": "17"}, lambda d: d["id"] == "17"),
        ({"id": "11"}, lambda _: False),  # deleted
        ({"id": "nobody"}, lambda _: False),
        ({"id": {"$in": ["17", "75", "nobody", "22"]}}, lambda d: d["id"] in ("17", "75")),
        ({"id": {"$nin": ["17", "75"]}}, lambda d: d["id"] not in ("17", "75")),
        ({"id": {"$gte": "5", "$lt": "7"}}, lambda d: "5" <= d["id"] < "7"),
        ({"id": {"$exists": True}}, lambda _: True),
        ({"id": {"$exists": False}}, lambda _: False),
        ({"id": None}, lambda _: False),
        ({"id": {"$in": [17, "17"]}}, lambda d: d["id"] == "17"),
        ({"title": "The Title 1"}, lambda d: d["title"] == "The Title 1"),
        ({"title": "the title 1"}, lambda _: False),
        ({"title": "The Title"}, lambda _: False),
        ({"title": "Title The 1"}, lambda _: False),
        ({"title": ""}, lambda _: False),
        ({"title": {"$ne": "The Title 1"}}, lambda d: d["title"] != "The Title 1"),
        ({"title": {"$in": ["The Title 0", "The Title 2"]}}, lambda d: d["title"][10:] in ("0", "2")),
        ({"title": {"$gt": "The Title 1"}}, lambda d: d["title"] > "The Title 1"),
        ({"title": {"$lte": "The Title 1"}}, lambda d: "" < d["title"] <= "The Title 1"),
        ({"title": {"$exists": True}}, lambda d: d["title"]),
        ({"title": {"$exists": False}}, lambda d: not d["title"]),
        ({"title": "The Title 1", "id": {"$lt": "3"}, "third": False},
         lambda d: d["title"] == "The Title 1" and d["id"] < "3" and not d["metadata"]["third"]),
    ],
)  # fmt: skip
def test_ids_and_titles(path, condition, passes):
    expected = ids_with(passes)
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.count(condition) == len(expected)
        for mode in ("dense", "lexical", "hybrid"):
            assert {hit.id for hit in index.search("common", N_DOCS, mode=mode, filter=condition)} == expected


def test_metadata_named_like_an_id_or_a_title(tmp_path):
    """Metadata fields named "id" or "title" add values to the document's id or title."""
    documents = [
        {"id": "a", "text": "text", "title": "one", "metadata": {"id": "b", "title": {"de": "eins"}}},
        {"id": "b", "text": "text", "title": "two", "metadata": {"id": 7, "title": ["one", "zwei"]}},
        {"id": "c", "text": "text", "metadata": {"title": "three"}},
    ]
    engine.build(documents, tmp_path / "index", encoder=ENCODER, representation=KMeans(2))
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:

        def found(condition):
            return "".join(sorted(hit.id for hit in index.search("text", mode="lexical", filter=condition)))

        assert found({"id": "b"}) == "ab"
        assert found({"id": {"$ne": "b"}}) == "c"
        assert found({"id": 7}) == "b"
        assert found({"id": {"$gte": "c"}}) == "c"
        assert found({"title": "one"}) == "ab"
        assert found({"title": "three"}) == "c"
        assert found({"title": {"$exists": True}}) == "abc"
        assert found({"title": {"$gt": "two"}}) == "b"
        assert found({"title.de": "eins"}) == "a"
        with pytest.raises(InvalidFilter, match="field 'title'"):
            found({"title": 7})


def test_titles_without_words(tmp_path):
    """Titles of stop words, punctuation or white space are matched although the postings have no terms of them."""
    titles = ["The Who", "the who", "?!", " ", "\n", "It"]
    documents = [{"id": str(n), "text": "text", "title": title} for n, title in enumerate(titles)]
    engine.build(documents, tmp_path / "index", encoder=ENCODER, representation=KMeans(2))
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for n, title in enumerate(titles):
            assert [hit.id for hit in index.search("text", filter={"title": title})] == [str(n)]
            assert index.count({"title": {"$ne": title}}) == len(titles) - 1


def test_conditions_are_kept_apart_by_type():
    assert parse_filter({"a": True}) != parse_filter({"a": 1}) == parse_filter({"a": 1.0})
    assert parse_filter({"a": None}) != parse_filter({"a": 0})
    assert parse_filter({}) == AllOf(())
    assert len({parse_filter({"a": value}) for value in (True, 1, 1.0, "1", None, False, 0, -0.0)}) == 6


def test_many_filters_from_many_threads(path):
    snapshot, wrong = Snapshot(Directory(path)), []
    document_filter = DocumentFilter(snapshot.segments, 3 * 4800, str.split)

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


def test_a_cached_filter_counts_what_its_objects_take(path):
    snapshot = Snapshot(Directory(path))
    document_filter = DocumentFilter(snapshot.segments, 600_000, str.split)
    ask(document_filter, 0)  # reads columns
    tracemalloc.start()
    for number in range(1, 8):
        ask(document_filter, number)
        held = tracemalloc.get_traced_memory()[0]
        assert 0.7 * held <= document_filter.resident_bytes <= 600_000
    tracemalloc.stop()
    assert document_filter.resident_bytes > 200_000
    before = document_filter.resident_bytes
    document_filter.count(parse_filter({"number": {"$in": list(range(20_000))}}))
    assert document_filter.resident_bytes == before  # one that is larger than the cache is not kept
    snapshot.close()


def ask(document_filter, first):
    texts = [f"{first} {'x' * 50} {number}" for number in range(200)]
    numbers = list(range(1000 * first, 1000 * first + 1000))
    document_filter.count(parse_filter({"$or": [{"number": {"$in": numbers}}, {"title": {"$in": texts}}]}))


@pytest.mark.parametrize(
    "make",
    [
        lambda number: {f"{number}{'p' * 50_000}": 1},
        lambda number: {f"{number}{'p' * 50_000}": {"$exists": True}},
        lambda number: {"text": {"$contains": f"{number}{'p' * 50_000}"}},
        lambda number: {"$or": [nested({"number": 100 * number + each}) for each in range(100)]},
    ],
)
@pytest.mark.filterwarnings("ignore::quarry.engine.UnknownFieldWarning")
def test_all_that_grows_with_a_filter_is_counted(path, make):
    snapshot = Snapshot(Directory(path))
    document_filter = DocumentFilter(snapshot.segments, 3_000_000, str.split)
    document_filter.count(parse_filter(make(0)))  # reads columns
    before = document_filter.resident_bytes
    tracemalloc.start()
    for number in range(1, 8):
        document_filter.count(parse_filter(make(number)))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.7 * held <= document_filter.resident_bytes - before
    snapshot.close()


def nested(condition):
    """Return an equivalent filter of many levels."""
    for _ in range(7):
        condition = {"$and": [{"$or": [{"$not": {"$not": condition}}]}]}
    return condition


def test_warnings_remember_no_names_of_fields():
    unknown = UnknownFields()
    tracemalloc.start()
    with pytest.warns(UnknownFieldWarning) as issued:
        warn_twice(unknown, 20)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(issued) == 20
    assert held < 500_000


def warn_twice(unknown, n_fields):
    for number in [*range(n_fields), *range(n_fields)]:
        unknown.warn(f"{number}{'p' * 50_000}", list)


def test_the_number_of_conditions_is_limited():
    def with_conditions(n):
        return {"$or": [{"$not": {"number": {"$gt": number}}} for number in range(n - 1)] + [{"number": 1}]}

    parse_filter(with_conditions(4096))
    parse_filter({"number": {"$in": list(range(10_000))}})
    with pytest.raises(InvalidFilter, match=r"at most 4096.*found 4097"):
        parse_filter(with_conditions(4097))


def messages(index, *conditions):
    """Return the warnings that filters issue, as the standard library shows them."""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for condition in conditions:
            index.count(condition)
    assert {each.category for each in issued} <= {UnknownFieldWarning}
    assert {each.filename for each in issued} <= {__file__}
    return [str(each.message) for each in issued]


def test_an_unknown_field_is_warned_about_once(path):
    with Engine.open(path, encoder=ENCODER) as index:
        assert messages(index, {"autor.name": "x", "number": 1}) == [
            "filter: no document has the field 'autor.name'; the nearest fields are 'author.name', 'author.born', "
            "'author'"
        ]
        assert messages(index, {"autor.name": {"$ne": "y"}}, {"third": True}) == []
        (message,) = messages(index, {"$or": [{"Tag": "x"}, {"autor.name": "z"}]})
        assert "'Tag'; the nearest fields are 'tags'" in message
        (message,) = messages(index, {"$not": {"titel": {"$gt": "x"}}})
        assert "'title'" in message
    with Engine.open(path, encoder=ENCODER) as index:
        assert len(messages(index, {"autor.name": "x"})) == 1


@pytest.mark.parametrize(
    "condition",
    [
        {"absent": {"$exists": False}},
        {"absent": {"$not": {"$exists": True}}},
        {"id": "nobody"},
        {"title": "no such title"},
        {"nothing": 5},
        {"author": 5},
        {},
    ],
)
def test_no_warning(path, condition):
    with Engine.open(path, encoder=ENCODER) as index:
        assert messages(index, condition) == []


def test_a_search_warns_at_the_line_of_the_call(path):
    with Engine.open(path, encoder=ENCODER) as index:
        for number, mode in enumerate(("dense", "lexical", "hybrid")):
            with pytest.warns(UnknownFieldWarning, match=f"'absent{number}'") as issued:
                assert index.search("common", mode=mode, filter={f"absent{number}": 1}) == []
            assert [each.filename for each in issued] == [__file__]


def test_a_warning_as_an_error_is_raised_each_time(path):
    with Engine.open(path, encoder=ENCODER) as index:
        for _ in range(2):
            with pytest.raises(UnknownFieldWarning, match="'absent'"):
                index.count({"absent": 1})


def test_an_unknown_field_of_every_generation(tmp_path):
    """Fields of deleted documents only are unknown, and a field is warned about once across commits."""
    path = tmp_path / "index"
    engine.build([], path, encoder=ENCODER, representation=KMeans(2))
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        assert messages(index, {"field": 1}) == []  # there are no documents
        index.add([{"id": "a", "text": "text", "metadata": {"field": 1}}, {"id": "b", "text": "text"}])
        index.commit()
        assert messages(index, {"field": 2}) == []
        index.delete("a")
        index.commit()
        assert messages(index, {"field": 1}) == [
            "filter: no document has the field 'field'; the nearest fields are 'id', 'title', 'text'"
        ]
        index.add([{"id": "c", "text": "text"}])
        index.commit()
        assert messages(index, {"field": 1}) == []
        index.optimize()
        assert messages(index, {"field": 2}) == []


def test_warnings_are_bounded(path):
    with Engine.open(path, encoder=ENCODER) as index:
        unknown = [{f"absent{number}": 1} for number in range(150)]
        assert len(messages(index, *unknown)) == 100


def test_a_long_field_is_shortened_in_a_warning(path):
    with Engine.open(path, encoder=ENCODER) as index:
        (message,) = messages(index, {"x" * 5000: 1})
    assert f"'{'x' * 60}...'" in message
    assert len(message) < 300


def test_types_of_deleted_values_do_not_count(tmp_path):
    """Type errors depend on live documents only, before and after a merge."""
    path = tmp_path / "index"
    documents = [
        {"id": "a", "text": "text", "metadata": {"year": 2020, "note": "x"}},
        {"id": "b", "text": "text", "metadata": {"year": "2021", "note": 5, "other": [1, "long" * 50]}},
        {"id": "c", "text": "text", "metadata": {"year": 2022, "note": None}},
    ]
    engine.build(documents, path, encoder=ENCODER, representation=KMeans(2))
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        assert index.count({"year": "2021"}) == 1
        index.delete("b")
        index.commit()
        for _ in range(2):
            with pytest.raises(InvalidFilter, match=r"'year'.*expected number; found text"):
                index.count({"year": "2021"})
            with pytest.raises(InvalidFilter, match=r"'note'.*expected text; found number"):
                index.count({"note": {"$not": {"$lt": 7}}})
            assert index.count({"year": {"$in": ["2021", 2022]}}) == 1
            index.merge()
        assert index.stats()["n_deleted"] == 0


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """Build an index of documents with dates, times and tags."""
    path = tmp_path_factory.mktemp("dated")
    metadata = {
        "day": {"at": date(2025, 1, 2), "tags": ["a", "b"]},
        "evening": {"at": datetime(2025, 1, 2, 18, 30), "tags": ["a"]},
        "next": {"at": "2025-01-03", "tags": ["b", "c", "a"]},
        "last": {"at": "9999-12-31T23:59:59", "tags": "a"},
    }
    engine.build(
        [{"id": name, "text": "text", "metadata": fields} for name, fields in metadata.items()],
        path,
        encoder=ENCODER,
        representation=KMeans(2),
    )
    return path


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ({"at": date(2025, 1, 2)}, "day"),
        ({"at": {"$lte": "2025-01-02"}}, "day evening"),
        ({"at": {"$gt": date(2025, 1, 2)}}, "next last"),
        ({"at": {"$gte": datetime(2025, 1, 2, 18)}}, "evening next last"),
        ({"at": {"$gte": np.datetime64("2025-01-02T18", "ns")}}, "evening next last"),
        ({"at": {"$lt": "2025-01-02"}}, ""),
        ({"at": {"$between": ["2025-01-01", date(2025, 1, 2)]}}, "day evening"),
        ({"at": {"$not": {"$between": ["2025-01-02", "2025-01-02"]}}}, "next last"),
        ({"at": {"$lte": "9999-12-31"}}, "day evening next"),  # no day is after it
        ({"at": {"$lte": "2025-13-99"}}, "day evening next"),  # a text
        ({"tags": {"$between": ["aa", "b"]}}, "day next"),
        ({"tags": {"$between": ["bb", "bz"]}}, ""),  # one member is above, and another below, but none between
        ({"tags": {"$not": {"$between": ["bb", "bz"]}}}, "day evening next last"),
        ({"id": {"$between": ["e", "m"]}}, "evening last"),
        ({"tags": {"$all": ["a", "b"]}}, "day next"),
        ({"tags": {"$all": ("a",)}}, "day evening next last"),
    ],
)
def test_days_times_and_tags(dated, condition, passes):
    with Engine.open(dated, encoder=ENCODER) as index:
        found = {hit.id for hit in index.search("text", k=10, filter=condition)}
    assert found == set(passes.split())


@pytest.mark.parametrize(
    "wrong",
    [
        {"$between": [1]},
        {"$between": "ab"},
        {"$between": [1, None]},
        {"$between": {1, 2}},
        {"$all": []},
        {"$all": "a"},
        {"$all": [[1]]},
    ],
)
def test_wrong_ranges_and_lists_are_refused(wrong):
    with pytest.raises(InvalidFilter, match=r"field 'a"):
        parse_filter({"a": wrong})


@pytest.fixture(scope="module")
def goods(tmp_path_factory):
    """Build an index of goods with lists and texts, in two segments, with a deleted document."""
    path = tmp_path_factory.mktemp("goods")
    long = "Straße " * 40 + "END"
    metadata = {
        "tea": {"tags": ["Green", "loose"], "reviews": [{"by": "Ann", "stars": 2}, {"by": "Bob", "stars": 5}]},
        "cup": {"tags": [], "reviews": [{"by": "Ann", "stars": 5, "tags": ["x"]}], "note": long},
        "pot": {"tags": "green", "reviews": [], "marks": [[1, 9], [5]]},
        "tin": {"tags": {}, "reviews": {"by": "Ann", "stars": 5}, "note": "STRASSE", "text": "Tea"},
        "jar": {"tags": ["loose"], "note": "deleted"},
    }
    documents = [{"id": name, "text": f"The {name}\nof Ann", "metadata": each} for name, each in metadata.items()]
    engine.build(documents[:2], path, encoder=ENCODER, representation=KMeans(2))
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        index.add(documents[2:])
        index.delete(["jar"])
        index.commit()
    return path


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ({"tags": {"$ieq": "GREEN"}}, "tea pot"),
        ({"tags": {"$not": {"$ieq": "GREEN"}}}, "cup tin"),
        ({"note": {"$ieq": "straße"}}, "tin"),
        ({"note": {"$icontains": "se end"}}, "cup"),
        ({"note": {"$iprefix": "strass"}}, "cup tin"),
        ({"id": {"$iprefix": "T"}}, "tea tin"),
        ({"text": {"$contains": "The p"}}, "pot"),
        ({"text": {"$icontains": "TEA"}}, "tea tin"),
        ({"text": "The cup\nof Ann"}, "cup"),
        ({"text": {"$exists": True}, "note": {"$exists": True}}, "cup tin"),
        ({"tags": {"$size": 0}}, "cup"),
        ({"tags": []}, "cup"),
        ({"tags": {"$ne": []}}, "tea pot tin"),
        ({"tags": {"$size": 2}}, "tea"),
        ({"reviews": {"$size": np.int8(1)}}, "cup"),
        ({"reviews.tags": {"$size": 1}}, "cup"),
        ({"marks": {"$size": 2}}, "pot"),
        ({"reviews": {"$elemMatch": {"by": "Ann", "stars": 5}}}, "cup"),
        ({"reviews": {"$elemMatch": {"$or": [{"by": "Bob"}, {"tags": "x"}]}}}, "tea cup"),
        ({"reviews": {"$elemMatch": {"$not": {"by": "Ann"}}}}, "tea"),
        ({"reviews": {"$elemMatch": {"tags": {"$elemMatch": {"$gte": "w", "$lt": "y"}}}}}, "cup"),
        ({"reviews": {"$not": {"$elemMatch": {"stars": {"$gt": 4}}}}}, "pot tin"),
        ({"marks": {"$elemMatch": {"$gt": 5}}}, "pot"),
        ({"tags": {"$elemMatch": {"$ne": "loose"}}}, "tea"),
    ],
)
def test_lists_texts_and_case(goods, condition, passes):
    with Engine.open(goods, writable=True, encoder=ENCODER) as index:
        assert sorted(index.ids(filter=condition)) == sorted(passes.split())
        assert index.delete(filter=condition) == len(passes.split())  # not committed


@pytest.mark.parametrize(
    ("pattern", "passes"), [("(?i)^GREEN$", "tea pot"), ("^l..se$", "tea"), ("^$", ""), ("e{2}", "tea pot")]
)
def test_regular_expressions(goods, pattern, passes):
    pytest.importorskip("re2")
    with Engine.open(goods, encoder=ENCODER) as index:
        assert sorted(index.ids(filter={"tags": {"$regex": pattern}})) == sorted(passes.split())
        assert index.count({"note": {"$regex": "END$"}, "text": {"$regex": "(?s)cup.*Ann"}}) == 1


@pytest.mark.parametrize("pattern", ["(a", r"(a)\1", "(?=a)", "(x{900}){900}", "a" * 1001])
def test_regular_expressions_that_may_take_for_ever_are_refused(pattern):
    pytest.importorskip("re2")
    with pytest.raises(InvalidFilter, match=r"field 'a: \$regex'; expected"):
        parse_filter({"a": {"$regex": pattern}})


def test_regular_expressions_need_a_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(BackendUnavailable, match=r"pip install quarry-search\[regex\]"):
        parse_filter({"a": {"$regex": "no other test has this"}})


def test_a_regular_expression_takes_linear_time():
    pytest.importorskip("re2")
    (comparison,) = iterate_leaves(parse_filter({"a": {"$regex": "^(a+)+(b|a*)*c$"}}))
    assert not comparison.holds([Scalar(Kind.TEXT, "a" * 100_000)])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"$size": -1}, "a whole number of members"),
        ({"$size": True}, "a whole number of members"),
        ({"$size": 1.0}, "a whole number of members"),
        ({"$elemMatch": {}}, "a mapping of operators"),
        ({"$elemMatch": [1]}, "a mapping of operators"),
        ({"$elemMatch": {"b": {"$gt": None}}}, r"'a\.b: \$gt'; expected a number or a text"),
        ({"$icontains": 1}, "a text"),
        ({"$regex": 1}, "a text"),
        ({"$contain": "x"}, r"the nearest: \$contains"),
    ],
)
def test_wrong_operands_of_lists_and_texts_are_refused(wrong, message):
    with pytest.raises(InvalidFilter, match=message):
        parse_filter({"a": wrong})


def test_types_and_fields_within_members_are_checked(goods):
    with Engine.open(goods, encoder=ENCODER) as index:
        with pytest.raises(InvalidFilter, match=r"'reviews\.stars'.*expected number; found text"):
            index.count({"reviews": {"$elemMatch": {"stars": "five"}}})
        with pytest.warns(UnknownFieldWarning, match=r"'reviews\.star'; the nearest fields are 'reviews\.stars'"):
            index.count({"reviews": {"$elemMatch": {"$not": {"star": 5}}}})
        with pytest.warns(UnknownFieldWarning, match="'tag'"):
            index.count({"tag": {"$size": 1}})


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float16, np.float32, np.float64, np.longdouble])
def test_numbers_of_numpy_are_operands(kind):
    assert parse_filter({"a": kind(2)}) == parse_filter({"a": 2})
    assert parse_filter({"a": {"$gte": kind(2)}}) == parse_filter({"a": {"$gte": 2}})
    assert parse_filter({"a": {"$in": [kind(2)]}}) == parse_filter({"a": {"$in": [2]}})
    assert parse_filter({"a": np.array(2, kind)}) == parse_filter({"a": 2})
    assert parse_filter({"a": np.bool_(True)}) == parse_filter({"a": True})
    assert parse_filter({"a": {"$exists": np.bool_(False)}}) == parse_filter({"a": {"$exists": False}})
    for wrong in (np.complex64(1), np.timedelta64(1, "s"), np.datetime64("NaT")):
        with pytest.raises(InvalidFilter):
            parse_filter({"a": wrong})


def test_members_of_enumerations_are_compared_by_their_values():
    class Color(str, Enum):  # noqa: UP042  # whose str() is not its value
        RED = "red"

    assert parse_filter({"c": Color.RED, "l": HTTPStatus.OK}) == parse_filter({"c": "red", "l": 200})
