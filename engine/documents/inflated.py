"""Bytes of a plain, gzip or zstandard file, inflated in bounded memory."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import cast

import zstandard

from quarry.formats.errors import AccessFailed, InvalidDocument
from quarry.formats.system_errors import access_failed

__all__ = ["READ_ERRORS", "DamagedFrameError", "InflatedFile"]

# A block of zstandard grows by at most 128 KiB for 4 bytes: what one step inflates to stays under 32 MiB.
_ZSTD_STEP_BYTES = 1 << 10
_BUFFER_BYTES = 1 << 18


class DamagedFrameError(Exception):
    """Zstandard data that cannot be inflated."""


READ_ERRORS = (EOFError, zlib.error, DamagedFrameError, OSError)
"""What reading a stream raises; `InflatedFile.read_failed` makes typed errors of them."""


class InflatedFile:
    """A file whose inflated bytes are read once, from the first to the last.

    It is a context manager: it opens the file, and its value is the stream.

    Attributes:
        path: the path of the file; ``.gz`` and ``.zst``, in capitals or not, are inflated, and others are read as
            they are. Several members or frames may follow each other.
        content: what was read of the file already; None: it is opened.
        stream: the inflated bytes, while the file is open.

    Raises:
        AccessFailed: on entry: the system does not let the file be opened.
    """

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        self.content = content
        self.stream: io.BufferedReader | None = None
        self._file: io.BufferedReader | None = None
        self._size_bytes = 0

    def __enter__(self) -> io.BufferedReader:
        if self.content is not None:
            self._file = io.BufferedReader(cast(io.RawIOBase, io.BytesIO(self.content)))
            self._size_bytes = len(self.content)
        else:
            try:
                self._file = self.path.open("rb")
            except OSError as error:
                raise access_failed(error, "opened", self.path) from error
            self._size_bytes = os.fstat(self._file.fileno()).st_size
        suffix = self.path.suffix.lower()
        if suffix == ".gz":
            self.stream = cast(io.BufferedReader, gzip.GzipFile(fileobj=self._file))
        elif suffix == ".zst":
            self.stream = io.BufferedReader(_ZstandardFile(self._file), _BUFFER_BYTES)
        else:
            self.stream = self._file
        return self.stream

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if it is open."""
        self.stream = None
        if self._file is not None:
            self._file.close()

    def fraction_read(self) -> float:
        """How much of the file, compressed as it is, has been read: 0 to 1."""
        if self._file is None:
            return 0.0
        if self._file.closed or self._size_bytes == 0:
            return 1.0
        return min(1.0, self._file.tell() / self._size_bytes)

    def read_failed(self, error: Exception, place: str = "") -> InvalidDocument | AccessFailed:
        """Return the typed error for one of `READ_ERRORS`.

        Args:
            error: raised by the stream.
            place: the last part of the file that was read, such as ``line 7``.
        """
        after = f" after {place}" if place else ""
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            return access_failed(error, f"read{after}", self.path)
        return InvalidDocument(f"the compressed data is damaged{after}: {error}", path=self.path)


class _ZstandardFile(io.RawIOBase):
    """The inflated bytes of zstandard frames one after another.

    The library's own stream reader takes a frame that ends early for a whole one; this one does not.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready and self._feed():
            pass
        n_bytes = min(len(buffer), len(self._ready))
        buffer[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes

    def _feed(self) -> bool:
        """Inflate the next step; False at the end of the file."""
        step = self._compressed or self._file.read(_ZSTD_STEP_BYTES)
        if not step:
            if self._frame is not None:
                raise DamagedFrameError("it ends inside a zstandard frame")
            return False
        frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        try:
            self._ready = memoryview(frame.decompress(step))
        except zstandard.ZstdError as error:
            raise DamagedFrameError(str(error)) from error
        self._compressed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame
        return True
