"""The layout of a container file: preamble, sections, table of contents, footer.

::

    0        preamble, 64 bytes: magic, kind, version, byte order, feature flags, file id, checksum
    64       sections, each aligned to 64 bytes (4096 for bulk tensors), zeros between them
    ...      table of contents (msgpack): the fields of the file, and name, type, shape, offset of each section
    n - 64   footer, 64 bytes: position and digest of the table of contents, length of the file, file id, magic

Sections are divided into chunks of 1 MiB, each with its XXH3-128 in the table of contents. Opening a file
verifies preamble, table of contents and footer, whatever the size of the file; a chunk is verified when it is
first read. `SPEC.md` specifies the bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import xxhash

from quarry.formats.container.directory import is_safe_name
from quarry.formats.container.fields import Fields
from quarry.formats.container.sections import DIGEST_BYTES, MAX_EXTENT, digest
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, FormatTooOld, TruncatedFile

__all__ = [
    "AUTO_LANGUAGE_FEATURE",
    "CANDIDATE_ROWS_FEATURE",
    "DISTANCES_FEATURE",
    "FIELD_WEIGHTS_FEATURE",
    "FILE_ID",
    "FOOTER",
    "FOOTER_BYTES",
    "MEAN_FEATURE",
    "METRIC_FEATURE",
    "PASSAGES_FEATURE",
    "PASSAGE_SETTINGS_FEATURE",
    "PREAMBLE",
    "PREAMBLE_BYTES",
    "SEARCHABLE_FEATURE",
    "SEARCH_DEFAULTS_FEATURE",
    "SEARCH_SETTINGS_FEATURE",
    "SYNONYMS_FEATURE",
    "UNIT_LENGTH_FEATURE",
    "FileKind",
    "FileRecord",
    "check_preamble",
    "check_record",
    "pack_footer",
    "pack_preamble",
    "read_footer",
]

MAGIC = b"\x89QRRY\r\n\x1a\n"
END_MAGIC = b"QRRYEND\n"
VERSION = (1, 2)  # (major, minor)
BYTE_ORDER = 0x0A0B0C0D  # reads otherwise on a machine with another order of bytes
METRIC_FEATURE = 1  # a manifest with the field `settings.metric`; readers must support it
MEAN_FEATURE = 2  # a manifest with the field `settings.metric.mean`; readers must support it
PASSAGE_SETTINGS_FEATURE = 4  # a manifest with the field `settings.passages`; readers must support it
AUTO_LANGUAGE_FEATURE = 8  # a manifest with the language "auto"; readers must support it
PASSAGES_FEATURE = 1  # a segment with the field `n_passages`; readers must support it
UNIT_LENGTH_FEATURE = 1  # a quantizer with the field `unit_length`; readers must support it
DISTANCES_FEATURE = 2  # a quantizer with the field `distances`; readers must support it
CANDIDATE_ROWS_FEATURE = 1  # a quantizer with the field `candidate_rows`; readers may ignore it
SEARCH_SETTINGS_FEATURE = 2  # a quantizer with the field `search_settings`; readers may ignore it
SEARCH_DEFAULTS_FEATURE = 4  # a manifest with the field `search_defaults`; readers may ignore it
SEARCHABLE_FEATURE = 1  # a manifest with the field `searchable`; writers must support it
SYNONYMS_FEATURE = 2  # a manifest with the field `synonyms`; writers must support it
FIELD_WEIGHTS_FEATURE = 4  # a manifest with the field `field_weights`; writers must support it
KNOWN_WRITER_FEATURES = SEARCHABLE_FEATURE | SYNONYMS_FEATURE | FIELD_WEIGHTS_FEATURE  # bits of the preamble
KNOWN_OPTIONAL_FEATURES = CANDIDATE_ROWS_FEATURE | SEARCH_SETTINGS_FEATURE | SEARCH_DEFAULTS_FEATURE
PREAMBLE = struct.Struct("<9sBHHI16sIII10s")  # then the XXH3-64 of these 56 bytes
FOOTER = struct.Struct("<QQ16sQ16s8s")
PREAMBLE_BYTES = FOOTER_BYTES = 64
FILE_ID = slice(18, 34)  # in the preamble
MAX_CONTENTS_BYTES = 16 << 20
MAX_MANIFEST_BYTES = PREAMBLE_BYTES + MAX_CONTENTS_BYTES + FOOTER_BYTES  # it has no sections


class FileKind(IntEnum):
    """The kind of a file, as in its preamble. Numbers never change."""

    MANIFEST = 1
    SEGMENT = 2
    QUANTIZER = 3
    TOMBSTONES = 4
    HNSW_GRAPH = 5
    SHARDS = 6


@dataclass(frozen=True)
class FileRecord:
    """Identifies one version of a file, so that opening a swapped or stale file fails.

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
        """Return the record as a map of a manifest."""
        return {"name": self.name, "n_bytes": self.n_bytes, "file_id": self.file_id, "digest": self.digest}

    @classmethod
    def from_fields(cls, fields: Fields) -> FileRecord:
        """Read what `to_fields` returned."""
        name = fields.text("name", 96)
        if not is_safe_name(name):
            raise CorruptFile("unsafe file name", path=fields.path, actual=repr(name))
        record = cls(
            name=name,
            n_bytes=fields.integer("n_bytes", PREAMBLE_BYTES + FOOTER_BYTES, MAX_EXTENT),
            file_id=fields.binary("file_id", 16),
            digest=fields.binary("digest", DIGEST_BYTES),
        )
        fields.refuse_unknown()
        return record


