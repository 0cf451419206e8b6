"""Facets of whole and of sharded indexes."""

from __future__ import annotations

import json

import pytest
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import Engine, InvalidFilter, InvalidQuery, InvalidSetting

LONG = "x" * 200
METADATA = [
    {"lang": "en", "tags": ["a", "b", "a"], "n": 1, "flag": True, "note": LONG},
    {"lang": "de", "tags": ["b"], "n": 1.0, "flag": 1, "note": LONG + "y"},
    {"lang": "en", "tags": [], "n": 2.5, "flag": False, "note": LONG},
    {"lang": None, "tags": {"a": "b"}, "n": 1},
    {},
]


@pytest.fixture(scope="module", params=[None, 3], ids=["whole", "sharded"])
def index(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("facets") / "index"
    texts = ["red apple", "red pear", "green pear", "the pear", "apples"]
    docs = [{"id": str(n), "text": texts[n], "title": "T" * (n > 2), "metadata": METADATA[n]} for n in range(5)]
    engine.build(
        [*docs, {"id": "gone", "text": "red", "metadata": METADATA[0]}],
        path,
        encoder=ENCODER,
        shards=request.param,
    )
    with Engine.open(path, encoder=ENCODER, writable=True) as opened:
        opened.delete("gone")
        opened.commit()
        yield opened


def pairs(facets):
    return [(each.value, each.n_documents) for each in facets.values]


def test_values_of_all_types(index):
    assert pairs(index.facets("lang")) == [("en", 2), (None, 1), ("de", 1)]
    assert pairs(index.facets("n")) == [(1, 3), (2.5, 1)]
    assert pairs(index.facets("flag")) == [(False, 1), (True, 1), (1, 1)]
    assert [type(each.value) for each in index.facets("flag").values] == [bool, bool, int]
    assert pairs(index.facets("note")) == [(LONG, 2), (LONG + "y", 1)]


def test_several_values_and_none(index):
    tags = index.facets("tags")
    assert pairs(tags) == [("b", 2), ("a", 1)]
    assert (tags.n_values, tags.n_documents, tags.n_missing) == (2, 5, 3)
    assert pairs(index.facets("tags.a")) == [("b", 1)]


def test_ids_and_titles(index):
    assert pairs(index.facets("id")) == [(str(n), 1) for n in range(5)]
    titles = index.facets("title")
    assert (pairs(titles), titles.n_missing) == ([("T", 2)], 3)


def test_ids_and_titles_are_not_mixed_with_metadata_of_these_names(tmp_path):
    docs = [
        {"id": "a", "text": "x", "title": "T", "metadata": {"id": 7, "title": "other"}},
        {"id": "b", "text": "y"},
    ]
    with engine.build(docs, tmp_path / "index", encoder=ENCODER) and Engine.open(tmp_path / "index") as mixed:
        assert pairs(mixed.facets("id")) == [("a", 1), ("b", 1)]
        assert (pairs(mixed.facets("title")), mixed.facets("title").n_missing) == ([("T", 1)], 1)


def test_a_field_that_no_document_has(index):
    nothing = index.facets("nothing")
    assert (nothing.values, nothing.n_values, nothing.n_documents, nothing.n_missing) == ((), 0, 5, 5)


def test_the_documents_of_a_query_are_those_of_lexical_search(index):
    for query in ("apple", "red", "pears", "red apple", "unheard", "the", ""):
        expected = {hit.id for hit in index.search(query, k=100, mode="lexical")}
        found = index.facets("id", query=query)
        assert {each.value for each in found.values} == expected
        assert found.n_documents == len(expected)
    assert pairs(index.facets("lang", query="red")) == [("de", 1), ("en", 1)]
    assert pairs(index.facets("lang", query="pear", filter={"n": {"$gt": 1}})) == [("en", 1)]


@pytest.mark.parametrize("options", [{"prefix": True}, {"operators": True}, {"prefix": True, "operators": True}])
def test_they_follow_what_is_typed(index, options):
    for query in ("app", "red a", "gre", "the", "xyz", "n:1", "lang:en", "n:1 app", "lang:de -pear", "-pear"):
        expected = {hit.id for hit in index.search(query, k=100, mode="lexical", **options)}
        assert {each.value for each in index.facets("id", query=query, **options).values} == expected, query
    assert index.facets("id", query="app").n_documents == 0
    assert index.facets("id", query="app", prefix=True).n_documents == 2
    assert index.facets("id", query="", filter={"lang": "en"}).n_documents == 2


def test_a_limit_leaves_out_values_and_no_counts(index):
    some = index.facets("lang", limit=1)
    assert (pairs(some), some.n_values, some.n_documents) == ([("en", 2)], 3, 5)
    assert index.facets("lang", limit=0).values == ()


def test_they_are_plain_json(index):
    written = json.loads(json.dumps(index.facets("lang").to_dict()))
    assert written["values"][0] == {"value": "en", "n_documents": 2}
    assert written["n_missing"] == 1


def test_wrong_arguments(index):
    with pytest.raises(InvalidSetting, match="field is not a str"):
        index.facets(5)
    with pytest.raises(InvalidQuery):
        index.facets("lang", query=["red"])
    with pytest.raises(InvalidSetting, match="limit is out of range"):
        index.facets("lang", limit=-1)
    with pytest.raises(InvalidSetting, match="prefix"):
        index.facets("lang", prefix="yes")
    with pytest.raises(InvalidFilter):
        index.facets("lang", filter={"n": "text"})


def test_an_empty_index(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as empty:
        assert empty.facets("lang", query="x").n_documents == 0
