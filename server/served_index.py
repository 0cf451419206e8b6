"""An index that is served: open for reading, and opened for writing only while something is written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarry.engine import Engine
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.search.reranker import Reranker

__all__ = ["Models", "ServedIndex", "Written"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models and threads with which indexes are opened.

    Attributes:
        encoder: the encoder, or None for that of each index, if it is a bundled one.
        reranker: for searches with `rerank`, or None.
        threads: threads for a batch of queries and for encoding documents; None: one for each available CPU.
        open_reader: opens an index: returns something with the reading methods of `Engine`; None: `Engine.open`.
    """

    encoder: Encoder | None = None
    reranker: Reranker | None = None
    threads: int | None = None
    open_reader: Callable[[Path], Any] | None = None

    def open_to_read(self, path: Path) -> Any:  # noqa: ANN401  # `Engine`, or what has its methods
        """Return what searches the newest generation of an index, whichever process commits it.

        Raises:
            EncoderMismatch: the index has another encoder.
        """
        if self.open_reader is not None:
            return self.open_reader(path)
        index = Engine.open(path, encoder=self.encoder, reranker=self.reranker, threads=self.threads, refresh=True)
        try:
            index.check_encoder()
        except BaseException:
            index.close()
            raise
        return index


@dataclass(frozen=True)
class Written:
    """The result of a write.

    Attributes:
        count: number of documents deleted or changed, or added and not replaced by later ones of the same upload.
        generation: the generation that has the change.
    """

    count: int
    generation: int


class ServedIndex:
    """An index that answers from its newest generation, whichever process commits it.

    All methods may block, and are safe to use from several threads. Writes are carried out one after another on a
    thread of their own, each by an engine that is open, and holds the write lock, only for it.

    Args:
        name: name of the index for clients.
        path: folder of the index.
        models: how it is opened.
        wait_s: seconds that a write waits for another process that holds the write lock.

    Attributes:
        reader: has the reading methods of `Engine`.
        is_writing: whether a write has begun and not ended.

    Raises:
        QuarryError: what `Engine.open` raises.
    """

    def __init__(self, name: str, path: Path, models: Models, wait_s: float) -> None:
        self.name = name
        self._path = path
        self._models = models
        self._wait_s = wait_s
        self.reader = models.open_to_read(path)
        self._writer = ThreadPoolExecutor(1, f"quarry-write-{name}")
        self.is_writing = False

    def newest(self) -> Any:  # noqa: ANN401  # `Engine`, or what has its methods
        """Return `reader` at the newest generation."""
        self.reader.refresh()
        return self.reader

    def add(self, documents: Path) -> Future[Written]:
        """Add the documents of a file of JSON in one commit, or none if one of them is not valid."""
        return self._write(lambda index: index.add(documents))

    def delete(self, **which: Any) -> Future[Written]:  # noqa: ANN401
        """Delete documents in one commit, see `Engine.delete`."""
        return self._write(lambda index: index.delete(**which))

    def update(self, changes: Mapping[str, object] | None, **which: Any) -> Future[Written]:  # noqa: ANN401
        """Change metadata in one commit, see `Engine.update_metadata`."""
        return self._write(lambda index: index.update_metadata(changes=changes, **which))

    def close(self) -> None:
        """Finish the writes that have begun, cancel the others, and close the index."""
        self._writer.shutdown(cancel_futures=True)
        self.reader.close()

    def _write(self, change: Callable[[Engine], int]) -> Future[Written]:
        """Make a change when the writes before it have ended; the future has its result once it is committed.

        It is cancelled if the index is closed before the change begins.
        Closing the engine afterwards may take longer, if segments are merged.
        """
        done: Future[Written] = Future()
        try:
            submitted = self._writer.submit(self._carry_out, change, done)
        except RuntimeError:  # closed
            done.cancel()
        else:
            submitted.add_done_callback(lambda ended: ended.cancelled() and done.cancel())  # by `close`
        return done

    def _carry_out(self, change: Callable[[Engine], int], done: Future[Written]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        self.is_writing = True
        try:
            with Engine.open(
                self._path,
                writable=True,
                wait=self._wait_s,
                encoder=self._models.encoder,
                threads=self._models.threads,
            ) as index:
                count = change(index)
                generation = index.commit()
                done.set_result(Written(count - generation.n_replaced, generation))
        except BaseException as error:
            if done.done():
                _log.exception("%s: closing it after a commit failed", self.name)
            else:
                done.set_exception(error)
        finally:
            self.is_writing = False
