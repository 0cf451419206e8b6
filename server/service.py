"""The operations on the server itself: the page, health, metrics and the OpenAPI document."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from quarry.formats.errors import QuarryError
from quarry.server.http.access import Access
from quarry.server.http.failures import JSON_TYPE, RequestError
from quarry.server.http.metrics import METRICS_TYPE, Metrics
from quarry.server.http.openapi import openapi_document
from quarry.server.http.operations import Operation, json_response
from quarry.server.page import page_response
from quarry.server.served_index import ServedIndex
from quarry.server.workers import Workers

__all__ = ["ServiceOperations"]

_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)


class ServiceOperations:
    """Answers requests that concern the server.

    Args:
        indexes: the indexes by name.
        watchers: threads that look at the indexes, even while all others are busy.
        metrics: the figures.
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
        return [
            Operation(
                method="GET",
                path="/",
                needs="nothing",
                answer=self._page,
                summary="The page for searching",
                result=("text/html", {"type": "string"}),
            ),
            Operation(
                method="GET",
                path="/health",
                needs="nothing",
                answer=self._health,
                summary="Say whether all indexes can be read; 503 if not",
                result=(
                    JSON_TYPE,
                    {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}},
                ),
            ),
            Operation(
                method="GET",
                path="/metrics",
                needs="read",
                answer=self._get_metrics,
                summary="Figures in the text format of Prometheus",
                result=("text/plain", {"type": "string"}),
            ),
            Operation(
                method="GET",
                path="/openapi.json",
                needs="nothing",
                answer=self._openapi,
                summary="This document",
                result=(JSON_TYPE, {"type": "object"}),
            ),
        ]

    async def _page(self, _: Request) -> Response:
        return page_response()

    async def _health(self, _: Request) -> Response:
        sizes = await self._sizes()
        if None in sizes.values():
            raise RequestError(503, "an index cannot be read", name="Unhealthy", headers={"retry-after": "1"})
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
        return index.size()
    except QuarryError as error:
        _log.warning("%s cannot be read: %s", index.name, error)
        return None
