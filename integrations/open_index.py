"""An index that is kept open for reading, and opened for writing only while something is written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quarry.engine import Engine, SyncReport
from quarry.engine.arguments import checked_seconds
from quarry.engine.encoding.encoder import Encoder
from quarry.formats.system_errors import checked_path

__all__ = ["OpenIndex"]

T = TypeVar("T")


class OpenIndex:
    """An index whose readers see each commit, of whatever process. Safe to use from several threads.

    Args:
        path: folder of the index; an empty index is created if there is none.
        encoder: the encoder of the index; None: the bundled one that the index has.
        wait_s: seconds that a write waits for another process that is writing.
        create: whether to create an index that does not exist.
        dim: of an index without an encoder, the length of its vectors; None: the index has an encoder.
        metric: with `dim`, how vectors are compared; see `quarry.engine.build`.

    Raises:
        IndexNotFound: there is no index, and `create` is false.
        EncoderMismatch: the vectors of the index are of another encoder.
        InvalidSetting: the index has vectors of another length, or another metric.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: Encoder | None = None,
        wait_s: float = 30,
        *,
        create: bool = True,
        dim: int | None = None,
        metric: str = "cosine",
    ) -> None:
        self.path = os.fspath(checked_path(path, "path"))
        self._encoder = encoder
        self._wait_s = checked_seconds(wait_s, "wait_s")
        self._writing = threading.Lock()
        if dim is None:
            self._reader = Engine.open(self.path, create=create, encoder=encoder, refresh=True)
        else:
            self._reader = Engine.open(self.path, create=create, dim=dim, metric=metric, refresh=True)

    def __reduce__(self) -> tuple[Callable[..., OpenIndex], tuple[object, ...]]:
        """Make a copy, also in another process, open the index itself."""
        if self._encoder is not None:
            raise TypeError(
                f"{self.path}: an index that was opened with an encoder cannot be pickled or copied; open it again"
            )
        return _open_again, (str(Path(self.path).absolute()), self._wait_s)

    def check_encoder(self) -> None:
        """Raise unless texts can be encoded, see `quarry.engine.Engine.check_encoder`."""
        self._reader.check_encoder()

    @property
    def encoder(self) -> Encoder:
        """The encoder of texts, see `quarry.engine.Engine.encoder`."""
        return self._reader.encoder

    @property
    def searcher(self) -> Engine:
        """The index for searches, each of which begins with the newest generation."""
        return self._reader

    def reader(self) -> Engine:
        """Return the index at its newest generation."""
        self._reader.refresh()
        return self._reader

    def write(self, change: Callable[[Engine], T]) -> T:
        """Change the index in one commit, or not at all if the change raises an error.

        Args:
            change: is called with the index, open for writing; its result is returned.

        Raises:
            IndexLocked: another process was writing for longer than the wait.
            IndexClosed: the index is closed.
        """
        self.reader()
        with self._writing, self._writer() as index:
            try:
                result = change(index)
            except BaseException:
                index.rollback()
                raise
            index.commit()
            return result

    def sync(self, folder: str | os.PathLike[str]) -> SyncReport:
        """Bring the index up to date with the files of a folder in one commit; see `quarry.engine.Engine.sync`."""
        self.reader()
        with self._writing, self._writer() as index:
            return index.sync(folder)

    def close(self) -> None:
        """Close the index."""
        self._reader.close()

    def _writer(self) -> Engine:
        return Engine.open(self.path, writable=True, wait=self._wait_s, encoder=self._encoder)


def _open_again(path: str, wait_s: float) -> OpenIndex:
    return OpenIndex(path, None, wait_s, create=False)
