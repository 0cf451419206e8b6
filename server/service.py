"""The operations on the server itself: the pages, health, metrics and the OpenAPI document."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from quarry.formats.errors import QuarryError
from quarry.server.http.access import Access
from quarry.server.http.failures import JSON_TYPE, RequestError
from quarry.server.http.metrics import METRICS_TYPE, Metrics
from quarry.server.http.openapi import openapi_document
from quarry.server.http.operations import Operation, json_response
from quarry.server.served_index import ServedIndex
from quarry.server.workers import Workers

__all__ = ["ServiceOperations"]

_TIMEOUT_S = 10.0  # for looking at all indexes
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_log = logging.getLogger(__name__)


class ServiceOperations:
    """Answers requests that concern the server.

    Args:
        indexes: the indexes by name.
        watchers: threads that look at the indexes, even while all others are busy.
        metrics: what was counted.
        access: who may use the server.
        others: the operations on indexes.
    """

    def __init__(
        self,
        indexes: Mapping[str, ServedIndex],
        watchers: Workers,
        metrics: Metrics,
        access: Access,
        others: Sequence[Operation],
    ) -> None:
        self._indexes = indexes
        self._watchers = watchers
        self._metrics = metrics
        self._access = access
        self._others = others

    def operations(self) -> list[Operation]:
        """Return the descriptions of all operations."""
        text, status = {"type": "string"}, {"status": {"type": "string"}}
        health = {"type": "object", "required": ["status"], "properties": status}
        healthy = "Say whether all indexes can be read; 503 if not"
        counted, described = "Metrics in the text format of Prometheus", {"type": "object"}
        return [
            Operation("GET", "/", "nothing", self._page, "The page for searching", ("text/html", text)),
            Operation("GET", "/docs", "nothing", self._docs, "A page about all requests", ("text/html", text)),
            Operation("GET", "/health", "nothing", self._health, healthy, (JSON_TYPE, health)),
            Operation("GET", "/metrics", "read", self._get_metrics, counted, ("text/plain", text)),
            Operation("GET", "/openapi.json", "nothing", self._openapi, "This document", (JSON_TYPE, described)),
        ]

    async def _page(self, _: Request) -> Response:
        return _page_response("page.html")

    async def _docs(self, _: Request) -> Response:
        return _page_response("docs.html")

    async def _health(self, _: Request) -> Response:
        sizes = await self._sizes()
        if None in sizes.values():
            raise RequestError(503, "Unhealthy", "an index cannot be read")
        return json_response({"status": "ok"})

    async def _get_metrics(self, _: Request) -> Response:
        text = self._metrics.text(await self._sizes())
        return Response(text, headers={"content-type": METRICS_TYPE})

    async def _openapi(self, request: Request) -> Response:
        operations = [*self.operations(), *self._others]
        return json_response(openapi_document(operations, self._access, request.scope.get("root_path", "")))

    async def _sizes(self) -> dict[str, int | None]:
        """Return the number of documents of each index, None for one that cannot be read."""

        def measure() -> dict[str, int | None]:
            return {name: _size(index) for name, index in self._indexes.items()}

        return await self._watchers.run(measure, _TIMEOUT_S)


def _size(index: ServedIndex) -> int | None:
    try:
        return len(index.newest())
    except QuarryError as error:
        _log.warning("%s cannot be read: %s", index.name, error)
        return None


@cache
def _page_response(name: str) -> Response:
    """Return a page, one file.

    Its Content-Security-Policy allows what is inline by digests, requests to this server, and nothing else.
    """
    page = resources.files("quarry.server").joinpath(name).read_text(encoding="utf-8")
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests[kind].append(f"'sha256-{digest}'")
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(digests['script'])}",
        f"style-src {' '.join(digests['style'])}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
    headers = {"content-security-policy": "; ".join(policy), "cache-control": "no-cache"}
    return Response(page, media_type="text/html", headers=headers)
