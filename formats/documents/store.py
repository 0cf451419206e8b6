"""The texts of a segment: one zstd frame for each document, runs of consecutive documents share a dictionary.

A frame holds msgpack ``[title, text, metadata, spans]``. With a dictionary that was trained on the
documents of the segment, single frames compress about as well as blocks of many documents, and one document is
read without decompressing others. A merged segment has the frames of its inputs, so it has several dictionaries,
each for a run of ordinals. Sections: ``documents`` (the frames), ``document_offsets``,
``document_dictionaries``, ``dictionary_offsets``, ``dictionary_ordinals`` (the first ordinal of each run).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgpack
import numpy as np
import numpy.typing as npt
import zstandard

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array, UInt64Array
from quarry.formats.container.background import StartWork, work_at_once
from quarry.formats.container.byte_strings import ByteStrings
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.container.directory import Directory
from quarry.formats.container.packing import unpack_bounded
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.errors import CorruptFile

__all__ = [
    "DocStore",
    "DocStoreWriter",
    "FrameRun",
    "KnownDictionary",
    "PackedDocument",
    "StoredDocument",
    "write_runs",
]

_BATCH_SIZES = 1 << 17  # added up at a time

Lengths = UInt32Array | Int64Array


class FrameRun(Protocol):
    """Frames of consecutive documents that share a dictionary."""

    def dictionary(self) -> bytes:
        """Return the zstd dictionary, perhaps empty."""
        ...

    def lengths(self) -> Lengths:
        """Return the length of each frame in bytes, (n,)."""
        ...

    def frames(self) -> Iterable[UInt8Array]:
        """Yield all frames, in pieces."""
        ...


def write_runs(runs: Sequence[FrameRun], container: ContainerWriter) -> None:
    """Write the sections of the texts.

    Adjacent runs with equal dictionaries become one run; runs without documents are left out.
    """
    parts = [(run.dictionary(), run.lengths(), run) for run in runs]
    parts = [part for part in parts if len(part[1])]
    joined = [
        (dictionary, sum(len(lengths) for _, lengths, _ in group))
        for dictionary, group in groupby(parts, key=itemgetter(0))
    ]
    dictionaries, sizes = zip(*joined, strict=True)
    container.add("document_dictionaries", np.frombuffer(b"".join(dictionaries), np.uint8))
    _add_offsets(container, "dictionary_offsets", [np.fromiter(map(len, dictionaries), np.int64)])
    _add_offsets(container, "dictionary_ordinals", [np.array(sizes, np.int64)])
    n_bytes = sum(int(lengths.sum(dtype=np.int64)) for _, lengths, _ in parts)
    pieces = (piece for *_, run in parts for piece in run.frames())
    container.add_pieces("documents", np.uint8, (n_bytes,), pieces)
    _add_offsets(container, "document_offsets", [lengths for _, lengths, _ in parts])


def _add_offsets(container: ContainerWriter, name: str, sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> None:
    """Write the offsets of parts whose sizes are given in several arrays."""
    n_offsets = sum(map(len, sizes)) + 1
    container.add_pieces(name, np.uint64, (n_offsets,), _iterate_offsets(sizes))


def _iterate_offsets(sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> Iterator[UInt64Array]:
    yield np.zeros(1, np.uint64)
    end = 0
    for each in sizes:
        for low in range(0, len(each), _BATCH_SIZES):
            ends = end + np.cumsum(each[low : low + _BATCH_SIZES], dtype=np.int64)
            end = int(ends[-1])
            yield ends.astype(np.uint64)


_LEVEL = 6  # of zstd
_DICTIONARY_BYTES = 64 << 10
_MIN_TRAINING_DOCS = 64  # of fewer no dictionary is trained
_TRAINING_BYTES = 1 << 20  # four times as much takes four times as long, and compresses at most .7 % better
_LEAST_CONTENT = 8  # bytes of a document in which training looks for content
_SAMPLED_DOCS = 16  # documents that an existing dictionary is tested on
_MAX_HELPFUL_SHARE = 0.9  # of the size without it; a dictionary that compresses less is not used
_MAX_DOCUMENT_BYTES = 64 << 20
_MAX_WINDOW_BYTES = 64 << 20
_MAX_VALUES = 1 << 17  # in a document: its fields, and all values of its metadata
_MAX_RUNS = 1 << 16
_BATCH_DOCS = 256  # read at a time
_MAX_UNDER_WAY = 2  # groups of documents that are compressed while more are added
_FOUR_FIELDS_HEAD = b"\x94"  # the head of an array of so many in msgpack

KnownDictionary = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The content of a document that a segment stores, without id and vectors.

    Attributes:
        title: the title, or "".
        text: the text.
        metadata: the metadata that the caller gave.
        spans: packed character spans of the centroids (see `quarry.formats.documents.spans`).
    """

    title: str
    text: str
    metadata: Mapping[str, object]
    spans: bytes


