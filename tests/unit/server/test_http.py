"""Requests over real connections have the engine's answers, and errors have one format."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import cache, reduce
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")
pytest.importorskip("uvicorn", reason="serving needs the extra server")

from starlette.applications import Starlette
from starlette.routing import Mount
from support.indexes.sharded import random_documents, random_queries
from support.indexes.word_encoder import WordEncoder
from support.processes import until
from support.server.running_server import NDJSON, READ_KEY, WRITE_KEY, Answer, RunningServer, bearer, running

from quarry import engine
from quarry.formats.errors import IndexNotFound, InvalidSetting
from quarry.server import Access, Limits, app
from quarry.server.http.failures import RequestError
from quarry.server.workers import finished

ENCODER = WordEncoder()
LONGEST_S = 60.0
ODD_IDS = ["a/b", "/begin", "end/", "a//b", "%2F", "?#&=", "é 文 😀", "..", "a\nb", "документ", "search"]
DOCUMENTS = [
    *random_documents(200),
    *({"id": each, "text": f"odd {number}"} for number, each in enumerate(ODD_IDS)),
]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build one index without shards and one of three shards, for reading only."""
    folder = tmp_path_factory.mktemp("served")
    engine.build(DOCUMENTS, folder / "whole", encoder=ENCODER)
    engine.build(DOCUMENTS, folder / "sharded", encoder=ENCODER, shards=3)
    return {"whole": folder / "whole", "sharded": folder / "sharded"}


@pytest.fixture(scope="module")
def reader(indexes: dict[str, Path]) -> Iterator[RunningServer]:
    """Serve both indexes without keys and with small limits."""
    limits = Limits(max_k=50, max_queries=5, max_body_bytes=20_000)
    with app(indexes, encoder=ENCODER, limits=limits) as served, running(served) as server:
        yield server


DEEP = reduce(lambda inside, _: {"c": inside}, range(12), 1)
BOTH_KINDS = pytest.mark.parametrize("path", [None, 2], indirect=True, ids=["whole", "sharded"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int | None], Path]:
    """Return a function that builds a small index once, without shards or with the given number."""
    documents = [{"id": "moon", "text": "the moon and the tides"}, {"id": "bread", "text": "bread and butter"}]

    @cache
    def build(shards: int | None) -> Path:
        path = tmp_path_factory.mktemp("small") / "index"
        engine.build(documents, path, encoder=ENCODER, shards=shards)
        return path

    return build


@pytest.fixture
def path(request: pytest.FixtureRequest, small: Callable[[int | None], Path], tmp_path: Path) -> Path:
    """Copy a small index for changes."""
    return shutil.copytree(small(getattr(request, "param", None)), tmp_path / "index")


@pytest.fixture
def writer(path: Path) -> Iterator[RunningServer]:
    """Serve the index with both keys."""
    access = Access(read_key=READ_KEY, write_key=WRITE_KEY)
    limits = Limits(max_upload_bytes=100_000, timeout_s=0.3)
    with app([path], encoder=ENCODER, access=access, limits=limits) as served, running(served) as server:
        yield server


@pytest.mark.parametrize("name", ["whole", "sharded"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "dense", "k": 3},
        {"mode": "lexical", "explain": True},
        {"mode": "lexical", "operators": False, "typos": False},
        {"operators": True},
        {"explain": True, "k": 50, "offset": 3},
        {"filter": {"number": {"$in": [1, 2]}}, "explain": True},
        {"fusion": "rrf", "dense_weight": 0.5, "candidates": 100, "nprobe": 4},
        {"sort": ["-number", "id"], "total": True, "unit": "passage"},
        {"sort": "number", "group_by": "number", "group_size": 2, "k": 3},
        {"boost": {"number": {"linear": {"weight": 0.3}}, "id": {"pin": {"values": ["document 0003"]}}}},
        {"prefix": True, "unit": "passage", "context": 1, "partial": True, "timeout": 9.5},
        {"mode": "dense", "vector": [0.1] * ENCODER.dim},
        {"vector": [0.1] * ENCODER.dim, "typos": False},
    ],
    ids=str,
)
def test_a_search_has_the_hits_of_the_engine(reader: RunningServer, indexes, name: str, options) -> None:
    with engine.Engine.open(indexes[name], encoder=ENCODER) as index:
        for query in random_queries(4):
            hits = index.search(query, **options)
            answer = reader.search(name, query=query, **options).json
            wanted = [hit.to_dict() | {"place": None} for hit in hits]
            assert answer["hits"] == json.loads(json.dumps(wanted))
            assert answer["answerable"] == hits.answerable
            assert answer["exactness"] == hits.exactness
            assert answer["total"] == hits.total
            assert answer["coverage"] == (None if hits.coverage is None else hits.coverage.to_dict())


