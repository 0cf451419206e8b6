"""Bytes of a plain, gzip or zstandard file, inflated in bounded memory."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import BinaryIO, cast

import zstandard

__all__ = ["DAMAGE", "DamagedFrameError", "inflated"]

# A block of zstandard grows by at most 128 KiB for 4 bytes: what one step inflates to stays under 32 MiB.
_ZSTD_STEP_BYTES = 1 << 10
_BUFFER_BYTES = 1 << 18


class DamagedFrameError(Exception):
    """Zstandard data that cannot be inflated."""


DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, DamagedFrameError)
"""What reading raises when the compressed data is damaged or ends early."""


def inflated(file: io.BufferedReader, suffix: str) -> BinaryIO:
    """Return a stream of the inflated bytes of an open file.

    Args:
        file: open for reading, in binary mode.
        suffix: of its name, in lower case: ``.gz`` and ``.zst`` are inflated, others are read as they are. Several
            members or frames may follow each other.
    """
    if suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if suffix == ".zst":
        return io.BufferedReader(_ZstandardFile(file), _BUFFER_BYTES)
    return file


class _ZstandardFile(io.RawIOBase):
    """The inflated bytes of zstandard frames one after another.

    The library's own stream reader takes a frame that ends early for a whole one; this one does not.
    """

    def __init__(self, file: BinaryIO) -> None:
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
