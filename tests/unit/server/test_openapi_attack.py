"""Answers to valid and invalid requests, generated from the server's OpenAPI document, are as it declares."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")
pytest.importorskip("uvicorn", reason="serving needs the extra server")
pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.indexes.sharded import random_documents
from support.indexes.word_encoder import WordEncoder
from support.server.running_server import NDJSON, WRITE_KEY, bearer, running

from quarry import engine
from quarry.server import Access, Limits, app

pytestmark = pytest.mark.filterwarnings("ignore")  # of schemathesis, and of filters on unknown fields

ENCODER = WordEncoder()
OPERATIONS = {
    "GET /": "positive",
    "GET /docs": "positive",
    "GET /health": "positive",
    "GET /metrics": "positive",
    "GET /v1/indexes": "positive",
    "GET /v1/indexes/{index}": "positive",
    "POST /v1/indexes/{index}/search": "both",
    "POST /v1/indexes/{index}/search/batch": "both",
    "GET /v1/indexes/{index}/documents": "both",
    "POST /v1/indexes/{index}/documents": "both",
    "PATCH /v1/indexes/{index}/documents": "both",
    "GET /v1/indexes/{index}/documents/{id}": "positive",
    "DELETE /v1/indexes/{index}/documents/{id}": "positive",
    "POST /v1/indexes/{index}/list": "both",
    "POST /v1/indexes/{index}/facets": "both",
    "POST /v1/indexes/{index}/delete": "both",
}
INVALID = [name for name, modes in OPERATIONS.items() if modes == "both"]
DECLARED = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ATTACK = settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@schemathesis.serializer(NDJSON)
def _one_line(_, value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """Return the operations of a server of one index, by name."""
    path = tmp_path_factory.mktemp("attacked") / "index"
    engine.build(random_documents(30), path, encoder=ENCODER)
    limits = Limits(max_k=50, max_queries=5, max_body_bytes=20_000, max_upload_bytes=20_000)
    access = Access(write_key=WRITE_KEY)
    with app({"index": path}, encoder=ENCODER, access=access, limits=limits) as served, running(served) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}openapi.json")
        yield {operation.label: operation for operation in (each.ok() for each in schema.get_all_operations())}


def attack(operation, mode: GenerationMode, judge) -> int:
    """Send generated requests to an operation, and return how many there were."""
    n_sent = 0

    @ATTACK
    @given(case=operation.as_strategy(generation_mode=mode), is_served=st.integers(0, 9).map(bool))
    def send(case, is_served):
        nonlocal n_sent
        if "index" in (case.path_parameters or {}) and is_served:
            case.path_parameters["index"] = "index"
        assume(len(urlencode(case.query or {}, doseq=True)) < 30_000)  # uvicorn refuses longer ones itself
        response = case.call(headers=bearer())
        case.validate_response(response, checks=DECLARED)
        judge(case, response)
        n_sent += 1

    send()
    return n_sent


def test_every_operation_is_attacked(api):
    assert api.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_valid_requests(api, name):
    """Valid requests are answered, or refused for a reason that a schema cannot express."""

    def judge(case, response):
        if response.status_code in (200, 404):
            return
        assert response.status_code in (413, 422)
        error = response.json()["error"]
        is_large = error["message"] == "the request asks for too many hits"
        assert response.status_code == 413 or error["type"] != "InvalidRequest" or is_large, (case.body, error)

    assert attack(api[name], GenerationMode.POSITIVE, judge) > 0


@pytest.mark.parametrize("name", INVALID)
def test_invalid_requests(api, name):
    """Invalid requests are refused with an error that names the invalid part."""
    refused = []

    def judge(_, response):
        if response.status_code != 200:
            assert response.status_code in (400, 401, 404, 413, 415, 422)
            refused.append(response.json()["error"]["type"])

    assert attack(api[name], GenerationMode.NEGATIVE, judge) > 0
    assert {"InvalidRequest", "InvalidJson", "InvalidDocument"} & set(refused)
