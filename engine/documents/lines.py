"""Lines of a plain, gzip or zstandard file, one at a time, in bounded memory, as UTF-8.

UTF-16, which Excel and PowerShell write, is converted on the way.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.inflated import READ_ERRORS, InflatedFile
from quarry.formats.errors import InvalidDocument

__all__ = ["MAX_LINE_BYTES", "MAX_SKIPPED_BYTES", "LineReader", "to_utf8"]

_STEP_BYTES = 1 << 16
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def to_utf8(stream: io.BufferedReader) -> io.BufferedReader:
    """Return a stream of UTF-8: the same one, unless it begins with the byte order mark of UTF-16.

    What is not UTF-16 becomes bytes that are not UTF-8, so that a reader of lines can say where it is.

    Raises:
        OSError, EOFError, zlib.error: reading `stream` failed, now or when the result is read.
    """
    encoding = _MARKS.get(stream.peek(2)[:2])
    return stream if encoding is None else io.BufferedReader(_Transcoded(stream, encoding), _STEP_BYTES)


class _Transcoded(io.RawIOBase):
    """The bytes of UTF-8 for a stream in another encoding."""

    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            step = self._stream.read(_STEP_BYTES)
            try:
                text = self._decoder.decode(step, final=not step)
            except UnicodeDecodeError:  # half a character at the end
                text = "\udfff"
                self._decoder.reset()
            self._ready = memoryview(text.encode("utf-8", "surrogatepass"))
            if not step:
                break
        n_bytes = min(len(buffer), len(self._ready))
        buffer[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes


MAX_LINE_BYTES = 64 << 20
"""The longest line, without its line break."""
MAX_SKIPPED_BYTES = 8 * MAX_LINE_BYTES
"""The longest line that is read to its end to reach the next one; few compressed bytes can inflate to many."""

_BUFFER_BYTES = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EMPTY_LINES = re.compile(rb"(?:\r*+\n++)++")
_MIN_EMPTY_LINES = 16  # in a row, before the buffer is copied to find how many follow


class LineReader:
    """Reads the lines of one file, in order, once; it is open from the first line to the last, or to `close`.

    Args:
        path: a file; ``.gz`` and ``.zst``, in capitals or not (several members or frames too), are inflated, and
            UTF-16 with a byte order mark is converted to UTF-8.
        max_line_bytes: the longest line, without its line break.
        max_skipped_bytes: the longest line that is read to its end to reach the next one.
        content: what was read of the file already; None: it is opened.

    Raises:
        AccessFailed: while iterating: the system does not let the file be opened or read.
        InvalidDocument: while iterating: the compressed stream is damaged or ends early, or a line that is to be
            skipped is longer than `max_skipped_bytes`.
    """

    def __init__(
        self,
        path: Path,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_skipped_bytes: int = MAX_SKIPPED_BYTES,
        content: bytes | None = None,
    ) -> None:
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._max_skipped_bytes = max_skipped_bytes
        self._file = InflatedFile(path, content)
        self._n_lines = 0
        self._n_empty = 0  # in a row, up to the last line

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield (line number from 1, its bytes without line break and byte order mark); None when it is too long.

        A line that is too long is yielded when that is known, and its rest is read before the next one.
        """
        with self._file as inflated:
            stream = self._file.stream = self._to_utf8(inflated)
            while line := self._read(stream, self._max_line_bytes + 2):
                self._n_lines += 1
                content = line.rstrip(b"\r\n")
                if self._n_lines == 1:
                    content = content.removeprefix(_BYTE_ORDER_MARK)
                self._n_empty = 0 if content else self._n_empty + 1
                is_whole = len(content) <= self._max_line_bytes
                yield self._n_lines, content if is_whole else None
                if not is_whole:
                    self._skip_rest(stream, line)

    def skip_empty_lines(self) -> None:
        """Skip empty lines that follow the last line, though not necessarily all, if that was empty too.

        This is much faster than iterating over them: compressed, hundreds of millions fit in a small file.
        """
        stream = self._file.stream
        if stream is None or self._n_empty < _MIN_EMPTY_LINES:
            return
        try:
            empty = _EMPTY_LINES.match(stream.peek(1))
            if empty:
                self._n_lines += stream.read(empty.end()).count(b"\n")
        except READ_ERRORS as error:
            raise self._file.read_failed(error, f"line {self._n_lines}") from error

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

    def fraction_read(self) -> float:
        """How much of the file, compressed as it is, has been read: 0 to 1."""
        return self._file.fraction_read()

    def _to_utf8(self, stream: io.BufferedReader) -> io.BufferedReader:
        try:
            return to_utf8(stream)
        except READ_ERRORS as error:
            raise self._file.read_failed(error, f"line {self._n_lines}") from error

    def _skip_rest(self, lines: io.BufferedReader, line: bytes) -> None:
        """Read up to the next line break; `line` is what was read already."""
        n_bytes = len(line)
        while line and not line.endswith(b"\n"):
            line = self._read(lines, min(_BUFFER_BYTES, self._max_skipped_bytes))
            n_bytes += len(line)
            if n_bytes > self._max_skipped_bytes:
                raise InvalidDocument(
                    f"line {self._n_lines} does not end, so the lines after it cannot be read",
                    path=self._path,
                    expected=f"a line break within {self._max_skipped_bytes} bytes",
                )

    def _read(self, lines: io.BufferedReader, max_bytes: int) -> bytes:
        """Read up to the end of a line, or only `max_bytes` of it; empty at the end of the file."""
        try:
            return lines.readline(max_bytes)
        except READ_ERRORS as error:
            raise self._file.read_failed(error, f"line {self._n_lines}") from error
