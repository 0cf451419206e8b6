"""Operations that a request can name: their descriptions, and the steps that all of them share."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quarry.engine import UnknownFieldWarning
from quarry.formats.errors import QuarryError
from quarry.server.http.access import Access, Need, check_key
from quarry.server.http.failures import JSON_TYPE, RequestError, error_response, request_error, stopping_error
from quarry.server.http.json_schema import Schema

__all__ = ["Operation", "encode_json", "json_bytes_response", "json_response", "routes"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes:
        method: method of HTTP.
        path: template of the path; "{id:document_id}" is the rest of it.
        needs: what the client must be allowed to: nothing, to read, or to write.
        answer: answers a request.
        summary: what it does, in one sentence.
        result: media type and schema of the response.
        body: schemas of the body by the media types that it may have; empty: there is none.
        query: schemas of the parameters after the path, by name.
    """

    method: str
    path: str
    needs: Need
    answer: Callable[[Request], Awaitable[Response]]
    summary: str
    result: tuple[str, Schema]
    body: Mapping[str, Schema] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)


class _IdConvertor(Convertor[str]):
    """The rest of a path, whatever it holds: line breaks too, unlike Starlette's ``path``."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("document_id", _IdConvertor())


def json_response(value: object) -> Response:
    """Return a response with a value of JSON."""
    return json_bytes_response(encode_json(value))


def json_bytes_response(body: bytes) -> Response:
    """Return a response with encoded JSON."""
    return Response(body, media_type=JSON_TYPE)


def encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def routes(operations: Iterable[Operation], access: Access) -> list[Route]:
    """Return one route for each path, which checks the key and answers errors of its operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _Endpoint(methods, access), methods=sorted(methods)) for path, methods in by_path.items()]


class _Endpoint:
    """Answers the requests of one path; an ASGI application."""

    def __init__(self, operations: Mapping[str, Operation], access: Access) -> None:
        self._operations = operations
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request = Request(scope, receive, send)
        response = await self._respond(self._operations[method], request)
        await response(scope, receive, send)

    async def _respond(self, operation: Operation, request: Request) -> Response:
        try:
            check_key(self._access, operation.needs, request.headers.get("authorization"))
            return await operation.answer(request)
        except RequestError as error:
            return error_response(error)
        except asyncio.CancelledError:  # the server stops
            return error_response(stopping_error())
        except UnknownFieldWarning as warning:  # an error if the filter of warnings says so
            return error_response(RequestError(422, "UnknownField", str(warning), field="filter"))
        except QuarryError as error:
            answer = request_error(error)
            if answer.status >= 500:
                _log.error("%s %s: %s", request.method, operation.path, error)
            return error_response(answer)
        except Exception:
            _log.exception("%s %s failed", request.method, operation.path)
            return error_response(RequestError(500, "ServerError", "the server has failed; its log says why"))