def pack_preamble(
    kind: FileKind, file_id: bytes, optional_features: int, required_features: int = 0, writer_features: int = 0
) -> bytes:
    """Return the preamble of a file: the features that may be ignored, or that readers or writers must support."""
    features = required_features, writer_features, optional_features
    head = PREAMBLE.pack(MAGIC, kind, *VERSION, BYTE_ORDER, file_id, *features, bytes(10))
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


def pack_footer(offset: int, contents: bytes, file_id: bytes) -> bytes:
    """Return the footer of a file whose table of contents is at `offset`."""
    total = offset + len(contents) + FOOTER_BYTES
    return FOOTER.pack(offset, len(contents), digest(contents), total, file_id, END_MAGIC)


def check_preamble(data: memoryview, kind: FileKind, path: Path) -> tuple[bytes, int, int, int]:
    """Check a preamble.

    Returns:
        The file id, the features that a reader must support, all of them known, those that a writer must support,
        and those that may be ignored.
    """
    head = data[: PREAMBLE.size]
    magic, found_kind, major, minor, order, file_id, required, writer, optional, reserved = PREAMBLE.unpack(head)
    if magic != MAGIC:
        raise CorruptFile("not a file of an index", path=path, expected=MAGIC, actual=magic)
    if struct.unpack("<Q", data[PREAMBLE.size :])[0] != xxhash.xxh3_64_intdigest(head):
        raise ChecksumMismatch("the preamble is damaged", path=path)
    _check_version((major, minor), required & ~_known_features(found_kind), path)
    if order != BYTE_ORDER or reserved != bytes(10):
        raise CorruptFile("the preamble contradicts the specification", path=path)
    if found_kind != kind:
        raise CorruptFile("wrong kind of file", path=path, expected=kind.name.lower(), actual=found_kind)
    return bytes(file_id), int(required), int(writer), int(optional)


def _known_features(kind: int) -> int:
    """Return the bits that a reader must support and this version does, for a kind of file."""
    features: dict[int, int] = {
        FileKind.MANIFEST: METRIC_FEATURE | MEAN_FEATURE | PASSAGE_SETTINGS_FEATURE | AUTO_LANGUAGE_FEATURE,
        FileKind.SEGMENT: PASSAGES_FEATURE,
        FileKind.QUANTIZER: UNIT_LENGTH_FEATURE | DISTANCES_FEATURE,
    }
    return features.get(kind, 0)


def _check_version(version: tuple[int, int], unknown: int, path: Path) -> None:
    if version[0] > VERSION[0]:
        raise FormatTooNew("written by a later version of Quarry", path=path, expected=VERSION, actual=version)
    if version[0] < VERSION[0]:
        raise FormatTooOld("written by an early version of Quarry", path=path, expected=VERSION, actual=version)
    if unknown:
        raise FormatTooNew(
            "needs a feature that this version does not support", path=path, actual=f"flags {unknown:#x}"
        )


def read_footer(data: memoryview, file_id: bytes, path: Path) -> tuple[FileRecord, int]:
    """Check the footer of a file; return its record and the offset of its table of contents."""
    offset, length, contents_digest, total, end_id, magic = FOOTER.unpack(data[-FOOTER_BYTES:])
    if magic != END_MAGIC or total != len(data):
        raise TruncatedFile("the file was truncated or extended", path=path, expected=total, actual=len(data))
    if end_id != file_id:
        raise CorruptFile("preamble and footer belong to different files", path=path)
    inside = offset >= PREAMBLE_BYTES and offset + length == total - FOOTER_BYTES
    if not inside or length > MAX_CONTENTS_BYTES:
        raise CorruptFile("the table of contents is out of bounds", path=path, actual=f"{offset} + {length}")
    return FileRecord(path.name, total, file_id, contents_digest), offset


def check_record(actual: FileRecord, record: FileRecord, path: Path) -> None:
    """Raise TruncatedFile or CorruptFile if a file is not the one that a manifest names."""
    if actual.n_bytes != record.n_bytes:
        raise TruncatedFile(
            "the file has another size than in the manifest",
            path=path,
            expected=record.n_bytes,
            actual=actual.n_bytes,
        )
    if (actual.file_id, actual.digest) != (record.file_id, record.digest):
        raise CorruptFile(
            "not the file that the manifest names",
            path=path,
            expected=record.file_id.hex(),
            actual=actual.file_id.hex(),
        )
