"""The texts of a segment: each document one zstd frame, documents in a row sharing a dictionary.

A frame holds msgpack ``[title, text, metadata, spans]``. With a dictionary trained on the segment's own
documents, single frames compress about as well as blocks of many, and one document is read without
inflating any other. A segment that was merged from others has their frames as they were, and so several
dictionaries, each for a run of ordinals. Sections: ``documents`` (the frames), ``document_offsets``,
``document_dictionaries``, ``dictionary_offsets``, ``dictionary_ordinals`` (where each run starts).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgpack
import numpy as np
import zstandard

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array
from quarry.formats.container.byte_strings import ByteStrings
from quarry.formats.container.directory import Directory
from quarry.formats.container.packing import unpack_bounded
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.store_sections import write_runs
from quarry.formats.errors import CorruptFile

__all__ = ["DocStore", "DocStoreWriter", "KnownDictionary", "PackedDocument", "StoredDocument"]

_LEVEL = 6
_DICTIONARY_BYTES = 64 << 10
_MIN_TRAINING_DOCS = 64
_PROBED_DOCS = 16  # on which a known dictionary is tried
_HELPFUL = 0.9  # of their bytes, less than which it must leave
_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_WINDOW_BYTES = 64 << 20
_MAX_VALUES = 1 << 17  # in a document: its fields, and all values of its metadata
_MAX_RUNS = 1 << 16
_BATCH_DOCS = 256

KnownDictionary = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What a segment keeps of a document besides its id and its vectors.

    Attributes:
        title: the title, or "".
        text: the text.
        metadata: whatever the caller attached.
        spans: packed character spans of the centroids (see `quarry.formats.documents.spans`).
    """

    title: str
    text: str
    metadata: Mapping[str, object]
    spans: bytes