@pytest.mark.parametrize("name", ["whole", "sharded"])
@pytest.mark.parametrize(
    "options", [{}, {"mode": "lexical", "explain": True, "k": 3}, {"filter": {"number": 1}}], ids=str
)
def test_documents_like_one_are_found(reader: RunningServer, indexes, name: str, options) -> None:
    liked = str(DOCUMENTS[7]["id"])
    with engine.Engine.open(indexes[name], encoder=ENCODER) as index:
        hits = index.search(like=liked, **options)
        answer = reader.search(name, like=liked, **options).json
        assert answer["hits"] == json.loads(json.dumps([hit.to_dict() | {"place": None} for hit in hits]))
        assert liked not in [hit["id"] for hit in answer["hits"]]


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_documents_are_found_without_a_query(reader: RunningServer, indexes, name: str) -> None:
    vector = [0.1] * ENCODER.dim
    with engine.Engine.open(indexes[name], encoder=ENCODER) as index:
        arranged = ({"filter": {"number": 3}}, {"sort": "-number"}, {"group_by": "number"})
        for request in (*arranged, {"vector": vector}):
            want = json.loads(json.dumps([hit.to_dict() | {"place": None} for hit in index.search(**request)]))
            for blank in ({}, {"query": None}, *([{"query": ""}] if "vector" not in request else [])):
                assert reader.search(name, **request, **blank).json["hits"] == want, (request, blank)
        batch = reader.post(f"/v1/indexes/{name}/search/batch", {"vectors": [vector, [1] * ENCODER.dim]}).json
        found = index.search(vector=[vector, [1] * ENCODER.dim])
        assert [[hit["id"] for hit in each["hits"]] for each in batch["results"]] == [
            [hit.id for hit in hits] for hits in found
        ]
    for request, field in (
        ({}, "query"),
        ({"query": None, "k": 3}, "query"),
        ({"filter": None}, "query"),
        ({"filter": {"$what": 1}}, "filter"),
        ({"like": "document 0003", "filter": {"$what": 1}}, "filter"),
        ({"vector": [1]}, "vector"),
        ({"vector": [1], "like": "document 0003"}, "like"),
        ({"vector": vector, "mode": "lexical"}, "mode"),
    ):
        answer = reader.search(name, **request)
        assert (answer.status, answer.error["field"]) == (422, field), request
    assert reader.post(f"/v1/indexes/{name}/search/batch", {"k": 3}).error["field"] == "queries"


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_a_document_that_is_not_there_has_no_like(reader: RunningServer, name: str) -> None:
    for request in ({"like": "nobody"}, {"like": "nobody", "rerank": 20}, {"like": "a/b", "query": "w1"}):
        answer = reader.search(name, **request)
        assert (answer.status, answer.error["field"]) == (422, "like"), request


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_a_batch_has_the_hits_of_each_query(reader: RunningServer, name: str) -> None:
    queries = random_queries(5)
    answer = reader.post(f"/v1/indexes/{name}/search/batch", {"queries": queries, "k": 4, "explain": True})
    assert answer.json["results"] == [
        reader.search(name, query=query, k=4, explain=True).json for query in queries
    ]


def test_texts_can_be_left_out(reader: RunningServer) -> None:
    hits = reader.search("whole", query="w1", texts=False, explain=True).json["hits"]
    assert len(hits) == 10
    assert all(hit.keys() & {"text", "passages", "matches"} == set() and hit["terms"] for hit in hits)


def test_hits_have_the_fields_that_are_asked_for(reader: RunningServer) -> None:
    hits = reader.search("whole", query="w1", k=3, fields=["id", "relevance", "text"]).json["hits"]
    assert [list(hit) for hit in hits] == [["id", "relevance", "text"]] * 3
    (hit,) = reader.search("whole", query="w1", k=1, fields=["id", "text"], texts=False).json["hits"]
    assert hit.keys() == {"id"}
    answer = reader.search("whole", query="w1", fields=["ID"])
    assert (answer.status, answer.error["field"]) == (422, "fields[0]")


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_documents_are_found_by_odd_ids(reader: RunningServer, name: str) -> None:
    for number, doc_id in enumerate(ODD_IDS):
        want = {"id": doc_id, "title": "", "text": f"odd {number}", "metadata": {}}
        for safe in ("", "/"):
            path = f"/v1/indexes/{name}/documents/{urllib.parse.quote(doc_id, safe=safe)}"
            assert reader.ask("GET", path).json == want
    query = urllib.parse.urlencode([("id", each) for each in [*ODD_IDS, "nobody", "nobody"]])
    found = reader.ask("GET", f"/v1/indexes/{name}/documents?{query}").json
    assert [each["id"] for each in found["documents"]] == ODD_IDS
    assert found["missing"] == ["nobody"]


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_documents_are_listed(reader: RunningServer, indexes, name: str) -> None:
    with engine.Engine.open(indexes[name], encoder=ENCODER) as index:
        some = {"filter": {"number": 3}, "offset": 2, "limit": 5}
        for request in ({}, some, some | {"sort": ["-number", "id"]}, {"offset": 10**12}, {"limit": 0}):
            answer = reader.post(f"/v1/indexes/{name}/list", request).json
            wanted = {"limit": 10} | request
            assert [each["id"] for each in answer["documents"]] == [each.id for each in index.documents(**wanted)]
            assert answer["n_documents"] == index.count(request.get("filter", {}))
    assert reader.post(f"/v1/indexes/{name}/list", {"limit": 51}).error["field"] == "limit"


@pytest.mark.parametrize("name", ["whole", "sharded"])
def test_values_are_counted(reader: RunningServer, indexes, name: str) -> None:
    request = {"query": "w3", "filter": {"number": {"$lt": 5}}, "limit": 3}
    answer = reader.post(f"/v1/indexes/{name}/facets", {"fields": ["number", "mixed", "none"], **request}).json
    with engine.Engine.open(indexes[name], encoder=ENCODER) as index:
        for field in ("number", "mixed", "none"):
            assert answer["facets"][field] == json.loads(json.dumps(index.facets(field, **request).to_dict()))
        for prefix in (True, False):
            request = {"query": "w", "prefix": prefix, "operators": True}
            answer = reader.post(f"/v1/indexes/{name}/facets", {"fields": ["number"], **request}).json
            assert answer["facets"]["number"]["n_documents"] == index.facets("number", **request).n_documents
    assert reader.post(f"/v1/indexes/{name}/facets", {"fields": []}).error["field"] == "fields"


def test_indexes_are_listed_and_described(reader: RunningServer) -> None:
    listed = reader.ask("GET", "/v1/indexes").json
    assert listed == {"indexes": [{"name": each, "documents": len(DOCUMENTS)} for each in ("whole", "sharded")]}
    described = reader.ask("GET", "/v1/indexes/sharded").json
    assert described["name"] == "sharded"
    assert described["statistics"]["n_documents"] == len(DOCUMENTS)


