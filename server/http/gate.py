"""First steps of every request: the check of the header Host, headers of all responses, and counting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarry.server.http.access import Access
from quarry.server.http.failures import RequestError, error_response
from quarry.server.http.metrics import Metrics

__all__ = ["Gate"]

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE = (b"cache-control", b"no-store")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "other"


class Gate:
    """Lets requests through to an application, if they name this server; ASGI middleware.

    A page of another site can make a browser connect to a server on the same machine under a name of its own (DNS
    rebinding). Its requests have that name in the header Host.

    After a fork the threads and the indexes are the parent's, so a child answers no request.

    Args:
        app: the application.
        access: the allowed hosts.
        metrics: counts requests.
    """

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app = app
        self._access = access
        self._metrics = metrics
        self._pid = os.getpid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or carry out an event of the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        scope = {key: value for key, value in scope.items() if key != "route"}  # of an application around this one

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _with_headers(message.get("headers", ()))}
            await send(message)

        self._metrics.begin_request()
        try:
            await self._answer(scope, receive, send_with_headers)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else _OTHER
            path = _template_of(scope.get("route"))
            self._metrics.end_request(path, method, status, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._find_error(Headers(scope=scope).get("host", ""))
        await (self._app if error is None else error_response(error))(scope, receive, send)

    def _find_error(self, host: str) -> RequestError | None:
        if not self._access.allows_host(host):
            expected = "a host that this server is configured to answer for"
            message = "the request is for another host"
            return RequestError(421, "WrongHost", message, field="host", expected=expected, found=host[:60])
        if os.getpid() != self._pid:
            expected = "an application that is made after the fork, as without --preload"
            return RequestError(503, "Forked", "the application was made by another process", expected=expected)
        return None


def _template_of(route: object) -> str:
    """Return the path of a route as the OpenAPI document has it."""
    return str(getattr(route, "path", _OTHER)).replace(":document_id}", "}")


def _with_headers(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    headers = [*given, *_HEADERS]
    if not any(name == _NO_STORE[0] for name, _ in headers):
        headers.append(_NO_STORE)
    return headers
