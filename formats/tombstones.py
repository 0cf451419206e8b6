"""The deleted documents of a segment: one bit for each document, in a separate file.

A segment never changes; deleting writes a new tombstone file, which the next manifest names instead of the
previous one. Section ``deleted``: bit d % 8 of byte d // 8, low bits first, is set if document d is deleted.
"""

from __future__ import annotations

import secrets

import numpy as np

from quarry.formats.arrays import BoolArray
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["read_tombstones", "write_tombstones"]


def write_tombstones(directory: Directory, segment_id: bytes, deleted: BoolArray) -> FileRecord:
    """Write the (n_docs,) bool flags of one segment and return the record of the file."""
    file_id = secrets.token_bytes(16)
    writer = ContainerWriter(directory, f"{file_id.hex()}.del", FileKind.TOMBSTONES, file_id)
    writer.add("deleted", np.packbits(deleted, bitorder="little"))
    return writer.finish({"segment_id": segment_id, "n_docs": len(deleted), "n_deleted": int(deleted.sum())})


def read_tombstones(directory: Directory, record: FileRecord, segment_id: bytes, n_docs: int) -> BoolArray:
    """Return the (n_docs,) bool flags: True for deleted documents.

    Raises:
        FormatError: the file is damaged or belongs to another segment.
    """
    container = ContainerReader(directory, record.name, FileKind.TOMBSTONES, record)
    try:
        segment = (container.fields.binary("segment_id", 16), container.fields.integer("n_docs", 0, 1 << 32))
        n_deleted = container.fields.integer("n_deleted", 0, n_docs)
        if segment != (segment_id, n_docs):
            raise CorruptFile("tombstones of another segment", path=container.path)
        packed = container.section("deleted", np.uint8, (-(-n_docs // 8),)).array().astype(np.uint8)
        container.refuse_unknown()
    finally:
        container.close()
    bits = np.unpackbits(packed, bitorder="little").astype(bool)
    if bits[n_docs:].any() or int(bits.sum()) != n_deleted:
        raise CorruptFile(
            "wrong number of tombstones", path=container.path, expected=n_deleted, actual=int(bits.sum())
        )
    return bits[:n_docs]