class DocStoreWriter:
    """Compresses documents as they come; at most 4 MiB of them wait in memory, to train the dictionary.

    Args:
        directory: where temporary files go.
        known: gives a dictionary of other documents like these, perhaps nothing, for the bytes that one of their
            own would have. Where it is large enough and does them good, it saves training one, which would take
            more than half of a commit's time (100 to 3000 English paragraphs).
    """

    def __init__(self, directory: Directory, known: KnownDictionary = lambda _: b"") -> None:
        self._known = known
        self._directory = directory
        self._frames = Spool(directory)
        self._lengths = Spool(directory)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._dictionary = b""
        self._compressor: zstandard.ZstdCompressor | None = None

    def add(self, document: StoredDocument) -> None:
        """Append the next document, of at most 64 MiB when serialised."""
        record = msgpack.packb([document.title, document.text, document.metadata, document.spans])
        if len(record) > _MAX_DOCUMENT_BYTES:
            raise OverflowError(f"a document of {len(record)} bytes, and {_MAX_DOCUMENT_BYTES} can be stored")
        self.add_record(record)

    def add_record(self, record: bytes) -> None:
        """Append the next document as it was serialised before."""
        if self._compressor:
            self._append([self._compressor.compress(record)])
            return
        self._waiting.append(record)
        self._waiting_bytes += len(record)
        if self._waiting_bytes >= self._directory.limits.sample_bytes:
            self._start()

    def settle(self) -> None:
        """See `quarry.formats.container.spool.Spool.settle`."""
        self._frames.settle()
        self._lengths.settle()

    def write(self, container: ContainerWriter) -> None:
        """Write the sections."""
        write_runs([self], container)

    def dictionary(self) -> bytes:
        """What the frames are compressed with, perhaps nothing; trained on what there is if need be."""
        if not self._compressor:
            self._start()
        return self._dictionary

    def lengths(self) -> UInt32Array:
        """(n,) uint32, the length of each frame; only after `dictionary`."""
        lengths: UInt32Array = self._lengths.read_array(np.uint32, 0, self._lengths.n_bytes // 4)
        return lengths

    def frames(self) -> Iterator[UInt8Array]:
        """All frames, in pieces."""
        return (np.frombuffer(chunk, np.uint8) for chunk in self._frames.chunks())

    def close(self) -> None:
        """Drop the temporary files."""
        self._frames.close()
        self._lengths.close()

    def _start(self) -> None:
        for spool in (self._frames, self._lengths):
            spool.close()  # an attempt for which memory was too short may have left something
        size = min(_DICTIONARY_BYTES, self._waiting_bytes // 16)
        self._dictionary = _chosen(self._known(size), self._waiting, size)
        trained = zstandard.ZstdCompressionDict(self._dictionary) if self._dictionary else None
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=trained, write_dict_id=False)
        self._append([compressor.compress(record) for record in self._waiting])
        self._compressor = compressor
        self._waiting.clear()

    def _append(self, frames: list[bytes]) -> None:
        self._frames.append(b"".join(frames))
        self._lengths.append(b"".join(len(frame).to_bytes(4, "little") for frame in frames))


def _chosen(known: bytes, records: list[bytes], size: int) -> bytes:
    """The dictionary for `records`: the known one, unless it is less than half of `size`, as theirs would be.

    On English paragraphs one of half the size costs 4 % of the frames, and of a quarter 8 %; at the full size it
    makes no difference (1 %) which of the documents it was trained on.
    """
    if not _helps(known, records):
        known = b""
    return known if 2 * len(known) >= size else _train(records, size) or known


def _helps(known: bytes, records: list[bytes]) -> bool:
    """Whether a dictionary of other documents makes these shorter: of English paragraphs it takes off a third."""
    sample = records[:: max(1, len(records) // _PROBED_DOCS)]
    if not known or not sample:
        return True
    plain = zstandard.ZstdCompressor(level=_LEVEL)
    primed = zstandard.ZstdCompressor(level=_LEVEL, dict_data=zstandard.ZstdCompressionDict(known))
    before, after = (sum(len(each.compress(record)) for record in sample) for each in (plain, primed))
    return after <= _HELPFUL * before


def _train(records: list[bytes], size: int) -> bytes:
    """A zstd dictionary for `records`, or nothing where they are too few or too short to learn from."""
    if len(records) < _MIN_TRAINING_DOCS:
        return b""
    try:
        return zstandard.train_dictionary(size, list(records), level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return b""


class DocStore:
    """The texts of a segment, read from its file; reading is thread-safe.

    Attributes:
        n_docs: documents in the segment, deleted ones included.
        n_runs: runs of documents with a dictionary each.
        path: of the file.
    """

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self.n_docs = n_docs
        self.path = container.path
        self._frames = ByteStrings(container, "documents", "document_offsets", n_docs)
        self._ordinals = container.section("dictionary_ordinals", np.uint64, (None,))
        self.n_runs = n_runs = self._ordinals.shape[0] - 1
        if not 1 <= n_runs <= _MAX_RUNS:
            raise CorruptFile("no dictionaries, or too many", path=self.path, expected=_MAX_RUNS, actual=n_runs)
        self._dictionaries = ByteStrings(container, "document_dictionaries", "dictionary_offsets", n_runs)
        self._codecs: dict[int, _Codec] = {}

    def __getitem__(self, ordinal: int) -> StoredDocument:
        """Document `ordinal`.

        Raises:
            FormatError: the stored document is damaged.
        """
        return self.packed(np.array([ordinal]))[0].unpacked()

    def packed(self, ordinals: Int64Array) -> list[PackedDocument]:
        """The documents (n,) `ordinals`, read but not inflated yet."""
        frames = self._frames.many(ordinals)
        runs = (self.run_starts.searchsorted(ordinals, "right") - 1).tolist()
        return [
            PackedDocument(frame, self._codec(run), ordinal)
            for frame, run, ordinal in zip(frames, runs, ordinals.tolist(), strict=True)
        ]

    def records(self, ordinals: Int64Array) -> Iterator[bytes]:
        """The documents (n,) `ordinals`, inflated, as they were serialised; a bounded number in memory."""
        for low in range(0, len(ordinals), _BATCH_DOCS):
            for packed in self.packed(ordinals[low : low + _BATCH_DOCS]):
                yield packed.record()

    @cached_property
    def run_starts(self) -> Int64Array:
        """(n_runs + 1,) int64: run i has the documents starts[i] to starts[i + 1] - 1.

        Raises:
            CorruptFile: the starts do not ascend from 0 to the number of documents; checked at first use.
        """
        starts: Int64Array = self._ordinals.array().astype(np.int64)
        if starts[0] != 0 or starts[-1] != self.n_docs or (starts[1:] <= starts[:-1]).any():
            raise CorruptFile("runs of documents do not ascend from 0 to their number", path=self.path)
        return starts

    def dictionary(self, run: int) -> bytes:
        """The dictionary of a run, perhaps empty."""
        return self._dictionaries[run]

    def check_dictionary(self, run: int) -> None:
        """Raise CorruptFile if documents cannot be compressed with the dictionary of a run."""
        trained = zstandard.ZstdCompressionDict(self.dictionary(run))
        try:
            zstandard.ZstdCompressor(level=_LEVEL, dict_data=trained).compress(b"")
        except zstandard.ZstdError as error:
            raise CorruptFile("no usable dictionary", path=self.path, actual=str(error)) from error

    @property
    def frames(self) -> ByteStrings:
        """The frames by ordinal."""
        return self._frames

    def _codec(self, run: int) -> _Codec:
        if run not in self._codecs:
            self._codecs[run] = _Codec(self.dictionary(run), self.path)
        return self._codecs[run]


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

    def record(self) -> bytes:
        """The document as it was serialised.

        Raises:
            CorruptFile: it cannot be inflated.
        """
        return self._codec.record(self._frame, self._ordinal)

    def __reduce__(self) -> tuple[type[PackedDocument], tuple[bytes, _Codec, int]]:
        return PackedDocument, (self._frame, self._codec, self._ordinal)


class _Codec:
    """Inflates the frames of one dictionary."""

    def __init__(self, dictionary: bytes, path: Path) -> None:
        self._dictionary = dictionary
        self._path = path
        self._local = threading.local()

    def __reduce__(self) -> tuple[type[_Codec], tuple[bytes, Path]]:
        return _Codec, (self._dictionary, self._path)

    def document(self, frame: bytes, ordinal: int) -> StoredDocument:
        """The document in a frame."""
        return _parse(self.record(frame, ordinal), ordinal, self._path)

    def record(self, frame: bytes, ordinal: int) -> bytes:
        """What is in a frame, inflated."""
        return _inflate(self._decompressor(), frame, ordinal, self._path)

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
