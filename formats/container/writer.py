"""Writes a container file: sections one after the other, then the table of contents and the footer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import AnyArray
from quarry.formats.container.directory import Directory, OutputFile
from quarry.formats.container.layout import (
    MAX_CONTENTS_BYTES,
    FileKind,
    FileRecord,
    pack_footer,
    pack_preamble,
)
from quarry.formats.container.packing import pack
from quarry.formats.container.sections import ALIGNMENT, CHUNK_BYTES, digest

__all__ = ["ContainerWriter"]


class ContainerWriter:
    """Writes one file, section after section; the file is deleted if an error occurs.

    Args:
        directory: the folder of the index.
        name: the file's name.
        kind: what it holds.
        file_id: 16 random bytes that no other file has.
        optional_features: bits of the features that a reader may ignore.
        required_features: bits of the features that a reader must support.
        writer_features: bits of the features that a writer must support.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        kind: FileKind,
        file_id: bytes,
        optional_features: int = 0,
        required_features: int = 0,
        writer_features: int = 0,
    ) -> None:
        self._directory = directory
        self._name = name
        self._file_id = file_id
        self._file: OutputFile = directory.create(name)
        self._is_finished = False
        self._sections: dict[str, dict[str, object]] = {}
        with self._discard_on_error():
            self._file.write(pack_preamble(kind, file_id, optional_features, required_features, writer_features))

    def add(self, name: str, array: AnyArray, alignment: int = ALIGNMENT) -> None:
        """Write a whole array as section `name`."""
        self.add_chunks(name, array.dtype, array.shape, _split_into_chunks(array), alignment)

    def add_chunks(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        chunks: Iterator[bytes | memoryview],
        alignment: int = ALIGNMENT,
    ) -> None:
        """Write section `name` from `chunks`, each of CHUNK_BYTES except the last."""
        with self._discard_on_error():
            self._pad(alignment)
            offset, digests = self._file.position, []
            for chunk in chunks:
                digests.append(digest(chunk))
                self._file.write(chunk)
        self._sections[name] = {
            "dtype": np.dtype(dtype).name,
            "shape": list(shape),
            "offset": offset,
            "chunks": b"".join(digests),
        }

    def add_pieces(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        pieces: Iterable[AnyArray],
        alignment: int = ALIGNMENT,
    ) -> None:
        """Write section `name` from consecutive arrays of `dtype` and any length."""
        self.add_chunks(name, dtype, shape, _rechunk(pieces), alignment)

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.position

    def sync(self) -> None:
        """Make the bytes written so far durable, so that `finish` has less to sync."""
        with self._discard_on_error():
            self._file.sync()

    def finish(self, fields: dict[str, object]) -> FileRecord:
        """Write `fields` and the table of contents, make the file durable and return its record."""
        with self._discard_on_error():
            self._pad(ALIGNMENT)
            contents = pack({"fields": fields, "sections": self._sections})
            if len(contents) > MAX_CONTENTS_BYTES:
                raise OverflowError(f"a table of contents of more than {MAX_CONTENTS_BYTES} bytes")
            footer = pack_footer(self._file.position, contents, self._file_id)
            self._file.write(contents)
            self._file.write(footer)
            n_bytes = self._file.position
            self._file.sync()
            self._file.close()
        self._is_finished = True
        return FileRecord(self._name, n_bytes, self._file_id, digest(contents))

    def discard(self) -> None:
        """Close and delete the file, unless it is finished."""
        if not self._is_finished:
            self._file.discard()

    @contextlib.contextmanager
    def _discard_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def _pad(self, alignment: int) -> None:
        self._file.write(bytes(-self._file.position % alignment))


def _rechunk(pieces: Iterable[AnyArray]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of all pieces in chunks of CHUNK_BYTES; whole chunks are not copied."""
    waiting = bytearray()
    for piece in pieces:
        data = _view_bytes(piece)
        if waiting:
            taken = min(len(data), CHUNK_BYTES - len(waiting))
            waiting += data[:taken]
            data = data[taken:]
        if len(waiting) == CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
        while len(data) >= CHUNK_BYTES:
            yield data[:CHUNK_BYTES]
            data = data[CHUNK_BYTES:]
        waiting += data
    if waiting:
        yield bytes(waiting)


def _view_bytes(array: AnyArray) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _split_into_chunks(array: AnyArray) -> Iterator[memoryview]:
    data = _view_bytes(array)
    for low in range(0, len(data), CHUNK_BYTES):
        yield data[low : low + CHUNK_BYTES]