SEARCH = "/v1/indexes/whole/search"
JSON = {"content_type": "application/json"}
LATIN = "application/json; charset=latin-1"
FILTER = '{"query": "w1", "filter": '


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "name", "field"),
    [
        ("GET", "/nowhere", None, {}, 404, "UnknownPath", None),
        ("GET", "/v1/../../etc/passwd", None, {}, 404, "UnknownPath", None),
        ("GET", "/v1/indexes/none", None, {}, 404, "UnknownIndex", "index"),
        ("GET", "/v1/indexes/%2e%2e", None, {}, 404, "UnknownIndex", "index"),
        ("GET", "/v1/indexes/whole/documents/nobody", None, {}, 404, "UnknownDocument", "id"),
        ("GET", "/v1/indexes/whole/documents", None, {}, 422, "InvalidRequest", "id"),
        ("GET", SEARCH, None, {}, 405, "UnknownMethod", None),
        ("PUT", SEARCH, "{}", JSON, 405, "UnknownMethod", None),
        ("POST", "/v1/indexes/none/search", "{}", JSON, 404, "UnknownIndex", "index"),
        ("POST", SEARCH, "{", JSON, 400, "InvalidJson", "body"),
        ("POST", SEARCH, b"\xff", JSON, 400, "InvalidJson", "body"),
        ("POST", SEARCH, '{"query": "w1", "k": NaN}', JSON, 400, "InvalidJson", "body"),
        ("POST", SEARCH, '{"query": "w1", "k": 51}', JSON, 422, "InvalidRequest", "k"),
        ("POST", SEARCH, '{"query": "w1", "candidates": 3}', JSON, 422, "InvalidSetting", "candidates"),
        ("POST", SEARCH, '{"query": "w1", "rerank": 20}', JSON, 422, "InvalidSetting", "rerank"),
        ("POST", SEARCH, '{"query": "w1", "rerank": 3}', JSON, 422, "InvalidSetting", "rerank"),
        ("POST", SEARCH, '{"query": "w1", "k": 3, "k": 4}', JSON, 400, "InvalidJson", "k"),
        ("POST", SEARCH, FILTER + '{"number": 1, "number": 2}' + '}', JSON, 400, "InvalidJson", "number"),
        ("POST", SEARCH, '{"query": "..."}', JSON, 422, "InvalidQuery", "query"),
        ("POST", SEARCH, FILTER + '{"$what": 1}' + '}', JSON, 422, "InvalidFilter", "filter"),
        ("POST", SEARCH, FILTER + '{"number": "1"}' + '}', JSON, 422, "InvalidFilter", "filter"),
        ("POST", SEARCH, FILTER + '{"number": 1e300}' + '}', JSON, 200, None, None),
        ("POST", SEARCH, FILTER + '{"number": 1' + 399 * "0" + "}}", JSON, 200, None, None),
        ("POST", SEARCH, FILTER + '{"id": "\\ud800"}' + '}', JSON, 422, "InvalidFilter", "filter"),
        ("POST", SEARCH, FILTER + '{"$not":' * 900 + "{}" + "}" * 901, JSON, 422, "InvalidFilter", "filter"),
        ("POST", SEARCH, "[" * 15_000, JSON, 400, "InvalidJson", "body"),
        ("POST", SEARCH, " " * 20_001, JSON, 413, "BodyTooLong", "body"),
        ("POST", SEARCH, "{}", {}, 415, "UnsupportedType", "content-type"),
        ("POST", SEARCH, "{}", {"content_type": "text/plain"}, 415, "UnsupportedType", "content-type"),
        ("POST", SEARCH, "{}", {"content_type": LATIN}, 415, "UnsupportedType", "content-type"),
        ("POST", SEARCH, "{}", {**JSON, "content_encoding": "gzip"}, 415, "UnsupportedType", "content-encoding"),
        ("POST", "/v1/indexes/whole/documents", "{}", {"content_type": NDJSON}, 403, "ReadOnly", None),
        ("DELETE", "/v1/indexes/whole/documents/a", None, {}, 403, "ReadOnly", None),
        ("GET", "/v1/indexes", None, {"host": "evil.example"}, 421, "WrongHost", "host"),
        ("GET", "/v1/indexes", None, {"authorization": "Bearer nothing"}, 401, "Unauthorized", "authorization"),
    ],
)  # fmt: skip
def test_an_error_says_what_is_wrong(  # noqa: PLR0917
    reader: RunningServer, indexes, method, path, body, headers, status, name, field
) -> None:
    answer = reader.ask(method, path, body, **headers)
    assert answer.status == status, answer.body
    assert str(indexes["whole"].parent) not in answer.body.decode()
    if name is not None:
        assert (answer.error["type"], answer.error["field"]) == (name, field)
        assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_a_body_without_a_stated_length_is_limited_too(reader: RunningServer) -> None:
    with reader.connect() as connection:
        connection.sendall(
            b"POST /v1/indexes/whole/search HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        connection.sendall(chunk * 5)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


@BOTH_KINDS
def test_documents_are_added_in_one_commit(writer: RunningServer, path: Path) -> None:
    before = generations(path)
    documents = [{"id": f"n{n}", "text": f"word{n}", "title": "T", "metadata": {"n": n}} for n in range(50)]
    answer = writer.add("index", [*documents, {"id": "moon", "text": "replaced"}])
    assert (answer.status, answer.json["n_added"]) == (200, 51)
    assert all(after <= number + 1 for number, after in zip(before, generations(path), strict=True))
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert len(index) == 52
        assert index.get("moon")[0].text == "replaced"
    found = writer.post("/v1/indexes/index/search", {"query": "word7", "k": 1}, **bearer(READ_KEY)).json
    assert [hit["id"] for hit in found["hits"]] == ["n7"]


@BOTH_KINDS
def test_of_several_documents_with_the_same_id_one_is_counted(writer: RunningServer, path: Path) -> None:
    lines = [("n1", "first"), ("n2", "other"), ("n1", "second"), ("n1", "third"), ("moon", "replaced")]
    answer = writer.add("index", [{"id": doc_id, "text": text} for doc_id, text in lines])
    assert (answer.status, answer.json["n_added"]) == (200, 3)
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert len(index) == 4  # one was there before
        assert index.get("n1")[0].text == "third"


def generations(path: Path) -> list[int]:
    """Return the generation of an index, or of each of its shards."""
    folders = [each for each in path.iterdir() if each.is_dir()] or [path]
    found = []
    for folder in sorted(folders):
        with engine.Engine.open(folder, encoder=ENCODER) as index:
            found.append(int(str(index.stats()["generation"])))
    return found


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "x"}', "line 3 (id 'x'): field 'text' is missing"),
        ('{"text": "a", "metadata": {"n": NaN}}', "field 'metadata.n' cannot be stored"),
        ('{"text": "a", "metadata": {"n": 1e999}}', "field 'metadata.n' cannot be stored"),
        (
            '{"text": "a", "metadata": {"n": 123456789012345678901234567890}}',
            "field 'metadata.n' cannot be stored",
        ),
        ('{"text": "a", "metadata": ' + '{"a":' * 5000 + "1" + "}" * 5001, "line 3"),
        ('{"text": "\\ud800"}', "lone surrogate"),
        ("[", "line 3 is not JSON"),
        ('{"id": "1", "id": "2", "text": "a"}', "line 3 has the key 'id' twice in one object"),
        ('["text"]', "line 3 is not a JSON object"),
        ('{"text": "a", "vector": 3}', "unknown fields: 'vector'"),
        ('{"text": "..."}', "line 3: the document has no token"),
        ('{"id": "x", "text": "a", "vectors": [1, 2]}', "line 3 (id 'x'): field 'vectors' has the wrong shape"),
    ],
)
def test_no_document_is_added_if_one_is_not_valid(
    writer: RunningServer, path: Path, line: str, problem: str
) -> None:
    before = generations(path)
    lines = "\n".join(['{"id": "new", "text": "new"}', "", line, '{"id": "last", "text": "last"}'])
    answer = writer.ask("POST", "/v1/indexes/index/documents", lines, content_type=NDJSON, **bearer())
    assert (answer.status, answer.error["type"], answer.error["field"]) == (422, "InvalidDocument", "body")
    assert problem in answer.error["message"] + str(answer.error["found"])
    assert "/" not in answer.error["message"]
    assert tempfile.gettempdir() not in answer.body.decode()
    assert generations(path) == before
    with engine.Engine.open(path, writable=True, encoder=ENCODER) as index:  # the lock is free
        assert len(index) == 2


