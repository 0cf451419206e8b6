"""Errors of requests: a status code and one JSON shape for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from quarry.formats import errors

__all__ = ["ERROR_SCHEMA", "RequestError", "error_response", "request_error", "stopping_error"]

JSON_TYPE = "application/json"

_STATUS: Mapping[type[errors.QuarryError], int] = {
    errors.InvalidQuery: 422,
    errors.InvalidSetting: 422,
    errors.InvalidDocument: 422,
    errors.EncoderMismatch: 409,
    errors.IndexLocked: 409,
    errors.IndexNotFound: 503,
    errors.IndexClosed: 503,
    errors.EncodingFailed: 502,
    errors.AccessFailed: 503,
    errors.BackendUnavailable: 503,
    errors.ShardNotFound: 503,
    errors.ShardTimeout: 504,
    errors.CommitFailed: 507,
}
"""The status of each error of the engine; that of its nearest base class, and 500 for all others."""

_FIELDS: Mapping[type[errors.QuarryError], str] = {
    errors.InvalidFilter: "filter",
    errors.InvalidQuery: "query",
    errors.InvalidDocument: "body",
}

_RETRIED = {503, 504}
"""Statuses after which the same request may succeed a moment later."""

_NULLABLE = {"type": ["string", "null"]}
ERROR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "field", "expected", "found"],
            "properties": {
                "type": {"type": "string", "description": "name of the error"},
                "message": {"type": "string", "description": "the error in one sentence"},
                "field": {**_NULLABLE, "description": "the part of the request that is not valid, such as `k`"},
                "expected": _NULLABLE,
                "found": _NULLABLE,
            },
        }
    },
}
"""JSON Schema of the body of every response with an error."""


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status code.
        name: name of the error for programs.
        message: the error in one sentence.
        field: part of the request that is not valid.
        expected: the expected value.
        found: the value that was found.
        headers: further headers of the response; None: Retry-After, if the same request may succeed later.
    """

    def __init__(
        self,
        status: int,
        name: str,
        message: str,
        *,
        field: str | None = None,
        expected: object = None,
        found: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.name = name
        self.field = field
        self.expected = None if expected is None else str(expected)
        self.found = None if found is None else str(found)
        again = {"retry-after": "1"} if status in _RETRIED else {}
        self.headers = again if headers is None else dict(headers)

    def to_dict(self) -> dict[str, object]:
        """Return the body of the response, see `ERROR_SCHEMA`."""
        names = ("message", "field", "expected", "found")
        return {"error": {"type": self.name} | {name: getattr(self, name) for name in names}}


def request_error(error: errors.QuarryError) -> RequestError:
    """Convert an error of the engine; paths of the server are left out of it."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    field = next((_FIELDS[kind] for kind in type(error).__mro__ if kind in _FIELDS), None)
    if isinstance(error, errors.InvalidSetting):
        field = error.setting
    name = type(error).__name__
    if status == 500:  # a damaged file, or a failure of the system, which concerns the operator alone
        return RequestError(status, name, "the index cannot be read; the log of the server says why")
    return RequestError(status, name, error.message, field=field, expected=error.expected, found=error.actual)


def stopping_error() -> RequestError:
    """Return the error of a request that is not carried out because the server stops."""
    return RequestError(503, "Stopping", "the server is stopping")


def error_response(error: RequestError) -> Response:
    """Return the response for an error."""
    body = json.dumps(error.to_dict()).encode()
    return Response(body, error.status, headers=error.headers, media_type=JSON_TYPE)
