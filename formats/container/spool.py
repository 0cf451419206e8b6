"""A section in the making: bytes appended piece by piece, in memory while few, then in a temporary file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import AnyArray
from quarry.formats.container.directory import Directory, OutputFile
from quarry.formats.container.sections import CHUNK_BYTES

__all__ = ["TEMPORARY_SUFFIX", "Spool", "temporary_name"]

TEMPORARY_SUFFIX = ".tmp"  # files of that name are leftovers, deleted by the next writer


def temporary_name() -> str:
    """A name that no other file of the index has; the next writer deletes what is left under such a name."""
    return f"spool-{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


class Spool:
    """Bytes of unknown number on their way into a file.

    Where the system fails, on a full disk for one, nothing that was written is lost: what waits in memory goes to
    the file once that can be written.

    Args:
        directory: where the temporary file goes once there are more than 4 MiB.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._buffer = bytearray()
        self._n_moved = 0  # bytes before those in the buffer; a move that failed may have written more to the file
        self._file: OutputFile | None = None
        self._name = temporary_name()

    @property
    def n_bytes(self) -> int:
        """How many bytes were written."""
        return self._n_moved + len(self._buffer)

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`."""
        self.append(data)
        self.settle()

    def append(self, data: bytes | memoryview) -> None:
        """Append `data` in memory, where no system fails; `settle` is to be called before it becomes much."""
        self._buffer += data

    def settle(self) -> None:
        """Move what waits in memory to the file, if it is 4 MiB or more."""
        if len(self._buffer) >= self._directory.limits.section_bytes:
            self._spill()

    def write_array(self, array: AnyArray) -> None:
        """Append the elements of `array`."""
        self.write(np.ascontiguousarray(array).tobytes())

    def read(self, offset: int, n_bytes: int) -> bytes:
        """`n_bytes` from `offset`, all of which must have been written."""
        head = b""
        if self._file and offset < self._n_moved:
            head = self._file.read_back(offset, min(n_bytes, self._n_moved - offset))
        start = offset + len(head) - self._n_moved
        return head + bytes(self._buffer[start : start + n_bytes - len(head)])

    def read_array(self, dtype: npt.DTypeLike, low: int, high: int) -> AnyArray:
        """The elements low to high - 1, for a spool of elements of `dtype`."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.read(low * size, (high - low) * size), dtype)

    def chunks(self) -> Iterator[bytes]:
        """Everything, in chunks as a file's sections want them."""
        for offset in range(0, self.n_bytes, CHUNK_BYTES):
            yield self.read(offset, min(CHUNK_BYTES, self.n_bytes - offset))

    def close(self) -> None:
        """Forget the content and delete the temporary file."""
        self._buffer, self._n_moved = bytearray(), 0
        if self._file:
            self._file.discard()
            self._file = None

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._directory.create(self._name)
        self._file.write(bytes(self._buffer[self._file.position - self._n_moved :]))
        self._buffer, self._n_moved = bytearray(), self._file.position
