"""Lines of a plain, gzip or zstandard file, one at a time, in bounded memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from quarry.engine.documents.inflated import DAMAGE, inflated
from quarry.formats.errors import InvalidDocument
from quarry.formats.system_errors import access_failed

__all__ = ["MAX_LINE_BYTES", "MAX_SKIPPED_BYTES", "LineReader"]

MAX_LINE_BYTES = 64 << 20
"""The longest line, without its line break."""
MAX_SKIPPED_BYTES = 8 * MAX_LINE_BYTES
"""The longest line that is read to its end to reach the next one; few compressed bytes can stand for many more."""

_BUFFER_BYTES = 1 << 18


class LineReader:
    """Reads the lines of one file, in order, once; it is open from the first line to the last, or to `close`.

    Args:
        path: a file; ``.gz`` and ``.zst``, in capitals or not (several members or frames too), are inflated.

    Raises:
        AccessFailed: while iterating: the system does not let the file be opened or read.
        InvalidDocument: while iterating: the compressed stream is damaged or ends early, or a line that is to be
            skipped is longer than `MAX_SKIPPED_BYTES`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.BufferedReader | None = None
        self._size_bytes = 0
        self._n_lines = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield (line number from 1, its bytes without the line break); None when it is too long.

        A line that is too long is yielded when that is known, and its rest is read when the next one is asked for.
        """
        with self._opened() as self._file, inflated(self._file, self._path.suffix.lower()) as lines:
            self._size_bytes = os.fstat(self._file.fileno()).st_size
            while line := self._read(lines, MAX_LINE_BYTES + 2):
                self._n_lines += 1
                content = line.rstrip(b"\r\n")
                is_whole = len(content) <= MAX_LINE_BYTES
                yield self._n_lines, content if is_whole else None
                if not is_whole:
                    self._skip_rest(lines, line)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()

    def fraction_read(self) -> float:
        """How much of the file, compressed as it is, has been read: 0 to 1."""
        if self._file is None:
            return 0.0
        if self._file.closed or self._size_bytes == 0:
            return 1.0
        return min(1.0, self._file.tell() / self._size_bytes)

    def _opened(self) -> io.BufferedReader:
        try:
            return self._path.open("rb")
        except OSError as error:
            raise access_failed(error, "opened", self._path) from error

    def _skip_rest(self, lines: BinaryIO, line: bytes) -> None:
        """Read up to the next line break; `line` is what was read already."""
        n_bytes = len(line)
        while line and not line.endswith(b"\n"):
            line = self._read(lines, _BUFFER_BYTES)
            n_bytes += len(line)
            if n_bytes > MAX_SKIPPED_BYTES:
                raise InvalidDocument(
                    f"line {self._n_lines} does not end, so the lines after it cannot be read",
                    path=self._path,
                    expected=f"a line break within {MAX_SKIPPED_BYTES} bytes",
                )

    def _read(self, lines: BinaryIO, max_bytes: int) -> bytes:
        """Read up to the end of a line, or only `max_bytes` of it; empty at the end of the file."""
        try:
            return lines.readline(max_bytes)
        except DAMAGE as error:
            raise InvalidDocument(
                f"the compressed data is damaged after line {self._n_lines}: {error}", path=self._path
            ) from error
        except OSError as error:
            raise access_failed(error, f"read after line {self._n_lines}", self._path) from error
