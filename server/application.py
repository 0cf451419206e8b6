"""The ASGI application: indexes with everything that answers requests about them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.options import OpenOptions
from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import checked_path
from quarry.server.endpoints import IndexOperations
from quarry.server.http.access import Access
from quarry.server.http.failures import RequestError, error_response
from quarry.server.http.gate import Gate
from quarry.server.http.metrics import Metrics
from quarry.server.http.operations import routes
from quarry.server.limits import Limits
from quarry.server.served_index import Models, ServedIndex
from quarry.server.service import ServiceOperations
from quarry.server.workers import Workers

__all__ = ["Paths", "SearchApp", "app"]

Paths: TypeAlias = "Mapping[str, str | os.PathLike[str]] | Iterable[str | os.PathLike[str]]"
"""Folders of indexes, by the names that clients use; without names, each has the name of its folder."""


class SearchApp:
    """Indexes behind HTTP: an ASGI application, to be run by a server or mounted in another application.

    It is a context manager. `close` is called at the end of the lifespan, if a server runs it; an application that
    it is mounted in must call it.

    Args:
        paths: the folders of the indexes.
        models: how the indexes are opened.
        access: who may use them.
        limits: what requests may ask for.

    Attributes:
        indexes: the indexes by name.
    """

    def __init__(self, paths: Mapping[str, Path], models: Models, access: Access, limits: Limits) -> None:
        self.indexes: dict[str, ServedIndex] = {}
        self._workers = Workers(limits.n_threads, limits.max_waiting, "quarry-search")
        self._watchers = Workers(1, limits.max_waiting, "quarry-watch")
        try:
            for name, path in paths.items():
                self.indexes[name] = ServedIndex(name, path, models, limits.timeout_s)
        except BaseException:
            self.close()
            raise
        metrics = Metrics()
        operations = IndexOperations(self.indexes, self._workers, limits, metrics).operations()
        service = ServiceOperations(self.indexes, self._watchers, metrics, access, operations).operations()
        cors = Middleware(
            CORSMiddleware,
            allow_origins=access.origins,
            allow_methods=sorted({each.method for each in operations}),
            allow_headers=["Authorization", "Content-Type"],
        )
        inner = Starlette(
            routes=routes([*service, *operations], access),
            middleware=[cors] if access.origins else [],
            exception_handlers={HTTPException: _answer_http_exception},
            lifespan=self._lifespan,
        )
        self._asgi = Gate(inner, access, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or carry out an event of the lifespan."""
        await self._asgi(scope, receive, send)

    @property
    def is_writing(self) -> bool:
        """Whether a change of an index has begun and not ended."""
        return any(index.is_writing for index in self.indexes.values())

    def close(self) -> None:
        """Finish the requests that have begun and close the indexes; closing twice is harmless."""
        self._workers.close()
        self._watchers.close()
        for index in self.indexes.values():
            index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self.close)


def app(  # keywords, each with a default
    indexes: Paths,
    *,
    encoder: str | os.PathLike[str] | Encoder | None = None,
    reranker: str | os.PathLike[str] | Reranker | None = None,
    threads: int | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
    open_reader: Callable[[Path], Any] | None = None,
) -> SearchApp:
    """Open indexes and return an ASGI application that serves them.

    Args:
        indexes: folders of indexes, sharded or not: by the names that clients use, or a list, in which each has
            the name of its folder.
        encoder: the encoder of all of them, see `Engine.open`.
        reranker: the reranker for searches with `rerank`, see `Engine.open`.
        threads: threads for a batch of queries and for encoding documents; None: one for each available CPU.
        access: keys, hosts and origins; None: requests for this machine's own names may read.
        limits: what requests may ask for; None: the defaults.
        open_reader: opens the folder of an index for reading, for example `quarry.distributed.serve_index`; None:
            `Engine.open`.

    Raises:
        InvalidSetting: there is no index, a name occurs twice, or another value is not valid.
        IndexNotFound: there is no index in a folder.
        QuarryError: whatever else `Engine.open` raises.
    """
    access, limits = access or Access(), limits or Limits()
    n_threads = OpenOptions(threads=threads).n_threads
    models = Models(
        encoder=None if encoder is None else open_encoder(encoder),
        reranker=None if reranker is None else open_reranker(reranker, n_threads),
        threads=threads,
        open_reader=open_reader,
    )
    return SearchApp(_named(indexes), models, access, limits)


def _named(indexes: Paths) -> dict[str, Path]:
    """Return the folders of indexes by their names."""
    if isinstance(indexes, Mapping):
        named = [(name, checked_path(path, "the path of an index")) for name, path in indexes.items()]
    elif isinstance(indexes, str | os.PathLike):
        raise InvalidSetting(
            "indexes is a single path", expected="a list of paths, or a mapping from names to paths"
        )
    else:
        paths = [checked_path(path, "the path of an index") for path in indexes]
        named = [(path.resolve().name, path) for path in paths]
    folders: dict[str, Path] = {}
    for name, path in named:
        if not isinstance(name, str) or not name or "/" in name or not name.isprintable():
            raise InvalidSetting(
                "not a name of an index", expected="a text without slashes", actual=repr(name)[:60]
            )
        if name in folders:
            raise InvalidSetting(
                "two indexes have the same name", path=path, expected="other names, as NAME=PATH", actual=name
            )
        folders[name] = path
    if not folders:
        raise InvalidSetting("there is nothing to serve", expected="at least one index")
    return folders


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer a request for a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    name = {404: "UnknownPath", 405: "UnknownMethod"}.get(error.status_code, "RequestError")
    actual = request.scope["path"][:200] if error.status_code == 404 else request.method[:20]
    message = "there is no such path" if error.status_code == 404 else str(error.detail)
    return error_response(RequestError(error.status_code, name, message, found=actual, headers=error.headers))
