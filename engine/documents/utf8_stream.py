"""Text of UTF-16 as the bytes of UTF-8, for readers of lines: Excel and PowerShell write such files."""

from __future__ import annotations

import codecs
import io

__all__ = ["to_utf8"]

_STEP_BYTES = 1 << 16
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def to_utf8(stream: io.BufferedReader) -> io.BufferedReader:
    """Return a stream of UTF-8: the same one, unless it begins with the byte order mark of UTF-16.

    What is no UTF-16 becomes bytes that are no UTF-8, so that a reader of lines can say where it is.

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