@BOTH_KINDS
def test_documents_are_added_as_json(writer: RunningServer, path: Path) -> None:
    documents = "/v1/indexes/index/documents"
    answer = writer.post(documents, [{"id": "n1", "text": "first"}, {"id": "n2", "text": "second"}], **bearer())
    assert (answer.status, answer.json["n_added"]) == (200, 2)
    answer = writer.post(documents, [{"id": "n4", "text": "fourth"}, {"id": "n5"}], **bearer())
    assert (answer.status, answer.error["field"]) == (422, "body")
    assert str(path.parent) not in answer.body.decode()
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert sorted(index.ids()) == ["bread", "moon", "n1", "n2"]


@BOTH_KINDS
def test_metadata_is_changed_by_ids_or_a_filter(writer: RunningServer, path: Path) -> None:
    def change(body: object) -> Answer:
        headers = {"content_type": "application/json", **bearer()}
        return writer.ask("PATCH", "/v1/indexes/index/documents", json.dumps(body), **headers)

    answer = change({"ids": ["moon", "nobody"], "metadata": {"price": 3}})
    assert (answer.status, answer.json["n_updated"]) == (200, 1)
    assert change({"filter": {"price": 3}, "metadata": {"price": None, "sold": True}}).json["n_updated"] == 1
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert index.get("moon")[0].metadata == {"sold": True}
    each = {"moon": {"price": 4, "sold": True}, "bread": {"price": 5}, "nobody": {"price": 6}}
    assert change({"changes": each}).json["n_updated"] == 2
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert [document.metadata["price"] for document in index.get(["moon", "bread"])] == [4, 5]
    for wrong, field in (
        ({"changes": each, "ids": ["moon"], "metadata": {"a": 1}}, "changes"),
        ({"changes": each, "metadata": {"a": 1}}, "metadata"),
        ({"changes": {"moon": 3}}, "changes.moon"),
        ({"changes": {"moon": {}}}, "changes.moon"),
        ({"changes": {"bread": {"a": 1}, "moon": {"title": "x"}}}, "changes.moon.title"),
        ({"changes": {"moon": {"price.net": 1}}}, "changes.moon.price.net"),
        ({"changes": {"moon": {"a": [1, {"b": DEEP}]}}}, "changes.moon.a[1].b" + ".c" * 5),
        ({"changes": {"moon": {"a": "x" * 70_000}}}, "changes.moon"),
        ({"changes": ["moon"]}, "changes"),
        ({"metadata": {"a": 1}}, "ids"),
        ({"ids": ["moon"]}, "metadata"),
        ({"ids": ["moon"], "filter": {}, "metadata": {"a": 1}}, "filter"),
        ({"filter": {}, "metadata": {"a": 1}}, "filter"),
        ({"ids": ["moon"], "metadata": {"title": "x"}}, "metadata.title"),
        ({"ids": ["moon"], "metadata": {"price.net": 1}}, "metadata.price.net"),
        ({"ids": ["moon"], "metadata": {"a": DEEP}}, "metadata.a" + ".c" * 7),
        ({"ids": ["moon"], "metadata": {}}, "metadata"),
    ):
        assert (change(wrong).status, change(wrong).error["field"]) == (422, field), wrong
    deleted = writer.post("/v1/indexes/index/delete", {"filter": {"sold": True}}, **bearer())
    assert (deleted.status, deleted.json["n_deleted"]) == (200, 1)
    assert writer.post("/v1/indexes/index/delete", {"filter": {}}, **bearer()).status == 422


def test_nothing_is_added_by_an_empty_body(writer: RunningServer) -> None:
    answer = writer.add("index", [])
    assert (answer.status, answer.json["n_added"]) == (200, 0)


@pytest.mark.parametrize("kind", ["text/csv", "application/x-www-form-urlencoded"])
def test_documents_of_another_type_are_refused(writer: RunningServer, kind: str) -> None:
    answer = writer.ask("POST", "/v1/indexes/index/documents", "{}", content_type=kind, **bearer())
    assert (answer.status, answer.error["expected"].split()[0]) == (415, NDJSON)


