"""JSON is parsed strictly, and errors name the path of an invalid value."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")

from quarry.engine.options import SearchKeywords
from quarry.server.http.failures import RequestError
from quarry.server.http.json_schema import check, parse_json
from quarry.server.limits import Limits
from quarry.server.searches import batch_schema, parse_batch, parse_search, search_schema

LIMITS = Limits()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "\\u00e9"]}', {"a": [1, 2.5, None, True, "é"]}),
        (b" 7 ", 7),
        (b"-9223372036854775808", -(2**63)),
        (b"1e300", 1e300),
        ('"文"'.encode(), "文"),
    ],
)
def test_json_is_parsed(body: bytes, value: object) -> None:
    assert parse_json(body) == value


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"k": NaN}', "NaN is not a number of JSON"),
        (b'{"k": -Infinity}', "-Infinity is not a number of JSON"),
        (b'{"k": 1e999}', "too large"),
        (b'{"k": ' + b"9" * 5000 + b"}", "too large"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"\xef\xbb\xbf{}", "BOM"),
    ],
)
def test_what_is_not_json_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as raised:
        parse_json(body)
    assert raised.value.status == 400


QUERY = {"query": "tides"}


@pytest.mark.parametrize(
    ("body", "field", "expected", "found"),
    [
        ([], "body", "object", "[]"),
        ({"query": "x" * 10_001}, "query", "0 to 10000 characters", "10001"),
        ({"query": ["tides"]}, "query", "string or null", "['tides']"),
        ({"vector": ["a"]}, "vector[0]", "number", "'a'"),
        ({"vector": [[1]]}, "vector[0]", "number", "[1]"),
        ({"like": ""}, "like", "1 to 4096 characters", "0"),
        ({"like": None}, "like", "string", "null"),
        ({"query": "\ud800"}, "query", "text that UTF-8 can encode", "'\\ud800'"),
        (QUERY | {"k": 0}, "k", "a number from 1 to 1000", "0"),
        (QUERY | {"k": 1001}, "k", "a number from 1 to 1000", "1001"),
        (QUERY | {"k": True}, "k", "integer", "true"),
        (QUERY | {"k": 2.5}, "k", "integer", "2.5"),
        (QUERY | {"k": 10**300}, "k", "a number from 1 to 1000", None),
        (QUERY | {"mode": "fuzzy"}, "mode", "hybrid or dense or lexical", "'fuzzy'"),
        (QUERY | {"filter": []}, "filter", "object or null", "[]"),
        (QUERY | {"dense_weight": 1.01}, "dense_weight", "a number from 0 to 1", "1.01"),
        (QUERY | {"explain": 1}, "explain", "boolean", "1"),
        (QUERY | {"timeout": 31}, "timeout", "a number from 0 to 30.0", "31"),
        (QUERY | {"limit": 3}, "limit", "query, vector, like, k", "'limit'"),
    ],
)
def test_a_search_that_is_not_valid_is_refused(body: object, field: str, expected: str, found: str | None) -> None:
    with pytest.raises(RequestError) as raised:
        parse_search(body, LIMITS)
    assert (raised.value.status, raised.value.field) == (422, field)
    assert raised.value.expected is not None
    assert raised.value.expected.startswith(expected)
    assert found is None or raised.value.found == found


@pytest.mark.parametrize(
    ("queries", "field"),
    [
        ([], "queries"),
        (["a"] * 101, "queries"),
        (["a", ""], "queries[1]"),
        (["a", 5], "queries[1]"),
        ("a", "queries"),
    ],
)
def test_a_batch_that_is_not_valid_is_refused(queries: object, field: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse_batch({"queries": queries}, LIMITS)
    assert raised.value.field == field


def test_a_batch_has_no_document_as_its_query() -> None:
    with pytest.raises(RequestError, match="the field 'like' is unknown"):
        parse_batch({"queries": ["a"], "like": "d1"}, LIMITS)


def test_a_batch_may_not_ask_for_too_many_hits() -> None:
    for searched in ({"queries": ["a"] * 10}, {"vectors": [[1, 2]] * 10}):
        parse_batch({**searched, "k": 1000}, LIMITS)
        with pytest.raises(RequestError, match="too many hits"):
            parse_batch({name: [*each, each[0]] for name, each in searched.items()} | {"k": 1000}, LIMITS)


def test_all_options_are_given_to_the_engine() -> None:
    options = {
        "mode": "dense",
        "filter": {"year": 2020},
        "explain": True,
        "fusion": "rrf",
        "dense_weight": 0,
        "candidates": 50,
        "nprobe": 3,
        "rerank": 20,
        "offset": 2,
        "min_relevance": 0.25,
        "typos": False,
        "operators": True,
        "prefix": True,
        "partial": True,
        "timeout": 1.5,
        "unit": "passage",
        "context": 1,
        "sort": ["-year", "title"],
        "boost": {"date": {"recency": {"half_life": "30d"}}},
        "group_by": "brand",
        "group_size": 2,
        "total": True,
    }
    wanted = parse_search({"query": "tides", "k": 7, "fields": ["id"], **options}, LIMITS)
    assert (wanted.queries, wanted.k, wanted.fields, wanted.options) == ("tides", 7, ["id"], options)
    liked = parse_search({"like": "d1", "timeout": 1}, LIMITS)
    assert (liked.queries, liked.options) == (None, {"like": "d1", "timeout": 1})
    both = {"k", "texts", "fields", *options}
    assert set(search_schema(LIMITS)["properties"]) == {"query", "vector", "like", *both}
    assert set(batch_schema(LIMITS)["properties"]) == {"queries", "vectors", *both}


def test_the_schema_of_nested_values_is_checked() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "required": ["b"], "properties": {"b": {}}}}
        },
    }
    check({"a": [{"b": 1}], "other": 3}, schema)
    with pytest.raises(RequestError, match=r"a\[1\].b is missing"):
        check({"a": [{"b": 1}, {}]}, schema)


def test_a_search_has_the_options_of_the_engine() -> None:
    assert set(SearchKeywords.__annotations__) <= set(search_schema(LIMITS)["properties"])
