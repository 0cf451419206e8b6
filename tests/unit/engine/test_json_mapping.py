"""Hits and documents as mappings: in web frameworks, writers of JSON, and copies of all kinds."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import (
    Coverage,
    Document,
    Engine,
    Facets,
    FacetValue,
    Hit,
    Hits,
    InvalidSetting,
    Match,
    MatchedWord,
    Passage,
)

METADATA = {"lang": "en", "nested": {"a": [1, None, 2.5, "é"]}, "big": (1 << 63) - 1}
DOCS = [{"id": f"é{n}", "title": "T" * (n % 2), "text": f"word {n}", "metadata": METADATA} for n in range(4)]


@pytest.fixture(scope="module", params=[None, 2], ids=["whole", "sharded"])
def index(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("mappings") / "index"
    engine.build(DOCS, path, encoder=ENCODER, shards=request.param)
    with Engine.open(path, encoder=ENCODER) as opened:
        yield opened


def as_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


def wanted_of(hits):
    return as_json([hit.to_dict() for hit in hits])


# Annotations of endpoints, as names: what a hit, hits, and hits in lists and mappings are declared to be.
RETURNED = {
    "hits": (lambda hits: hits, ["-", "list", "list[dict]", "list[dict[str, Any]]", "list[Any]", "Any", "object"]),
    "typed hits": (lambda hits: hits, ["Hits", "list[Hit]"]),
    "hit": (lambda hits: hits[0], ["-", "dict", "dict[str, Any]", "Mapping[str, Any]", "Any", "object", "Hit"]),
    "slice": (lambda hits: hits[:2], ["-", "list[dict]", "list[Hit]", "Any"]),
    "tuple": (tuple, ["-", "tuple[dict, ...]", "Any"]),
    "mapping": (lambda hits: {"a": {"hits": hits}}, ["-", "dict", "dict[str, Any]", "dict[str, dict[str, Hits]]"]),
    "batch": (lambda hits: [hits, hits], ["-", "list[list[dict]]", "list[Hits]", "Any"]),
}
CASES = [(name, annotation) for name, (_, annotations) in RETURNED.items() for annotation in annotations]
RESULTS = (Coverage, Document, FacetValue, Facets, Hit, Hits, Match, MatchedWord, Passage)
NAMES = {"Any": Any, "Mapping": Mapping, **{each.__name__: each for each in RESULTS}}


def endpoint_of(value, annotation):
    def endpoint():
        return value

    if annotation != "-":
        endpoint.__annotations__["return"] = eval(annotation, dict(NAMES))
    return endpoint


def answer_of(value, annotation, *, is_async=False):
    """What a FastAPI application answers whose endpoint returns the value."""
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    application = fastapi.FastAPI()
    endpoint = endpoint_of(value, annotation)
    if is_async:

        async def waited():
            return endpoint()

        waited.__annotations__.update(endpoint.__annotations__)
        application.get("/")(waited)
    else:
        application.get("/")(endpoint)
    with testclient.TestClient(application) as client:
        answer = client.get("/")
        assert client.get("/openapi.json").status_code == 200
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize(("name", "annotation"), CASES)
def test_hits_are_returned_from_fastapi_as_they_are(index, name, annotation):
    hits = index.search("word 2", explain=True)
    returned = RETURNED[name][0]
    assert answer_of(returned(hits), annotation) == as_json(returned(wanted_of(hits)))


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("is_async", [False, True])
def test_hits_of_every_mode_are_returned(index, mode, is_async):
    hits = index.search("word 2", mode=mode)
    assert answer_of(hits, "-", is_async=is_async) == wanted_of(hits)


@pytest.mark.parametrize("annotation", ["-", "list[dict]", "list[Document]", "Any"])
@pytest.mark.parametrize("vectors", [False, True])
def test_documents_are_returned_from_fastapi_as_they_are(index, annotation, vectors):
    documents = index.get(["é0", "é1"], vectors=vectors)
    found = answer_of(documents, annotation)
    assert found == as_json([document.to_dict() for document in documents])
    assert [each["metadata"] for each in found] == [METADATA] * 2
    assert all(("vectors" in each) == vectors for each in found)


@pytest.mark.parametrize("annotation", ["-", "Any"])
def test_other_results_are_returned_from_fastapi(index, annotation):
    hit = index.search("word 2", explain=True)[0]
    facets = index.facets("lang")
    assert answer_of(facets, annotation) == as_json(facets.to_dict())
    assert answer_of(hit.matches, annotation) == as_json([match.to_dict() for match in hit.matches])
    assert answer_of(index.stats(), annotation) == as_json(index.stats())
    assert answer_of(index.documents(), "-") == as_json([each.to_dict() for each in index.documents()])


def parts_of_results(index, tmp_path):
    """Results that others have as parts, by name: each a list."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tides.md").write_text("# Tides\n\nThe Moon raises the tides.\n")
    engine.build(folder, tmp_path / "files", encoder=ENCODER)
    with Engine.open(tmp_path / "files", encoder=ENCODER) as files:
        hit = files.search("Moon", explain=True)[0]
    return {
        "passages": list(hit.passages),
        "matches": list(hit.matches),
        "words": list(hit.words),
        "coverage": [
            Coverage(n_shards=2, n_documents=9, n_reached=4, missing={"a": "gone"}),
            Coverage(n_shards=2, n_documents=9, n_reached=9, generations={"b": (3, 4)}),
        ],
        "facets": [index.facets("lang"), index.facets("nested.a"), *index.facets("lang").values],
    }