def test_too_many_documents_are_refused(writer: RunningServer) -> None:
    answer = writer.add("index", [{"text": "x" * 100_000}])
    assert (answer.status, answer.error["type"]) == (413, "BodyTooLong")


@BOTH_KINDS
def test_documents_are_deleted(writer: RunningServer, path: Path) -> None:
    writer.add("index", [{"id": each, "text": "odd"} for each in ODD_IDS])
    quoted = urllib.parse.quote(ODD_IDS[0], safe="")
    answer = writer.ask("DELETE", f"/v1/indexes/index/documents/{quoted}", **bearer())
    assert (answer.status, answer.json["n_deleted"]) == (200, 1)
    assert writer.ask("DELETE", f"/v1/indexes/index/documents/{quoted}", **bearer()).status == 404
    answer = writer.post("/v1/indexes/index/delete", {"ids": [*ODD_IDS[1:], "nobody"]}, **bearer())
    assert answer.json["n_deleted"] == len(ODD_IDS) - 1
    assert writer.post("/v1/indexes/index/delete", {"ids": []}, **bearer()).error["field"] == "ids"
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert len(index) == 2


def test_keys_are_needed(writer: RunningServer, path: Path) -> None:
    request = {"query": "moon"}
    assert writer.post("/v1/indexes/index/search", request).status == 401
    assert writer.post("/v1/indexes/index/search", request).headers["www-authenticate"].startswith("Bearer")
    assert writer.post("/v1/indexes/index/search", request, **bearer(READ_KEY)).status == 200
    assert writer.post("/v1/indexes/index/search", request, **bearer(WRITE_KEY)).status == 200
    assert writer.add("index", [{"text": "new"}], READ_KEY).status == 403
    assert writer.add("index", [{"text": "new"}], "another key").status == 401
    assert writer.ask("GET", "/metrics").status == 401
    assert [writer.ask("GET", each).status for each in ("/", "/health", "/openapi.json")] == [200, 200, 200]
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert len(index) == 2


@BOTH_KINDS
def test_commits_of_others_are_followed(writer: RunningServer, path: Path) -> None:
    def find(query: str) -> list[str]:
        answer = writer.post("/v1/indexes/index/search", {"query": query, "mode": "lexical"}, **bearer())
        return [hit["id"] for hit in answer.json["hits"]]

    assert find("comet") == []
    with engine.Engine.open(path, writable=True, encoder=ENCODER) as index:
        index.add([{"id": "comet", "text": "a comet"}])
        index.commit()
        assert find("comet") == ["comet"]
        assert writer.ask("GET", "/v1/indexes", **bearer()).json["indexes"][0]["documents"] == 3
        assert writer.ask("GET", "/v1/indexes/index/documents/comet", **bearer()).status == 200
        answer = writer.add("index", [{"text": "new"}])
        assert (answer.status, answer.error["type"]) == (409, "IndexLocked")
    assert writer.add("index", [{"text": "new"}]).status == 200


HEAD = f"POST /v1/indexes/index/{{}} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITE_KEY}\r\n"


def test_a_slow_client_holds_no_lock_and_is_given_up(writer: RunningServer, path: Path) -> None:
    with writer.connect() as connection:
        connection.sendall(
            (HEAD.format("documents") + f"Content-Type: {NDJSON}\r\nContent-Length: 1000\r\n\r\n").encode()
        )
        connection.sendall(b'{"id": "slow", "text": "slow"}\n')
        with engine.Engine.open(path, writable=True, encoder=ENCODER):
            pass
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert "slow" not in index


