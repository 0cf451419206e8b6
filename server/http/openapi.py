"""The OpenAPI document, made of the operations that are served."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from quarry.engine import __version__
from quarry.server.http.access import Access
from quarry.server.http.failures import ERROR_SCHEMA, JSON_TYPE
from quarry.server.http.json_schema import Schema
from quarry.server.http.operations import Operation

__all__ = ["openapi_document"]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_DESCRIPTIONS: Mapping[str, str] = {
    "index": "name of an index",
    "id": "id of a document; slashes need not be encoded",
}


def openapi_document(operations: Iterable[Operation], access: Access, root: str) -> dict[str, object]:
    """Return the document, in version 3.1 of the specification.

    Args:
        operations: what is served.
        access: which keys are needed.
        root: path that the application is mounted at, or "".
    """
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _describe(operation, access)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quarry",
            "version": __version__,
            "description": "Semantic search over indexes of texts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR_SCHEMA},
            "responses": {
                "Error": {
                    "description": "the request is not carried out",
                    "content": {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation, access: Access) -> dict[str, Any]:
    kind, schema = operation.result
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _name(operation),
        "parameters": _parameters(operation),
        "responses": {
            "200": {"description": "done", "content": {kind: {"schema": schema}}},
            **{str(status): _error(status) for status in sorted({*_statuses(operation)})},
        },
    }
    if operation.body:
        content = {kind: {"schema": schema} for kind, schema in operation.body.items()}
        described["requestBody"] = {"required": True, "content": content}
    if operation.needs == "write" or (operation.needs == "read" and not access.is_reading_free):
        described["security"] = [{"key": []}]
    elif operation.needs == "read":
        described["security"] = [{}, {"key": []}]
    return described


def _statuses(operation: Operation) -> Iterator[int]:
    """Yield the statuses of errors that an operation may be answered with."""
    yield from (400, 421, 500, 503, 504)
    if operation.needs != "nothing":
        yield 401
    if operation.body or operation.query or "{" in operation.path:
        yield 422
    if "{" in operation.path:
        yield 404
    if operation.body:
        yield from (408, 413, 415)
    if operation.needs == "write":
        yield from (403, 409, 507)
    if operation.method == "POST" and operation.path.endswith(("/search", "/batch", "/documents")):
        yield from (409, 502)  # the index is of another encoder; the encoder failed


def _parameters(operation: Operation) -> list[dict[str, object]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _DESCRIPTIONS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in _PARAMETER.findall(operation.path)
    ]
    in_query = [
        {"name": name, "in": "query", "required": True, "schema": schema}
        for name, schema in operation.query.items()
    ]
    return [*in_path, *in_query]


def _name(operation: Operation) -> str:
    """Return a name made of the method and the path, such as ``get_v1_indexes``."""
    words = re.findall(r"\w+", _PARAMETER.sub(r"\1", operation.path))
    return "_".join([operation.method.lower(), *words])


def _error(status: int) -> Schema:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