def test_parts_of_results_are_written_alike_by_all(index, tmp_path):
    orjson = pytest.importorskip("orjson")
    parts = parts_of_results(index, tmp_path)
    assert all(parts.values())
    assert "tides.md, line" in parts["passages"][0].to_dict()["place"]
    for name, results in parts.items():
        wanted = as_json([each.to_dict() for each in results])
        for annotation in ("-", "Any", "list[Any]", "list[object]"):
            assert answer_of(results, annotation) == wanted, (name, annotation)
        assert answer_of({name: results}, "dict[str, Any]") == {name: wanted}
        assert answer_of(results[0], type(results[0]).__name__) == wanted[0]
        assert json.loads(json.dumps(results, default=dict)) == wanted
        assert orjson.loads(orjson.dumps(results, default=dict)) == wanted
        for each in results:
            assert dict(each) == {**each} == each.to_dict()
            assert list(each) == list(each.keys()) == list(each.to_dict())
            with pytest.raises(KeyError, match="nothing"):
                each["nothing"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_parts_of_results_are_copied_pickled_and_compared(index, tmp_path, duplicate):
    for results in parts_of_results(index, tmp_path).values():
        for each in results:
            same = duplicate(each)
            assert (same, same.to_dict(), repr(same)) == (each, each.to_dict(), repr(each))
            assert all(same != other for other in results if other is not each)
            assert same != each.to_dict()


def test_writers_of_json_take_dict_as_default(index):
    hits = index.search("word 2", explain=True)
    assert json.loads(json.dumps(hits, default=dict)) == wanted_of(hits)
    assert json.loads(json.dumps({"first": hits[0]}, default=dict)) == {"first": wanted_of(hits)[0]}
    orjson = pytest.importorskip("orjson")
    assert orjson.loads(orjson.dumps(hits, default=dict)) == wanted_of(hits)
    assert orjson.loads(orjson.dumps(index.get(["é1"]), default=dict)) == [index.get(["é1"])[0].to_dict()]


def test_a_hit_is_a_mapping_of_what_to_dict_returns(index):
    hit = index.search("word 2", explain=True)[0]
    wanted = hit.to_dict()
    assert isinstance(hit, Mapping)
    assert dict(hit) == {**hit} == wanted
    assert list(hit) == list(hit.keys()) == list(wanted)
    assert len(hit) == len(wanted)
    assert [hit[name] for name in hit] == list(wanted.values())
    assert "text" in hit
    assert "_document" not in hit
    assert hit.get("nothing") is None
    with pytest.raises(KeyError, match="nothing"):
        hit["nothing"]
    assert hit  # a mapping without members is false


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_hits_are_copied_and_pickled(index, duplicate):
    hits = index.search("word 2", explain=True)
    same = duplicate(hits)
    assert (type(same), same, same.exactness) == (Hits, hits, hits.exactness)
    one = duplicate(hits[0])
    assert (one, one.to_dict(), repr(one)) == (hits[0], hits[0].to_dict(), repr(hits[0]))
    one.score += 1
    assert one != hits[0]


def test_equality_of_hits(index):
    first, second = index.search("word 2", k=2)
    again = index.search("word 2", k=2)
    assert (first == again[0], second == again[1], first == second) == (True, True, False)
    assert first != first.to_dict()  # a hit is not a dict
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)
    for name in (
        "id",
        "score",
        "matches",
        "terms",
        "dense_score",
        "lexical_score",
        "words",
        "mistyped",
        "relevance",
    ):
        other = copy.copy(first)
        setattr(other, name, "other")
        assert other != first, name
    with pytest.raises(AttributeError):
        first.no_such_attribute = 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_documents_are_copied_and_pickled(index, duplicate):
    for document in [*index.get(["é1"], vectors=True), Document("a", "b", "c", {"d": [1]}, "e")]:
        same = duplicate(document)
        assert same == document
        assert as_json(same.to_dict()) == as_json(document.to_dict())
        assert (same.origin, same.spans, same.stored_as) == (document.origin, document.spans, document.stored_as)
        assert repr(same) == repr(document)


def test_a_document_cannot_be_changed():
    document = Document("a", "text", "title", {"n": 1})
    for change in (lambda: setattr(document, "text", "b"), lambda: delattr(document, "text")):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()
    assert document == Document("a", "text", "title", {"n": 1}, "elsewhere")
    for other in [
        ("b", "text", "title", {"n": 1}),
        ("a", "x", "title", {"n": 1}),
        ("a", "text", "title", {"n": 2}),
    ]:
        assert document != Document(*other)
    assert document != document.to_dict()
    assert repr(document) == "Document(id='a', text='text', title='title', metadata={'n': 1})"


def test_the_dictionary_of_a_document_is_a_document(index, tmp_path):
    documents = index.get([doc["id"] for doc in DOCS], vectors=True)
    path = tmp_path / "copy"
    engine.build([{**document, "title": "new"} for document in documents], path, encoder=ENCODER)
    with Engine.open(path, encoder=ENCODER) as copied:
        found = copied.get([doc["id"] for doc in DOCS], vectors=True)
    for old, new in zip(documents, found, strict=True):
        assert (new.id, new.text, new.title, new.metadata) == (old.id, old.text, "new", old.metadata)
        assert np.allclose(new.vectors, old.vectors, atol=1e-3)


def test_a_single_hit_or_document_is_no_source(index, tmp_path):
    hit = index.search("word 2")[0]
    for source in (hit, *index.get(["é1"])):
        with pytest.raises(InvalidSetting, match="docs cannot be read"):
            engine.build(source, tmp_path / "index", encoder=ENCODER)
