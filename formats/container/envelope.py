"""The container every file of an index uses: preamble, sections, table of contents, footer.

::

    0        preamble, 64 bytes: magic, kind, version, byte order, feature flags, file id, checksum
    64       sections, each aligned to 64 bytes (4096 for bulk tensors), zeros between
    ...      table of contents (msgpack): the file's own fields, and name, type, shape, offset of each section
    n - 64   footer, 64 bytes: place and digest of the table of contents, length of the file, file id, magic

Every section is cut into chunks of 1 MiB, each with its XXH3-128 in the table of contents. Opening a file
checks preamble, table of contents and footer, whatever the size of the file; a chunk is checked when it is
first touched. `SPEC.md` has the bytes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from quarry.formats.container.directory import Directory, HeldFile, MappedFile, OutputFile, is_safe_name
from quarry.formats.container.packing import Fields, pack, unpack
from quarry.formats.container.sections import (
    ALIGNMENT,
    CHUNK_BYTES,
    DIGEST_BYTES,
    MAX_EXTENT,
    Section,
    digest,
    read_sections,
)
from quarry.formats.errors import (
    ChecksumMismatch,
    CorruptFile,
    FormatError,
    FormatTooNew,
    FormatTooOld,
    TruncatedFile,
)

__all__ = ["CANDIDATE_ROWS_FEATURE", "Envelope", "EnvelopeWriter", "FileKind", "FileRecord"]

MAGIC = b"\x89QRRY\r\n\x1a\n"
END_MAGIC = b"QRRYEND\n"
VERSION = (1, 0)  # (major, minor)
BYTE_ORDER = 0x0A0B0C0D
CANDIDATE_ROWS_FEATURE = 1  # a quantizer with the field `candidate_rows`; anyone may ignore it
KNOWN_REQUIRED_FEATURES = KNOWN_WRITER_FEATURES = 0  # bits of the preamble
KNOWN_OPTIONAL_FEATURES = CANDIDATE_ROWS_FEATURE
PREAMBLE = struct.Struct("<9sBHHI16sIII10s")  # then the XXH3-64 of these 56 bytes
FOOTER = struct.Struct("<QQ16sQ16s8s")
PREAMBLE_BYTES = FOOTER_BYTES = 64
FILE_ID = slice(18, 34)  # where it is in the preamble
MAX_CONTENTS_BYTES = 16 << 20
MAX_MANIFEST_BYTES = PREAMBLE_BYTES + MAX_CONTENTS_BYTES + FOOTER_BYTES  # it has no sections


class FileKind(IntEnum):
    """What a file holds; the number is in its preamble. Numbers never change."""

    MANIFEST = 1
    SEGMENT = 2
    QUANTIZER = 3
    TOMBSTONES = 4
    HNSW_GRAPH = 5


@dataclass(frozen=True)
class FileRecord:
    """What a manifest says of a file, so that a swapped or stale one is found out at open.

    Attributes:
        name: file name within the index's folder.
        n_bytes: length of the file.
        file_id: the 16 random bytes in its preamble and footer.
        digest: XXH3-128 of its table of contents.
    """

    name: str
    n_bytes: int
    file_id: bytes
    digest: bytes

    def to_fields(self) -> dict[str, object]:
        """The record as it stands in a manifest."""
        return {"name": self.name, "n_bytes": self.n_bytes, "file_id": self.file_id, "digest": self.digest}

    @classmethod
    def from_fields(cls, fields: Fields) -> FileRecord:
        """Read what `to_fields` wrote; the name is checked to be a plain one."""
        name = fields.text("name", 96)
        if not is_safe_name(name):
            raise CorruptFile("unsafe file name", path=fields.path, actual=repr(name))
        record = cls(
            name=name,
            n_bytes=fields.integer("n_bytes", PREAMBLE_BYTES + FOOTER_BYTES, MAX_EXTENT),
            file_id=fields.data("file_id", 16),
            digest=fields.data("digest", DIGEST_BYTES),
        )
        fields.done()
        return record


class EnvelopeWriter:
    """Writes one file, section after section; a file that cannot be written to its end is deleted.

    Args:
        directory: where.
        name: the file's name.
        kind: what it holds.
        file_id: 16 random bytes that no other file has.
        optional_features: bits of those that anyone may ignore.
    """

    def __init__(
        self, directory: Directory, name: str, kind: FileKind, file_id: bytes, optional_features: int = 0
    ) -> None:
        self._directory = directory
        self._name = name
        self._file_id = file_id
        self._file: OutputFile = directory.create(name)
        self._is_finished = False
        self._sections: dict[str, dict[str, object]] = {}
        with self._gone_on_error():
            self._file.write(_preamble(kind, file_id, optional_features))

    def add(self, name: str, array: npt.NDArray[Any], alignment: int = ALIGNMENT) -> None:
        """Write a whole array as section `name`."""
        self.add_chunks(name, array.dtype, array.shape, _chunks_of(array), alignment)

    def add_chunks(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        chunks: Iterator[bytes | memoryview],
        alignment: int = ALIGNMENT,
    ) -> None:
        """Write section `name` from `chunks`, each of CHUNK_BYTES but the last."""
        with self._gone_on_error():
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
        pieces: Iterable[npt.NDArray[Any]],
        alignment: int = ALIGNMENT,
    ) -> None:
        """Write section `name` from arrays of `dtype`, of any length, that follow one another."""
        self.add_chunks(name, dtype, shape, _rechunked(pieces), alignment)

    @property
    def n_bytes(self) -> int:
        """What was written so far."""
        return self._file.position

    def sync(self) -> None:
        """Make durable what was written so far, so that `finish` has less to wait for."""
        with self._gone_on_error():
            self._file.sync()

    def finish(self, fields: dict[str, object]) -> FileRecord:
        """Write `fields` and the table of contents, and make the file durable."""
        with self._gone_on_error():
            self._pad(ALIGNMENT)
            contents = pack({"fields": fields, "sections": self._sections})
            if len(contents) > MAX_CONTENTS_BYTES:
                raise OverflowError(f"a table of contents of more than {MAX_CONTENTS_BYTES} bytes")
            offset, contents_digest = self._file.position, digest(contents)
            total = offset + len(contents) + FOOTER_BYTES
            self._file.write(contents)
            self._file.write(FOOTER.pack(offset, len(contents), contents_digest, total, self._file_id, END_MAGIC))
            self._file.sync()
            self._file.close()
        self._is_finished = True
        return FileRecord(self._name, total, self._file_id, contents_digest)

    def abandon(self) -> None:
        """Close and delete the file, unless it is finished."""
        if not self._is_finished:
            self._file.discard()

    @contextlib.contextmanager
    def _gone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def _pad(self, alignment: int) -> None:
        self._file.write(bytes(-self._file.position % alignment))


class Envelope:
    """A file opened for reading: preamble, table of contents and footer are verified.

    Args:
        directory: where.
        name: the file's name.
        kind: what it must hold.
        record: what the manifest says of it, where there is one.

    Attributes:
        unknown_writer_features: bits of features that a writer of the index must know and this version does not.
        optional_features: bits of those that anyone may ignore.

    Raises:
        FileNotFoundError: it is not there.
        FormatError: it is not what it should be.
    """

    def __init__(self, directory: Directory, name: str, kind: FileKind, record: FileRecord | None = None) -> None:
        self.path = directory.path / name
        self._file: MappedFile | HeldFile = (
            directory.hold(name, MAX_MANIFEST_BYTES) if kind == FileKind.MANIFEST else directory.map(name)
        )
        self._sections: dict[str, Section] = {}
        self._asked: set[str] = set()
        try:
            self._read(kind, record)
        except BaseException:
            self.close()
            raise

    def _read(self, kind: FileKind, record: FileRecord | None) -> None:
        data = self._file.data
        if len(data) < PREAMBLE_BYTES + FOOTER_BYTES:
            raise TruncatedFile("too short for any file of an index", path=self.path, actual=f"{len(data)} bytes")
        file_id, writer_features, self.optional_features = _check_preamble(data[:PREAMBLE_BYTES], kind, self.path)
        self.unknown_writer_features = writer_features & ~KNOWN_WRITER_FEATURES
        self._has_more = bool(self.unknown_writer_features or self.optional_features & ~KNOWN_OPTIONAL_FEATURES)
        self.record = _check_footer(data, file_id, self.path)
        if record is not None:
            _check_record(self.record, record, self.path)
        offset, length = FOOTER.unpack(data[-FOOTER_BYTES:])[:2]
        contents = data[offset : offset + length]
        if digest(contents) != self.record.digest:
            raise ChecksumMismatch(
                "the table of contents is not what was written",
                path=self.path,
                actual=f"other bytes from offset {offset}",
            )
        top = Fields(unpack(contents, self.path, "table of contents"), self.path, "table of contents")
        self.fields = top.child("fields")
        self._sections = read_sections(top.child("sections"), data, PREAMBLE_BYTES, offset, self.path)
        top.done()

    def section(self, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]) -> Section:
        """The section `name`, whose type and shape must be as given (None: any extent)."""
        self._asked.add(name)
        section = self._sections.get(name)
        if section is None:
            raise CorruptFile("a section is missing", path=self.path, expected=name)
        fits = section.shape == shape or (
            len(section.shape) == len(shape)
            and all(want is None or want == have for want, have in zip(shape, section.shape, strict=True))
        )
        if section.dtype != dtype or not fits:
            raise CorruptFile(
                f"section {name} has the wrong shape or type",
                path=self.path,
                expected=f"{np.dtype(dtype).name} {list(shape)}",
                actual=f"{section.dtype.name} {list(section.shape)}",
            )
        return section

    def has(self, name: str) -> bool:
        """Whether there is a section `name`."""
        return name in self._sections

    def done(self) -> None:
        """Raise CorruptFile if a field or a section is left that nobody asked for.

        A file with a feature that readers need not know may have more of both.
        """
        if self._has_more:
            return
        self.fields.done()
        unknown = self._sections.keys() - self._asked
        if unknown:
            raise CorruptFile("unknown sections", path=self.path, actual=", ".join(sorted(unknown)[:10]))

    def section_bytes(self) -> dict[str, int]:
        """Length of every section, by name."""
        return {name: section.n_bytes for name, section in self._sections.items()}

    @property
    def n_bytes(self) -> int:
        """Length of the file."""
        return self.record.n_bytes

    def findings(self) -> list[FormatError]:
        """Read every byte; one error for each damaged chunk and each stretch of padding that is not zero."""
        found: list[FormatError] = []
        end = PREAMBLE_BYTES
        for section in sorted(self._sections.values(), key=lambda s: (s.offset, s.n_bytes)):
            found += self._padding_findings(end, section.offset)
            found += [section.damage(chunk) for chunk in section.damaged_chunks()]
            end = section.offset + section.n_bytes
        contents_at = FOOTER.unpack(self._file.data[-FOOTER_BYTES:])[0]
        return found + self._padding_findings(end, contents_at)

    def close(self) -> None:
        """Close the file; arrays that came from it stay valid."""
        self._sections = {}
        self._file.close()

    def _padding_findings(self, low: int, high: int) -> list[FormatError]:
        if self._file.data[low:high] != bytes(high - low):
            return [CorruptFile(f"padding from offset {low} to {high} is not zero", path=self.path)]
        return []


def _preamble(kind: FileKind, file_id: bytes, optional_features: int) -> bytes:
    head = PREAMBLE.pack(MAGIC, kind, *VERSION, BYTE_ORDER, file_id, 0, 0, optional_features, bytes(10))
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


def _check_preamble(data: memoryview, kind: FileKind, path: Path) -> tuple[bytes, int, int]:
    """The file id, the features that a writer must know, and those that anyone may ignore."""
    head = data[: PREAMBLE.size]
    magic, found_kind, major, minor, order, file_id, required, writer, optional, reserved = PREAMBLE.unpack(head)
    if magic != MAGIC:
        raise CorruptFile("not a file of an index", path=path, expected=MAGIC, actual=magic)
    if struct.unpack("<Q", data[PREAMBLE.size :])[0] != xxhash.xxh3_64_intdigest(head):
        raise ChecksumMismatch("the preamble is not what was written", path=path)
    _check_version((major, minor), required, path)
    if order != BYTE_ORDER or reserved != bytes(10):
        raise CorruptFile("the preamble contradicts the specification", path=path)
    if found_kind != kind:
        raise CorruptFile("a file of another kind", path=path, expected=kind.name.lower(), actual=found_kind)
    return bytes(file_id), int(writer), int(optional)


def _check_version(version: tuple[int, int], required: int, path: Path) -> None:
    if version[0] > VERSION[0]:
        raise FormatTooNew("written by a later version of Quarry", path=path, expected=VERSION, actual=version)
    if version[0] < VERSION[0]:
        raise FormatTooOld("written by an early version of Quarry", path=path, expected=VERSION, actual=version)
    unknown = required & ~KNOWN_REQUIRED_FEATURES
    if unknown:
        raise FormatTooNew("needs a feature this version lacks", path=path, actual=f"flags {unknown:#x}")


def _check_footer(data: memoryview, file_id: bytes, path: Path) -> FileRecord:
    offset, length, contents_digest, total, end_id, magic = FOOTER.unpack(data[-FOOTER_BYTES:])
    if magic != END_MAGIC or total != len(data):
        raise TruncatedFile("the file does not end where it should", path=path, expected=total, actual=len(data))
    if end_id != file_id:
        raise CorruptFile("preamble and footer are of two files", path=path)
    inside = offset >= PREAMBLE_BYTES and offset + length == total - FOOTER_BYTES
    if not inside or length > MAX_CONTENTS_BYTES:
        raise CorruptFile("the table of contents is out of place", path=path, actual=f"{offset} + {length}")
    return FileRecord(path.name, total, file_id, contents_digest)


def _check_record(found: FileRecord, record: FileRecord, path: Path) -> None:
    if found.n_bytes != record.n_bytes:
        raise TruncatedFile(
            "not the length the manifest names", path=path, expected=record.n_bytes, actual=found.n_bytes
        )
    if (found.file_id, found.digest) != (record.file_id, record.digest):
        raise CorruptFile(
            "not the file the manifest names",
            path=path,
            expected=record.file_id.hex(),
            actual=found.file_id.hex(),
        )


def _rechunked(pieces: Iterable[npt.NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """The bytes of all pieces in chunks of CHUNK_BYTES, the last one shorter; whole chunks are not copied."""
    waiting = bytearray()
    for piece in pieces:
        data = _bytes_of(piece)
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


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _chunks_of(array: npt.NDArray[Any]) -> Iterator[memoryview]:
    data = _bytes_of(array)
    for low in range(0, len(data), CHUNK_BYTES):
        yield data[low : low + CHUNK_BYTES]
