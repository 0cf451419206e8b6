"""The texts of a segment: each document one zstd frame, all sharing a dictionary.

A frame holds msgpack ``[title, text, metadata, spans]``. With a dictionary trained on the segment's own
documents, single frames compress about as well as blocks of many, and one document is read without
inflating any other. Sections: ``documents`` (the frames), ``document_offsets``, ``document_dictionary``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
import zstandard

from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.spool import Spool

__all__ = ["DocStore", "DocStoreWriter", "StoredDocument"]

_LEVEL = 6
_SAMPLE_BYTES = 4 << 20  # documents held back, uncompressed, to train the dictionary on
_DICTIONARY_BYTES = 64 << 10
_MIN_TRAINING_DOCS = 64
_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_WINDOW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What a segment keeps of a document besides its id and its vectors.

    Attributes:
        title: the title, or "".
        text: the text.
        metadata: whatever the caller attached.
        spans: packed character spans of the centroids (see `formats.spans`).
    """

    title: str
    text: str
    metadata: Mapping[str, object]
    spans: bytes


class DocStoreWriter:
    """Compresses documents as they come; at most 4 MiB of them wait in memory, to train the dictionary."""

    def __init__(self, directory: Directory) -> None:
        self._frames = Spool(directory)
        self._offsets = Spool(directory)
        self._offsets.write_array(np.zeros(1, np.uint64))
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._dictionary = b""
        self._compressor: zstandard.ZstdCompressor | None = None

    def add(self, document: StoredDocument) -> None:
        """Append the next document."""
        record = msgpack.packb([document.title, document.text, document.metadata, document.spans])
        if self._compressor:
            self._write(record)
            return
        self._waiting.append(record)
        self._waiting_bytes += len(record)
        if self._waiting_bytes >= _SAMPLE_BYTES:
            self._start()

    def write(self, envelope: EnvelopeWriter) -> None:
        """Write the three sections."""
        if not self._compressor:
            self._start()
        envelope.add("document_dictionary", np.frombuffer(self._dictionary, np.uint8))
        envelope.add_chunks("documents", np.uint8, (self._frames.n_bytes,), self._frames.chunks())
        n_offsets = self._offsets.n_bytes // 8
        envelope.add_chunks("document_offsets", np.uint64, (n_offsets,), self._offsets.chunks())

    def close(self) -> None:
        """Drop the temporary files."""
        self._frames.close()
        self._offsets.close()

    def _start(self) -> None:
        self._dictionary = _train(self._waiting)
        trained = zstandard.ZstdCompressionDict(self._dictionary) if self._dictionary else None
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=trained, write_dict_id=False)
        for record in self._waiting:
            self._write(record)
        self._waiting.clear()

    def _write(self, record: bytes) -> None:
        assert self._compressor is not None
        self._frames.write(self._compressor.compress(record))
        self._offsets.write(self._frames.n_bytes.to_bytes(8, "little"))


def _train(records: list[bytes]) -> bytes:
    """A zstd dictionary for `records`, or nothing where they are too few or too short to learn from."""
    if len(records) < _MIN_TRAINING_DOCS:
        return b""
    size = min(_DICTIONARY_BYTES, sum(map(len, records)) // 16)
    try:
        return zstandard.train_dictionary(size, list(records), level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return b""


class DocStore:
    """The texts of a segment, read from its file; reading is thread-safe."""

    def __init__(self, envelope: Envelope, n_docs: int) -> None:
        self._path = envelope.path
        self._frames = envelope.section("documents", np.uint8, (None,))
        self._offsets = envelope.section("document_offsets", np.uint64, (n_docs + 1,))
        self._dictionary = envelope.section("document_dictionary", np.uint8, (None,))
        self._local = threading.local()

    def __getitem__(self, ordinal: int) -> StoredDocument:
        """Document `ordinal`.

        Raises:
            FormatError: the stored document is damaged.
        """
        low, high = self._offsets.slice(ordinal, ordinal + 2).tolist()
        if not low < high <= self._frames.n_bytes:
            raise CorruptFile(f"document {ordinal} lies outside its section", path=self._path)
        record = _inflate(self._decompressor(), self._frames.slice(low, high).tobytes(), ordinal, self._path)
        return _parse(record, ordinal, self._path)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        """One per thread: they keep state while they work."""
        if not hasattr(self._local, "decompressor"):
            data = self._dictionary.array().tobytes()
            trained = zstandard.ZstdCompressionDict(data) if data else None
            self._local.decompressor = zstandard.ZstdDecompressor(
                dict_data=trained, max_window_size=_MAX_WINDOW_BYTES
            )
        decompressor: zstandard.ZstdDecompressor = self._local.decompressor
        return decompressor


def _inflate(decompressor: zstandard.ZstdDecompressor, frame: bytes, ordinal: int, path: Path) -> bytes:
    """Inflate a frame whose stated size is within bounds (the library would not look at the bound itself)."""
    try:
        stated = zstandard.frame_content_size(frame)
        if not 0 < stated <= _MAX_DOCUMENT_BYTES:
            raise CorruptFile(f"document {ordinal} states a size out of bounds", path=path, actual=stated)
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"document {ordinal} cannot be inflated", path=path, actual=str(error)) from error


def _parse(record: bytes, ordinal: int, path: Path) -> StoredDocument:
    try:
        title, text, metadata, spans = msgpack.unpackb(record, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptFile(f"document {ordinal} cannot be read", path=path, actual=repr(error)) from error
    kinds = (type(title), type(text), type(metadata), type(spans))
    if kinds != (str, str, dict, bytes):
        raise CorruptFile(f"document {ordinal} has fields of wrong types", path=path)
    return StoredDocument(title, text, metadata, spans)
