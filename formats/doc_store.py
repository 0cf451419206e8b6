"""The texts of a segment: each document one zstd frame, all sharing a dictionary.

A frame holds msgpack ``[title, text, metadata, spans]``. With a dictionary trained on the segment's own
documents, single frames compress about as well as blocks of many, and one document is read without
inflating any other. Sections: ``documents`` (the frames), ``document_offsets``, ``document_dictionary``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgpack
import numpy as np
import numpy.typing as npt
import zstandard

from formats.byte_strings import ByteStrings
from formats.directory import Directory
from formats.envelope import Envelope, EnvelopeWriter
from formats.errors import CorruptFile
from formats.packing import unpack_bounded
from formats.spool import Spool

__all__ = ["DocStore", "DocStoreWriter", "PackedDocument", "StoredDocument"]

_LEVEL = 6
_SAMPLE_BYTES = 4 << 20  # documents held back, uncompressed, to train the dictionary on
_DICTIONARY_BYTES = 64 << 10
_MIN_TRAINING_DOCS = 64
_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_WINDOW_BYTES = 64 << 20
_MAX_VALUES = 1 << 17  # in a document: its fields, and all values of its metadata


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
        """Append the next document, of at most 64 MiB when serialised."""
        record = msgpack.packb([document.title, document.text, document.metadata, document.spans])
        if len(record) > _MAX_DOCUMENT_BYTES:
            raise OverflowError(f"a document of {len(record)} bytes, and {_MAX_DOCUMENT_BYTES} can be stored")
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
        self._frames = ByteStrings(envelope, "documents", "document_offsets", n_docs)
        self._dictionary = envelope.section("document_dictionary", np.uint8, (None,))

    def __getitem__(self, ordinal: int) -> StoredDocument:
        """Document `ordinal`.

        Raises:
            FormatError: the stored document is damaged.
        """
        return self.packed(np.array([ordinal]))[0].unpacked()

    def packed(self, ordinals: npt.NDArray[np.int64]) -> list[PackedDocument]:
        """The documents (n,) `ordinals`, read but not inflated yet."""
        codec = self._codec
        frames = self._frames.many(ordinals)
        return [PackedDocument(frame, codec, int(n)) for frame, n in zip(frames, ordinals.tolist(), strict=True)]

    @cached_property
    def _codec(self) -> _Codec:
        return _Codec(self._dictionary.array().tobytes(), self._path)


class PackedDocument:
    """A document as it is stored, inflated when it is first asked for; it needs no open file."""

    __slots__ = ("_codec", "_frame", "_ordinal", "_unpacked")

    def __init__(self, frame: bytes, codec: _Codec, ordinal: int) -> None:
        self._frame = frame
        self._codec = codec
        self._ordinal = ordinal
        self._unpacked: StoredDocument | None = None

    def unpacked(self) -> StoredDocument:
        """The document.

        Raises:
            CorruptFile: it cannot be read.
        """
        if self._unpacked is None:
            self._unpacked = self._codec.document(self._frame, self._ordinal)
        return self._unpacked

    def __reduce__(self) -> tuple[type[PackedDocument], tuple[bytes, _Codec, int]]:
        return PackedDocument, (self._frame, self._codec, self._ordinal)


class _Codec:
    """Inflates the frames of one segment."""

    def __init__(self, dictionary: bytes, path: Path) -> None:
        self._dictionary = dictionary
        self._path = path
        self._local = threading.local()

    def __reduce__(self) -> tuple[type[_Codec], tuple[bytes, Path]]:
        return _Codec, (self._dictionary, self._path)

    def document(self, frame: bytes, ordinal: int) -> StoredDocument:
        """The document in a frame."""
        return _parse(_inflate(self._decompressor(), frame, ordinal, self._path), ordinal, self._path)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        """One per thread: they keep state while they work."""
        if not hasattr(self._local, "decompressor"):
            data = self._dictionary
            try:
                trained = zstandard.ZstdCompressionDict(data) if data else None
                self._local.decompressor = zstandard.ZstdDecompressor(
                    dict_data=trained, max_window_size=_MAX_WINDOW_BYTES
                )
            except zstandard.ZstdError as error:
                raise CorruptFile("no usable dictionary", path=self._path, actual=str(error)) from error
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
        fields = unpack_bounded(record, _MAX_VALUES)
    except ValueError as error:
        raise CorruptFile(f"document {ordinal} cannot be read", path=path, actual=str(error)) from error
    if not isinstance(fields, list) or [type(field) for field in fields] != [str, str, dict, bytes]:
        raise CorruptFile(f"document {ordinal} has fields of wrong types", path=path)
    return StoredDocument(*fields)