def test_a_query_that_arrives_slowly_is_given_up(writer: RunningServer) -> None:
    with writer.connect() as connection:
        connection.sendall(
            (HEAD.format("search") + "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{").encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_documents_of_a_client_that_goes_are_not_added(writer: RunningServer, path: Path) -> None:
    with writer.connect() as connection:
        connection.sendall(
            (HEAD.format("documents") + f"Content-Type: {NDJSON}\r\nContent-Length: 1000\r\n\r\n").encode()
        )
        connection.sendall(b'{"id": "gone", "text": "gone"}\n')
    figures = "quarry_http_requests_total"
    until(
        lambda: 'status="400"' in writer.ask("GET", "/metrics", **bearer()).body.decode(), 5
    ) if figures else None
    with engine.Engine.open(path, writable=True, encoder=ENCODER) as index:
        assert "gone" not in index


CHUNKED = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET /nope" + CHUNKED + b"zz\r\n"],
        [b"HEAD /nope" + CHUNKED + b"zz\r\n"],
        [b"GET /health" + CHUNKED, b"zz\r\n"],  # after the response
        [
            b"POST /v1/indexes/whole/search"
            + CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n"),
            b"1\r\n{\r\nzz\r\n",
        ],
        [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nno HTTP\r\n\r\n"],
        [b"\x16\x03\x01\r\n\r\n"],
    ],
)
def test_bytes_that_are_not_http_are_one_line_of_the_log(
    reader: RunningServer, parts: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with reader.connect() as connection:
        for number, part in enumerate(parts):
            connection.sendall(part)
            if number + 1 < len(parts) and parts[0].startswith(b"GET"):
                assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
    assert reader.ask("GET", "/health").status == 200
    assert [record.getMessage() for record in caplog.records] == ["Invalid HTTP request received."]
    assert not caplog.records[0].exc_info


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_the_process_that_made_the_application_refuses_requests_at_once(
    indexes: dict[str, Path],
) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/indexes/whole/search",
        "raw_path": b"",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    received = {"type": "http.request", "body": b'{"query": "w1"}', "more_body": False}

    async def ask(served: Callable[..., Awaitable[None]]) -> int:
        sent: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return received

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await served(dict(scope), receive, send)
        return int(str(sent[0]["status"]))

    with app(indexes, encoder=ENCODER) as served:
        assert asyncio.run(ask(served)) == 200  # which starts a thread
        child = os.fork()
        if not child:
            os._exit(asyncio.run(ask(served)) // 10)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 50


@pytest.fixture
def impatient(indexes: dict[str, Path]) -> Iterator[RunningServer]:
    with app(indexes, encoder=ENCODER) as served, running(served, headers_timeout_s=0.1) as server:
        yield server


def test_headers_that_arrive_slowly_are_given_up(impatient: RunningServer) -> None:
    for begin in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        with impatient.connect() as connection:
            connection.sendall(begin)
            assert connection.recv(1000) == b""
    with impatient.connect() as connection:  # a connection that stays open
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while not received.endswith(b'{"status":"ok"}'):
                received += connection.recv(1000) or b"closed"
            assert received.startswith(b"HTTP/1.1 200 ")


def test_an_index_that_disappears_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    path, documents = tmp_path / "index", [{"id": "moon", "text": "the moon"}]
    engine.build(documents, path, encoder=ENCODER)
    with app({"sky": path}, encoder=ENCODER) as served, running(served) as server:
        assert server.ask("GET", "/health").json == {"status": "ok"}
        path.rename(tmp_path / "away")
        answer = server.search("sky", query="moon")
        assert (answer.status, answer.error["type"]) == (503, "IndexNotFound")
        assert str(tmp_path) not in answer.body.decode()
        assert server.ask("GET", "/health").status == 503
        assert 'quarry_index_up{index="sky"} 0.0' in server.ask("GET", "/metrics").body.decode()
        assert server.ask("GET", "/").status == 200
        engine.build([*documents, {"id": "sun", "text": "the sun"}], path, encoder=ENCODER)
        assert [hit["id"] for hit in server.search("sky", query="sun", k=1).json["hits"]] == ["sun"]
        assert server.ask("GET", "/health").status == 200
        shutil.rmtree(path)
        assert server.search("sky", query="moon").status == 503


def test_an_index_is_replaced_by_a_sharded_one_and_back(tmp_path: Path) -> None:
    path, n_documents = tmp_path / "index", 1
    engine.build([{"id": "moon 0", "text": "the moon"}], path, encoder=ENCODER)
    with app({"sky": path}, encoder=ENCODER) as served, running(served) as server:
        for shards in (2, None, 3):
            shutil.rmtree(path)
            assert server.search("sky", query="moon").status == 503
            n_documents += 1
            documents = [{"id": f"moon {number}", "text": "the moon"} for number in range(n_documents)]
            engine.build(documents, path, encoder=ENCODER, shards=shards)
            found = server.search("sky", query="moon").json
            assert len(found["hits"]) == n_documents
            assert (found["coverage"] or {}).get("n_shards") == shards
            assert server.ask("GET", "/health").status == 200
            assert server.ask("GET", "/v1/indexes").json["indexes"][0]["documents"] == n_documents


def test_a_shard_that_disappears(tmp_path: Path) -> None:
    """Searches that allow partial answers get one without a path; all others fail until the shard is back."""
    path = tmp_path / "index"
    engine.build(
        [{"id": f"moon {number}", "text": "the moon"} for number in range(20)], path, encoder=ENCODER, shards=3
    )
    access = Access(write_key=WRITE_KEY)
    with app({"sky": path}, encoder=ENCODER, access=access) as served, running(served) as server:
        shard = sorted(path.glob("shard-*"))[1]
        shard.rename(tmp_path / "away")
        for _ in range(2):
            answer = server.search("sky", query="moon", k=20, partial=True)
            assert answer.status == 200
            coverage = answer.json["coverage"]
            assert coverage["missing"] == {shard.name: "a shard of the index is missing"}
            assert 0 < len(answer.json["hits"]) == coverage["n_reached"] < coverage["n_documents"] == 20
            assert answer.json["exactness"] == "partial"
            failed = server.search("sky", query="moon")
            assert (failed.status, failed.error["type"]) == (503, "ShardNotFound")
            for change in (
                server.add("sky", [{"id": "sun", "text": "the sun"}]),
                server.ask("DELETE", "/v1/indexes/sky/documents/moon%200", **bearer()),
            ):
                assert (change.status, change.error) == (503, failed.error)
                assert change.headers["retry-after"]
            assert server.ask("GET", "/health").status == 503
            assert str(tmp_path) not in answer.body.decode() + failed.body.decode()
        (tmp_path / "away").rename(shard)
        assert len(server.search("sky", query="moon", k=20).json["hits"]) == 20
        assert server.add("sky", [{"id": "sun", "text": "the sun"}]).status == 200
        assert server.ask("GET", "/health").status == 200


def test_the_other_indexes_are_listed_when_one_disappears(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("a", "b")}
    for path in paths.values():
        engine.build([{"id": "moon", "text": "the moon"}], path, encoder=ENCODER)
    with app(paths, encoder=ENCODER) as served, running(served) as server:
        paths["a"].rename(tmp_path / "away")
        answer = server.ask("GET", "/v1/indexes")
        assert (answer.status, answer.json["indexes"]) == (200, [{"name": "b", "documents": 1}])
        (failed,) = answer.json["errors"]
        assert (failed["name"], failed["error"]["type"]) == ("a", "IndexNotFound")
        assert str(tmp_path) not in answer.body.decode()
        document = server.ask("GET", "/openapi.json").json["paths"]["/v1/indexes"]["get"]
        schema = document["responses"]["200"]["content"]["application/json"]["schema"]
        assert set(failed) == set(schema["properties"]["errors"]["items"]["required"])
        paths["b"].rename(tmp_path / "away too")
        assert server.ask("GET", "/v1/indexes").status == 503


def test_a_damaged_index_is_an_error_without_details(tmp_path: Path) -> None:
    path = tmp_path / "index"
    engine.build([{"id": "moon", "text": "the moon"}], path, encoder=ENCODER)
    with app({"sky": path}, encoder=ENCODER) as served, running(served) as server:
        (segment,) = path.glob("*.seg")
        with engine.Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.add([{"id": "sun", "text": "the sun"}])
            index.commit()
        newest = max(path.glob("*.seg"), key=lambda file: file.stat().st_mtime_ns)
        assert newest != segment
        newest.write_bytes(b"\0" * newest.stat().st_size)
        answer = server.search("sky", query="moon")
        assert answer.status == 500
        assert answer.error["message"] == "the index cannot be read; the log of the server says why"


class WaitingEncoder(WordEncoder):
    """Encodes texts that begin with "wait" only after `go` is set."""

    go = threading.Event()
    n_begun = 0

    def windows(self, text: str) -> Iterator[engine.TokenVectors]:
        if text.startswith("wait"):
            type(self).n_begun += 1
            assert self.go.wait(LONGEST_S)
        return super().windows(text)


@pytest.fixture
def waiting_encoder() -> Iterator[WaitingEncoder]:
    WaitingEncoder.go.clear()
    WaitingEncoder.n_begun = 0
    yield WaitingEncoder()
    WaitingEncoder.go.set()


@pytest.fixture
def waiting(indexes: dict[str, Path], waiting_encoder: WaitingEncoder) -> Iterator[RunningServer]:
    """Serve with one search thread, for which one request may wait."""
    limits = Limits(threads=1, max_waiting=1, timeout_s=0.4)
    with app(indexes, encoder=waiting_encoder, threads=1, limits=limits) as served, running(served) as server:
        try:
            yield server
        finally:
            waiting_encoder.go.set()


class Asking(threading.Thread):
    """A request on a thread of its own."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        super().__init__()
        self.ask = ask
        self.start()

    def run(self) -> None:
        self.answer = self.ask()

    def result(self) -> Answer:
        self.join()
        return self.answer


def searching(server: RunningServer, query: str) -> Asking:
    return Asking(lambda: server.search("whole", query=query, k=1))


def adding(server: RunningServer, text: str) -> Asking:
    return Asking(lambda: server.add("index", [{"id": text, "text": text}]))


def test_requests_that_find_no_thread_are_refused_or_given_up(waiting: RunningServer) -> None:
    first = searching(waiting, "wait w1")
    until(lambda: WaitingEncoder.n_begun == 1)
    second = searching(waiting, "wait w2")
    until(lambda: "in_progress 3" in waiting.ask("GET", "/metrics").body.decode())
    refused = waiting.search("whole", query="w3")
    assert (refused.status, refused.error["type"], refused.headers["retry-after"]) == (503, "Busy", "1")
    assert waiting.ask("GET", "/health").status == 200  # the event loop is not blocked
    for late in (first.result(), second.result()):
        assert (late.status, late.error["type"]) == (504, "Timeout")
    assert waiting.search("whole", query="w3").status == 504  # the thread is still busy
    WaitingEncoder.go.set()
    until(lambda: waiting.search("whole", query="w3").status == 200)
    assert WaitingEncoder.n_begun == 1  # the second one was never started


def test_requests_in_progress_are_finished_at_the_end(waiting: RunningServer) -> None:
    asking = searching(waiting, "wait w1")
    until(lambda: WaitingEncoder.n_begun == 1)
    waiting.stop()
    until(lambda: is_refused(waiting))
    WaitingEncoder.go.set()
    assert asking.result().status == 200


def test_changes_are_made_or_refused_when_the_application_is_closed(
    path: Path, waiting_encoder: WaitingEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(uploads))
    access = Access(write_key=WRITE_KEY)
    with app([path], encoder=waiting_encoder, access=access) as served, running(served) as server:
        begun = adding(server, "wait")
        until(lambda: waiting_encoder.n_begun)
        queued = [adding(server, "new"), Asking(lambda: delete_moon(server))]
        until(lambda: "in_progress 4" in server.ask("GET", "/metrics", **bearer()).body.decode())
        until(lambda: len(list(uploads.iterdir())) == 2)
        closing = threading.Thread(target=served.close)
        closing.start()
        for refused in (each.result() for each in queued):
            assert (refused.status, refused.error["type"], refused.headers["retry-after"]) == (
                503,
                "Stopping",
                "1",
            )
        waiting_encoder.go.set()
        assert (begun.result().status, begun.result().json["n_added"]) == (200, 1)
        closing.join()
        for refused in (server.add("index", [{"text": "late"}]), delete_moon(server)):
            assert (refused.status, refused.error["type"]) == (503, "Stopping")
    assert list(uploads.iterdir()) == []
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert sorted(index.ids()) == ["bread", "moon", "wait"]


def test_a_server_that_stops_finishes_changes_that_have_begun(path: Path, waiting_encoder: WaitingEncoder) -> None:
    access = Access(write_key=WRITE_KEY)
    limits = Limits(threads=1)
    with (
        app([path], encoder=waiting_encoder, threads=1, access=access, limits=limits) as served,
        running(served, grace_s=1) as server,
        server.connect() as sending,
    ):
        begun = adding(server, "wait")
        until(lambda: waiting_encoder.n_begun)
        refused = [
            adding(server, "new"),
            Asking(lambda: delete_moon(server)),
            Asking(lambda: server.search("index", query="wait")),
        ]
        sending.sendall(
            (HEAD.format("documents") + f"Content-Type: {NDJSON}\r\nContent-Length: 1000\r\n\r\n").encode()
        )
        until(lambda: "in_progress 6" in server.ask("GET", "/metrics").body.decode())
        server.stop()
        for each in refused:  # when its time is up
            assert (each.result().status, each.result().error["type"]) == (503, "Stopping")
        assert sending.recv(1000).startswith(b"HTTP/1.1 503 ")
        waiting_encoder.go.set()
        assert (begun.result().status, begun.result().json["n_added"]) == (200, 1)
    with engine.Engine.open(path, encoder=ENCODER) as index:
        assert sorted(index.ids()) == ["bread", "moon", "wait"]


def test_a_change_that_has_begun_is_waited_for_until_the_second_cancellation() -> None:
    async def cancel_twice() -> None:
        change: Future[int] = Future()
        change.set_running_or_notify_cancel()
        waiting = asyncio.create_task(finished(change))
        for is_done in (False, True):
            await asyncio.sleep(0)
            waiting.cancel()
            done, _ = await asyncio.wait([waiting], timeout=None if is_done else 0.05)
            assert bool(done) is is_done
        with pytest.raises(RequestError, match="has begun and may be committed"):
            await waiting
        change.set_result(1)

    asyncio.run(cancel_twice())


def delete_moon(server: RunningServer) -> Answer:
    return server.ask("DELETE", "/v1/indexes/index/documents/moon", **bearer())


def is_refused(server: RunningServer) -> bool:
    try:
        server.connect().close()
    except OSError:
        return True
    return False


def test_other_origins_may_ask_only_if_they_are_allowed(indexes: dict[str, Path], reader: RunningServer) -> None:
    preflight = {"origin": "https://example.org", "access_control_request_method": "POST"}
    assert "access-control-allow-origin" not in reader.ask("OPTIONS", SEARCH, **preflight).headers
    access = Access(origins=("https://example.org",))
    with app(indexes, encoder=ENCODER, access=access) as served, running(served) as server:
        for method in ("GET", "POST", "PATCH", "DELETE"):
            allowed = server.ask("OPTIONS", SEARCH, **(preflight | {"access_control_request_method": method}))
            assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://example.org")
        other = server.ask("OPTIONS", SEARCH, **(preflight | {"origin": "https://example.com"}))
        assert "access-control-allow-origin" not in other.headers


def test_the_application_can_be_mounted(indexes: dict[str, Path]) -> None:
    with app(indexes, encoder=ENCODER) as served, running(Starlette(routes=[Mount("/find", served)])) as server:
        found = server.post("/find/v1/indexes/whole/search", {"query": "w1", "k": 1})
        assert len(found.json["hits"]) == 1
        assert server.ask("GET", "/find").headers["location"].endswith("/find/")
        assert server.ask("GET", "/find/").headers["content-type"].startswith("text/html")
        assert server.ask("GET", "/find/openapi.json").json["servers"] == [{"url": "/find"}]
        assert server.ask("GET", "/find/nowhere").error["type"] == "UnknownPath"
        figures = server.ask("GET", "/find/metrics").body.decode()
        assert 'method="POST",path="/v1/indexes/{index}/search",status="200"} 1' in figures


def test_the_description_has_every_operation(reader: RunningServer) -> None:
    described = reader.ask("GET", "/openapi.json").json
    assert described["openapi"].startswith("3.1")
    for reference in re.findall(r'"\$ref":\s*"#/([^"]+)"', json.dumps(described)):
        value = described
        for name in reference.split("/"):
            value = value[name]
    page = Path(__file__).parents[3].joinpath("docs/server.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"\d{3}", " ".join(re.findall(r"^\| (\d{3}[\d, ]*) \|", page, re.MULTILINE))))
    names = [each["operationId"] for methods in described["paths"].values() for each in methods.values()]
    assert len(names) == len(set(names)) == 17
    for path, methods in described["paths"].items():
        filled = path.replace("{index}", "whole").replace("{id}", "a")
        for method, operation in methods.items():
            answer = reader.ask(method.upper(), filled)
            assert str(answer.status) in operation["responses"], (method, path, answer.status)
            assert operation["responses"].keys() - {"200"} <= explained
            assert answer.status != 405
        other = reader.ask("PUT", filled)
        assert (other.status, other.headers["allow"]) == (405, other.headers["allow"])
        assert {each.lower() for each in other.headers["allow"].split(", ")} - {"head"} == set(methods)


LINE = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"\n]*",?)+\})? \S+)')


def test_figures_are_counted(writer: RunningServer) -> None:
    writer.add("index", [{"text": "new"}, {"text": "newer"}])
    writer.post("/v1/indexes/index/delete", {"ids": ["moon"]}, **bearer())
    for _ in range(3):
        writer.post("/v1/indexes/index/search", {"query": "moon"}, **bearer())
    writer.ask("GET", "/nowhere")
    writer.ask("BREW", "/v1/indexes")
    text = writer.ask("GET", "/metrics", **bearer()).body.decode()
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    assert text.endswith("\n")
    for sample in (
        'quarry_http_requests_total{method="POST",path="/v1/indexes/{index}/search",status="200"} 3.0',
        'quarry_http_requests_total{method="GET",path="other",status="404"} 1.0',
        'quarry_http_requests_total{method="other",path="/v1/indexes",status="405"} 1.0',
        'quarry_http_request_duration_seconds_bucket{le="+Inf",path="/v1/indexes/{index}/search"} 3.0',
        'quarry_http_request_duration_seconds_count{path="/v1/indexes/{index}/search"} 3.0',
        'quarry_index_documents{index="index"} 3.0',
        'quarry_documents_added_total{index="index"} 2.0',
        'quarry_documents_deleted_total{index="index"} 1.0',
        "quarry_http_requests_in_progress 1.0",
    ):
        assert sample in text.splitlines(), sample


def test_what_cannot_be_served_is_refused(indexes: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound):
        app([*indexes.values(), tmp_path / "none"], encoder=ENCODER)
    for given in (
        [],
        {},
        {"a/b": indexes["whole"]},
        {"": indexes["whole"]},
        [indexes["whole"]] * 2,
        str(indexes["whole"]),
    ):
        with pytest.raises(InvalidSetting):
            app(given, encoder=ENCODER)


@BOTH_KINDS
def test_two_servers_may_write_to_one_index(path: Path) -> None:
    access = Access(write_key=WRITE_KEY)
    with (
        app([path], encoder=ENCODER, access=access) as one,
        app([path], encoder=ENCODER, access=access) as two,
        running(one) as first,
        running(two) as second,
    ):
        statuses: list[int] = []

        def add(server: RunningServer, name: str) -> None:
            documents = [{"id": f"{name} {number}", "text": "new"} for number in range(4)]
            statuses.extend(server.add("index", [document]).status for document in documents)

        threads = [threading.Thread(target=add, args=each) for each in ((first, "a"), (second, "b"), (first, "c"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 12
        for server in (first, second):
            assert server.ask("GET", "/v1/indexes").json["indexes"][0]["documents"] == 14