class DocStoreWriter:
    """Compresses documents one by one; the first ones are buffered, to train the dictionary on them.

    Frames are made in groups, which other threads may do while more documents are added; a few groups are under
    way at once, and their frames follow in the order of the documents.

    Args:
        directory: for temporary files.
        known: returns an existing dictionary, perhaps empty, given the size that a new one would have. If it is
            large enough and compresses these documents well, no dictionary is trained: training takes more than
            half of the time of a commit (100 to 3000 English paragraphs).
        start: starts the compression of a group.
    """

    def __init__(
        self,
        directory: Directory,
        known: KnownDictionary = lambda _: b"",
        start: StartWork = work_at_once,
    ) -> None:
        self._known = known
        self._start = start
        self._directory = directory
        self._packer = msgpack.Packer()
        self._frames = Spool(directory)
        self._lengths = Spool(directory)
        self._buffered: list[bytes] = []
        self._buffered_bytes = 0
        self._dictionary = b""
        self._compressor: _Compressor | None = None
        self._under_way: deque[tuple[list[bytes], Future[_Frames]]] = deque()

    def add(self, document: StoredDocument) -> None:
        """Append the next document; see `add_many`."""
        self.add_many([document])

    def add_many(self, documents: Iterable[StoredDocument]) -> None:
        """Append the next documents, each at most 64 MiB serialized; one object in a row is serialized once."""
        records: list[bytes] = []
        last: StoredDocument | None = None
        for document in documents:
            records.append(records[-1] if document is last else self._pack(document))
            last = document
        longest = max(map(len, records), default=0)
        if longest > _MAX_DOCUMENT_BYTES:
            raise OverflowError(f"a document of {longest} bytes, and {_MAX_DOCUMENT_BYTES} can be stored")
        self.add_records(records)

    def add_records(self, records: list[bytes]) -> None:
        """Append the next documents, serialized."""
        if self._compressor:
            self._under_way.append((records, self._start(self._compressor.compress, records)))
            while len(self._under_way) > _MAX_UNDER_WAY:
                self._take_group(self._compressor)
            return
        n_bytes = self._buffered_bytes + sum(map(len, records))
        if n_bytes < self._directory.limits.sample_bytes:
            self._buffered += records
            self._buffered_bytes = n_bytes
            return
        for number, record in enumerate(records, 1):
            self._buffered.append(record)
            self._buffered_bytes += len(record)
            if self._buffered_bytes >= self._directory.limits.sample_bytes:
                self._start_compressing(self._start)
                self.add_records(records[number:])
                return

    def _pack(self, document: StoredDocument) -> bytes:
        metadata = PackedMetadata.of(document.metadata).packed
        pack = self._packer.pack
        return b"".join(
            (_FOUR_FIELDS_HEAD, pack(document.title), pack(document.text), metadata, pack(document.spans))
        )

    def spill(self) -> None:
        """See `quarry.formats.container.spool.Spool.spill`."""
        self._frames.spill()
        self._lengths.spill()

    def write(self, container: ContainerWriter) -> None:
        """Write the sections."""
        write_runs([self], container)

    def dictionary(self) -> bytes:
        """Return the dictionary of the frames, perhaps empty; it is trained now if that was not done yet."""
        self._finish_groups()
        return self._dictionary

    def lengths(self) -> UInt32Array:
        """Return the lengths of the frames, (n,) uint32; call `dictionary` first."""
        lengths: UInt32Array = self._lengths.read_array(np.uint32, 0, self._lengths.n_bytes // 4)
        return lengths

    def frames(self) -> Iterator[UInt8Array]:
        """Yield all frames, in pieces."""
        return (np.frombuffer(chunk, np.uint8) for chunk in self._frames.chunks())

    def documents(self) -> Iterator[StoredDocument]:
        """Yield the documents that were added so far, in their order."""
        path = self._directory.path
        if not self._compressor:
            yield from (_parse_document(record, number, path) for number, record in enumerate(self._buffered))
            return
        self._finish_groups()
        codec, low = _Codec(self._dictionary, path), 0
        for number, length in enumerate(self.lengths().tolist()):
            yield codec.document(self._frames.read(low, length), number)
            low += length

    def close(self) -> None:
        """Delete the temporary files."""
        for _, future in self._under_way:
            future.cancel()
        self._under_way.clear()
        self._frames.close()
        self._lengths.close()

    def _finish_groups(self) -> None:
        """Wait for all frames, and train the dictionary if that was not done yet."""
        if not self._compressor:
            self._start_compressing(work_at_once)
        while self._compressor and self._under_way:
            self._take_group(self._compressor)

    def _take_group(self, compressor: _Compressor) -> None:
        """Wait for the oldest group under way, and append its frames; after an error it can be tried again."""
        records, future = self._under_way[0]
        try:
            frames = future.result()
        except Exception:  # such as too little memory on the other thread
            frames = compressor.compress(records)
        self._append_frames(frames)
        self._under_way.popleft()

    def _start_compressing(self, start: StartWork) -> None:
        """Train the dictionary on the documents so far, and compress these."""
        size = min(_DICTIONARY_BYTES, self._buffered_bytes // 16)
        self._dictionary = _choose_dictionary(self._known(size), self._buffered, size)
        compressor = _Compressor(self._dictionary)
        self._under_way.append((self._buffered, start(compressor.compress, self._buffered)))
        self._compressor, self._buffered = compressor, []

    def _append_frames(self, frames: _Frames) -> None:
        """Append frames and their lengths; after an error neither is appended."""
        n_bytes = self._frames.n_bytes
        try:
            self._frames.append(frames.joined)
            self._lengths.append(frames.lengths)
        except BaseException:
            self._frames.cut(n_bytes)
            raise


class _Frames(NamedTuple):
    """Compressed records.

    Attributes:
        joined: all frames.
        lengths: the length of each, uint32.
    """

    joined: bytes
    lengths: bytes


class _Compressor:
    """Makes a frame of each record; safe to use from several threads.

    Args:
        dictionary: perhaps empty.
    """

    def __init__(self, dictionary: bytes) -> None:
        self._trained = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        if self._trained:
            self._trained.precompute_compress(level=_LEVEL)  # otherwise every call digests it again

    def compress(self, records: list[bytes]) -> _Frames:
        """Return the frames of records; equal records in a row are compressed once.

        All are compressed in one call: between calls other threads would take over, for milliseconds each time.
        """
        changes = [number for number, record in enumerate(records) if not number or record != records[number - 1]]
        if not changes:
            return _Frames(b"", b"")
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=self._trained, write_dict_id=False)
        compressed = compressor.multi_compress_to_buffer([records[number] for number in changes])
        counts = [after - before for before, after in pairwise([*changes, len(records)])]
        frames: list[bytes] = []
        for number, count in enumerate(counts):
            frames += [compressed[number].tobytes()] * count
        return _Frames(b"".join(frames), np.fromiter(map(len, frames), np.uint32, len(frames)).tobytes())


def _choose_dictionary(known: bytes, records: list[bytes], size: int) -> bytes:
    """Return the dictionary for `records`: the known one, unless it has less than half of `size` or does not help.

    On English paragraphs frames are 4 % larger with a dictionary of half the size, 8 % with a quarter; at full
    size, training on other documents makes a difference of 1 %.
    """
    if not _is_helpful(known, records):
        known = b""
    return known if 2 * len(known) >= size else _train_dictionary(records, size) or known


def _is_helpful(known: bytes, records: list[bytes]) -> bool:
    """Return whether a dictionary improves the compression; by a third for English paragraphs."""
    sample = records[:: max(1, len(records) // _SAMPLED_DOCS)]
    if not known or not sample:
        return True
    plain = zstandard.ZstdCompressor(level=_LEVEL)
    primed = zstandard.ZstdCompressor(level=_LEVEL, dict_data=zstandard.ZstdCompressionDict(known))
    before, after = (sum(len(each.compress(record)) for record in sample) for each in (plain, primed))
    return after <= _MAX_HELPFUL_SHARE * before


def _train_dictionary(records: list[bytes], size: int) -> bytes:
    """Train a zstd dictionary on a sample of `records`; empty if they are too few or too short."""
    if len(records) < _MIN_TRAINING_DOCS:
        return b""
    step = min(len(records) // _MIN_TRAINING_DOCS, max(1, sum(map(len, records)) // _TRAINING_BYTES))
    sample: list[bytes | bytearray | memoryview] = [*records[::step]]
    if len(sample[0]) <= _LEAST_CONTENT and len(set(sample)) == 1:  # documents without title, text and metadata
        sample = sample[:_MIN_TRAINING_DOCS]  # more of them make the same dictionary, but take long
    try:
        return zstandard.train_dictionary(size, sample, level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return b""


class DocStore:
    """Reads the texts of a segment; thread-safe.

    Attributes:
        n_docs: documents in the segment, deleted ones included.
        n_runs: number of runs, each with one dictionary.
        frames: the compressed documents, by ordinal.
        path: the path of the file.
    """

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self.n_docs = n_docs
        self.path = container.path
        self.frames = ByteStrings(container, "documents", "document_offsets", n_docs)
        self._ordinals = container.section("dictionary_ordinals", np.uint64, (None,))
        self.n_runs = n_runs = self._ordinals.shape[0] - 1
        if not 1 <= n_runs <= _MAX_RUNS:
            raise CorruptFile("wrong number of dictionaries", path=self.path, expected=_MAX_RUNS, actual=n_runs)
        self._dictionaries = ByteStrings(container, "document_dictionaries", "dictionary_offsets", n_runs)
        self._codecs: dict[int, _Codec] = {}

    def __getitem__(self, ordinal: int) -> StoredDocument:
        """Return document `ordinal`.

        Raises:
            FormatError: the stored document is damaged.
        """
        return self.packed(np.array([ordinal]))[0].unpack()

    def packed(self, ordinals: Int64Array) -> list[PackedDocument]:
        """Read the documents (n,) `ordinals` without decompressing them."""
        frames = self.frames.many(ordinals)
        runs = (self.run_starts.searchsorted(ordinals, "right") - 1).tolist()
        return [
            PackedDocument(frame, self._codec(run), ordinal)
            for frame, run, ordinal in zip(frames, runs, ordinals.tolist(), strict=True)
        ]

    def read(self, ordinals: Int64Array) -> Iterator[StoredDocument]:
        """Yield the documents (n,) `ordinals`, in bounded memory."""
        return (packed.unpack() for packed in self._iterate_packed(ordinals))

    def records(self, ordinals: Int64Array) -> Iterator[bytes]:
        """Yield the documents (n,) `ordinals` decompressed but serialized, in bounded memory."""
        return (packed.record() for packed in self._iterate_packed(ordinals))

    def _iterate_packed(self, ordinals: Int64Array) -> Iterator[PackedDocument]:
        for low in range(0, len(ordinals), _BATCH_DOCS):
            yield from self.packed(ordinals[low : low + _BATCH_DOCS])

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
        """Return the dictionary of a run, perhaps empty."""
        return self._dictionaries[run]

    def check_dictionary(self, run: int) -> None:
        """Raise CorruptFile if the dictionary of a run cannot be used to compress documents."""
        trained = zstandard.ZstdCompressionDict(self.dictionary(run))
        try:
            zstandard.ZstdCompressor(level=_LEVEL, dict_data=trained).compress(b"")
        except zstandard.ZstdError as error:
            raise CorruptFile("invalid dictionary", path=self.path, actual=str(error)) from error

    def _codec(self, run: int) -> _Codec:
        if run not in self._codecs:
            self._codecs[run] = _Codec(self.dictionary(run), self.path)
        return self._codecs[run]


class PackedDocument:
    """A compressed document, decompressed at first use; independent of the open file."""

    __slots__ = ("_codec", "_frame", "_ordinal", "_unpacked")

    def __init__(self, frame: bytes, codec: _Codec, ordinal: int) -> None:
        self._frame = frame
        self._codec = codec
        self._ordinal = ordinal
        self._unpacked: StoredDocument | None = None

    def unpack(self) -> StoredDocument:
        """Return the document.

        Raises:
            CorruptFile: it cannot be decompressed or parsed.
        CancelledError: see `quarry.formats.container.cancellation`.
        """
        if self._unpacked is None:
            stop_if_cancelled()
            self._unpacked = self._codec.document(self._frame, self._ordinal)
        return self._unpacked

    def record(self) -> bytes:
        """Return the serialized document.

        Raises:
            CorruptFile: it cannot be decompressed.
        """
        return self._codec.record(self._frame, self._ordinal)

    def __reduce__(self) -> tuple[type[PackedDocument], tuple[bytes, _Codec, int]]:
        return PackedDocument, (self._frame, self._codec, self._ordinal)


class _Codec:
    """Decompresses the frames of one dictionary."""

    def __init__(self, dictionary: bytes, path: Path) -> None:
        self._dictionary = dictionary
        self._path = path
        self._local = threading.local()

    def __reduce__(self) -> tuple[type[_Codec], tuple[bytes, Path]]:
        return _Codec, (self._dictionary, self._path)

    def document(self, frame: bytes, ordinal: int) -> StoredDocument:
        """Return the document of a frame."""
        return _parse_document(self.record(frame, ordinal), ordinal, self._path)

    def record(self, frame: bytes, ordinal: int) -> bytes:
        """Decompress a frame."""
        return _decompress(self._decompressor(), frame, ordinal, self._path)

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        """Return the decompressor of this thread; decompressors are not thread-safe."""
        if not hasattr(self._local, "decompressor"):
            data = self._dictionary
            try:
                trained = zstandard.ZstdCompressionDict(data) if data else None
                self._local.decompressor = zstandard.ZstdDecompressor(
                    dict_data=trained, max_window_size=_MAX_WINDOW_BYTES
                )
            except zstandard.ZstdError as error:
                raise CorruptFile("invalid dictionary", path=self._path, actual=str(error)) from error
        decompressor: zstandard.ZstdDecompressor = self._local.decompressor
        return decompressor


def _decompress(decompressor: zstandard.ZstdDecompressor, frame: bytes, ordinal: int, path: Path) -> bytes:
    """Decompress a frame after checking its stated size, which the library does not do."""
    try:
        stated = zstandard.frame_content_size(frame)
        if not 0 < stated <= _MAX_DOCUMENT_BYTES:
            raise CorruptFile(f"document {ordinal} states a size out of bounds", path=path, actual=stated)
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"document {ordinal} cannot be decompressed", path=path, actual=str(error)) from error


def _parse_document(record: bytes, ordinal: int, path: Path) -> StoredDocument:
    try:
        fields = unpack_bounded(record, _MAX_VALUES)
    except ValueError as error:
        raise CorruptFile(f"document {ordinal} cannot be read", path=path, actual=str(error)) from error
    if not isinstance(fields, list) or [type(field) for field in fields] != [str, str, dict, bytes]:
        raise CorruptFile(f"document {ordinal} has fields of wrong types", path=path)
    return StoredDocument(*fields)
