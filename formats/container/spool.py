"""A buffer for a section of unknown size: in memory while it is small, then in a temporary file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import AnyArray
from quarry.formats.container.directory import Directory, OutputFile
from quarry.formats.container.sections import CHUNK_BYTES

__all__ = ["TEMPORARY_SUFFIX", "Spool", "make_temporary_name"]

TEMPORARY_SUFFIX = ".tmp"  # orphan files, deleted by the next writer


def make_temporary_name() -> str:
    """Return a new name for a temporary file; the next writer deletes files of such names."""
    return f"spool-{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


class Spool:
    """Collects the bytes of a section until its size is known.

    No data are lost if an I/O error occurs, for example on a full disk: bytes stay in memory until they are
    written.

    Args:
        directory: for the temporary file, which is created at `WriterLimits.section_bytes`.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._buffer = bytearray()
        self._n_spilled = 0  # bytes before the buffer; the file may have more after a failed spill
        self._file: OutputFile | None = None
        self._name = make_temporary_name()

    @property
    def n_bytes(self) -> int:
        """Bytes appended so far."""
        return self._n_spilled + len(self._buffer)

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`, and spill the buffer if it has reached the limit."""
        self.append(data)
        self.spill()

    def append(self, data: bytes | memoryview) -> None:
        """Append `data` in memory only, so that no I/O error can occur; the caller must call `spill` regularly."""
        self._buffer += data

    def spill(self) -> None:
        """Write the buffer to the temporary file, if it has reached the limit."""
        if len(self._buffer) >= self._directory.limits.section_bytes:
            self._spill()

    def write_array(self, array: AnyArray) -> None:
        """Append the elements of `array`."""
        self.write(np.ascontiguousarray(array).tobytes())

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Return `n_bytes` from `offset`, all of which must have been appended."""
        head = b""
        if self._file and offset < self._n_spilled:
            head = self._file.read_back(offset, min(n_bytes, self._n_spilled - offset))
        start = offset + len(head) - self._n_spilled
        with memoryview(self._buffer) as buffer:
            return head + bytes(buffer[start : start + n_bytes - len(head)])

    def read_array(self, dtype: npt.DTypeLike, low: int, high: int) -> AnyArray:
        """Return the elements low to high - 1 of a spool of `dtype`."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.read(low * size, (high - low) * size), dtype)

    def chunks(self) -> Iterator[bytes]:
        """Yield everything in chunks of CHUNK_BYTES."""
        for offset in range(0, self.n_bytes, CHUNK_BYTES):
            yield self.read(offset, min(CHUNK_BYTES, self.n_bytes - offset))

    def close(self) -> None:
        """Discard the content and delete the temporary file."""
        self._buffer, self._n_spilled = bytearray(), 0
        if self._file:
            self._file.discard()
            self._file = None

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._directory.create(self._name)
        with memoryview(self._buffer) as buffer:
            self._file.write(buffer[self._file.position - self._n_spilled :])
        self._buffer, self._n_spilled = bytearray(), self._file.position
