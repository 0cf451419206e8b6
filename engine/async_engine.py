"""The awaitable form of an open index: its calls run on threads, so that the event loop is never blocked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import numpy.typing as npt

from quarry.engine.arguments import checked_integer
from quarry.engine.documents.document import Document
from quarry.engine.documents.reader import DocumentSource
from quarry.engine.engine import Engine
from quarry.engine.listing.facets import Facets
from quarry.engine.options import SearchKeywords
from quarry.engine.search.hits.hits import Hits
from quarry.formats.container.cancellation import Cancellation
from quarry.formats.errors import IndexClosed

__all__ = ["AsyncEngine"]

R = TypeVar("R")

_DEFAULT_SLOTS = 4  # calls that run at a time
_MAX_SLOTS = 1024
_BATCH_DOCS = 256  # read at a time by an asynchronous iterator


class AsyncEngine:
    """An open index for programs of asyncio, returned by `AsyncEngine.open`; an asynchronous context manager.

    Every call runs on a thread. Calls that read share a number of slots, and wait in line when all are taken.
    Calls that change the index run one at a time on a thread of their own, so that a long merge delays no search.

    Cancellation, for example by ``asyncio.timeout``:

    * A reading call that has not begun is not made, and its place in the line is free. One that has begun is
      abandoned at once: its thread stops at the next step of its work, and then the slot is free.
    * A changing call that has not begun is not made. `add` stops before the next document; documents added before
      it are kept for the next commit, or `rollback`, as after an error. Other changing calls, such as `commit`,
      cannot be stopped half way: they are finished first. `CancelledError` is raised when the call has ended, so a
      cancelled change never continues in the background.

    Several objects may be open on one index, one of them writable. All calls of one object must be awaited on the
    event loop that it was opened on. Methods that are missing here are called with `read` and `change`.
    """

    def __init__(self, engine: Engine, slots: int) -> None:
        self._engine = engine
        self._readers = ThreadPoolExecutor(slots, thread_name_prefix="quarry-async-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="quarry-async-write")
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        slots: int = _DEFAULT_SLOTS,
        **options: Any,  # noqa: ANN401
    ) -> Self:
        """Open an index.

        Args:
            path: folder of the index.
            slots: number of reading calls that run at a time.
            **options: keyword arguments of `Engine.open`.

        Raises:
            InvalidSetting: `slots` is out of range.
            QuarryError: as `Engine.open` raises it.
        """
        n_slots = checked_integer(slots, "slots", 1, _MAX_SLOTS)
        thread = ThreadPoolExecutor(1, thread_name_prefix="quarry-async-open")
        opening = thread.submit(Engine.open, path, **options)
        thread.shutdown(wait=False)
        try:
            return cls(await asyncio.wrap_future(opening), n_slots)
        except asyncio.CancelledError:
            await _end(asyncio.ensure_future(asyncio.to_thread(opening.add_done_callback, _close_opened)))
            raise

    async def read(self, call: Callable[[Engine], R]) -> R:
        """Make a call that reads the index, on one of the slots.

        Args:
            call: is given the `Engine`; for example ``lambda engine: engine.verify()``.

        Raises:
            IndexClosed: this object is closed.
            Exception: what `call` raises.
        """
        cancellation = Cancellation()
        try:
            return await asyncio.wrap_future(
                self._submit(self._readers, lambda engine: cancellation.run(call, engine))
            )
        finally:
            cancellation.cancel()

    async def change(self, call: Callable[[Engine], R]) -> R:
        """Make a call that changes the index, after all changing calls before it; see `read`.

        If it is cancelled while it runs, `CancelledError` is raised when it is done.
        """
        return await self._change(call, lambda: None)

    @overload
    async def search(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self, queries: str, k: int = ..., *, vector: npt.ArrayLike | None = ..., **options: Unpack[SearchKeywords]
    ) -> Hits: ...

    @overload
    async def search(
        self,
        queries: Sequence[str],
        k: int = ...,
        *,
        vector: npt.ArrayLike | None = ...,
        **options: Unpack[SearchKeywords],
    ) -> list[Hits]: ...

    @overload
    async def search(
        self, queries: None = ..., k: int = ..., *, vector: npt.ArrayLike, **options: Unpack[SearchKeywords]
    ) -> Hits | list[Hits]: ...

    @overload
    async def search(self, queries: None = ..., k: int = ..., **options: Unpack[SearchKeywords]) -> Hits: ...

    async def search(self, queries: Any = None, k: int = 10, **options: Any) -> Any:  # see above
        """Search, see `Engine.search`."""
        return await self.read(lambda engine: engine.search(queries, k, **options))

    async def get(self, ids: Iterable[str] | str, *, vectors: bool = False) -> list[Document]:
        """Return documents, see `Engine.get`."""
        return await self.read(lambda engine: engine.get(ids, vectors=vectors))

    async def count(self, filter: Mapping[str, object] | None = None) -> int:  # noqa: A002  # as in search
        """Return the number of documents that pass a filter; None: of all documents."""
        return await self.read(lambda engine: engine.count(filter))

    async def facets(self, field: str, **options: Any) -> Facets:  # noqa: ANN401
        """Count the values of a field, see `Engine.facets`."""
        return await self.read(lambda engine: engine.facets(field, **options))

    async def documents(self, **options: Any) -> AsyncIterator[Document]:  # noqa: ANN401
        """Iterate over documents, see `Engine.documents`; they are read a few hundred at a time."""
        documents = await self.read(lambda engine: engine.documents(**options))
        while batch := await self.read(lambda _: list(islice(documents, _BATCH_DOCS))):
            for document in batch:
                yield document

    def __aiter__(self) -> AsyncIterator[Document]:
        return self.documents()

    async def stats(self) -> dict[str, object]:
        """Return statistics, see `Engine.stats`."""
        return await self.read(lambda engine: engine.stats())

    async def refresh(self) -> bool:
        """Answer from the newest generation, see `Engine.refresh`."""
        return await self.read(lambda engine: engine.refresh())

    async def add(
        self,
        docs: DocumentSource,
        *,
        progress: Callable[[int, int | None], None] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> int:
        """Add documents to the next commit, see `Engine.add`; `docs` is read on a thread.

        If this is cancelled, the documents added before are kept for the next commit.

        Args:
            docs: documents, or where they are read.
            progress: function of (documents done, total or None), called on the thread; None: no progress.
            **options: other keyword arguments of `Engine.add`.
        """
        steps = _StoppableSteps(progress)
        return await self._change(lambda engine: engine.add(docs, progress=steps, **options), steps.stop)

    async def delete(self, ids: Iterable[str] | str | None = None, **options: Any) -> int:  # noqa: ANN401
        """Delete documents in the next commit, see `Engine.delete`."""
        return await self.change(lambda engine: engine.delete(ids, **options))

    async def update_metadata(self, *arguments: Any, **options: Any) -> int:  # noqa: ANN401
        """Change metadata in the next commit, see `Engine.update_metadata`."""
        return await self.change(lambda engine: engine.update_metadata(*arguments, **options))

    async def commit(self) -> int:
        """Make all changes visible and durable, see `Engine.commit`."""
        return await self.change(lambda engine: engine.commit())

    async def rollback(self) -> None:
        """Discard changes since the last commit, see `Engine.rollback`."""
        await self.change(lambda engine: engine.rollback())

    async def merge(self, **options: Any) -> int:  # noqa: ANN401
        """Merge segments, see `Engine.merge`."""
        return await self.change(lambda engine: engine.merge(**options))

    async def close(self) -> None:
        """Close the index after the changing calls in line; reading calls that wait in line raise IndexClosed.

        Further calls raise IndexClosed at once; closing twice is harmless. Threads have ended when this returns.

        Raises:
            FormatError: as `Engine.close` raises it; the index is closed nevertheless.
        """
        await self._close(lambda engine: engine.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(lambda engine: engine.__exit__(kind, error, trace))

    async def _close(self, close: Callable[[Engine], None]) -> None:
        if self._closing is None:
            last = self._writer.submit(close, self._engine)
            self._closing = asyncio.ensure_future(asyncio.to_thread(self._end_threads, last))
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            await _end(self._closing)
            raise

    def _end_threads(self, last: Future[None]) -> None:
        try:
            last.result()
        finally:
            self._writer.shutdown()
            self._readers.shutdown()

    async def _change(self, call: Callable[[Engine], R], stop: Callable[[], None]) -> R:
        """Make a changing call; if it is cancelled, call `stop` and wait for its end."""
        submitted = self._submit(self._writer, call)
        future = asyncio.wrap_future(submitted)
        try:
            await asyncio.wait([future])  # which does not cancel the future
        except asyncio.CancelledError:
            if not submitted.cancel():
                stop()
                await _end(future)
            raise
        return future.result()

    def _submit(self, threads: ThreadPoolExecutor, call: Callable[[Engine], R]) -> Future[R]:
        if self._closing is not None:
            raise IndexClosed("the index is closed")
        return threads.submit(call, self._engine)


class _Stopped(Exception):
    """Adding documents was cancelled."""


class _StoppableSteps:
    """Progress of adding documents, which raises an error at the next document after `stop`."""

    def __init__(self, progress: Callable[[int, int | None], None] | None) -> None:
        self._progress = progress
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Add no more documents."""
        self._is_stopped.set()

    def __call__(self, n_done: int, n_total: int | None) -> None:
        """Report progress."""
        if self._is_stopped.is_set():
            raise _Stopped
        if self._progress is not None:
            self._progress(n_done, n_total)


def _close_opened(opening: Future[Engine]) -> None:
    """Close an index whose opening was given up; called when it is open, on the thread that opened it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def _end(future: asyncio.Future[Any]) -> None:
    """Wait for the end of a future, whatever it is and however often this is cancelled."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # so that asyncio does not report it as an error that was never retrieved
