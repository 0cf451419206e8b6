"""The targets of the fuzzer: each reads the data that an input represents, in every way.

An input is arbitrary bytes; checksums are corrected, so that they do not stop the reader. A target returns or
raises FormatError; any other error is a bug.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgpack
import numpy as np
import xxhash
from support.faults.memory_directory import MemoryDirectory
from support.indexes.format_samples import FILE_ID, container
from support.indexes.stored_postings import iterate_postings

from quarry.formats.container.layout import FOOTER, PREAMBLE, FileKind, FileRecord
from quarry.formats.container.packing import unpack_bounded
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import CHUNK_BYTES, Section
from quarry.formats.documents.ids import DocIds
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.documents.store import DocStore
from quarry.formats.errors import FormatError, InvalidSetting
from quarry.formats.manifest import Manifest
from quarry.formats.metadata.columns import MetadataReader
from quarry.formats.metadata.values import to_scalar
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.segment import SegmentReader
from quarry.formats.shard_set import ShardSet
from quarry.formats.tombstones import read_tombstones
from quarry.formats.vectors.centroids import CentroidTable
from quarry.formats.vectors.hnsw_graph import read_graph
from quarry.formats.vectors.inverted_lists import InvertedLists
from quarry.formats.vectors.quantizer import read_quantizer

HERE = Path("memory")
OPERANDS = [to_scalar(value) for value in (0, 1.5, "b", "long " * 40, None, True, 1 << 62)]
OPERATORS = ("eq", "lt", "lte", "gt", "gte")
TEXT_OPERATORS = ("contains", "prefix")
T = TypeVar("T")
MAX_DOCS = 64
DIM, NLIST, CODE_BYTES, N_DOCS = 4, 4, 2, 7
GRAPH_ROWS, GRAPH_OF = 12, FileRecord("a.seg", 1000, FILE_ID, bytes(16))


class Parts(ContainerReader):
    """An open file with these sections and correct checksums."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.path = HERE
        self._requested = set()
        self._sections = {name: _section(name, array) for name, array in arrays.items()}


def _section(name: str, array: np.ndarray) -> Section:
    data = array.tobytes()
    digests = xxhash.xxh3_128_digest(data) if data else b""
    return Section(HERE, memoryview(data), name, array.dtype, array.shape, 0, len(data), digests)


def parts_of(data: bytes, n: int) -> list[bytes]:
    """Split an input into n parts; each but the last is preceded by its length in two bytes."""
    parts, at = [], 0
    for _ in range(n - 1):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        parts.append(data[at + 2 : end])
        at = end
    return [*parts, data[at:]]


def joined(parts: Sequence[bytes]) -> bytes:
    """Join parts to an input."""
    sized = (len(part).to_bytes(2, "little") + part for part in parts[:-1])
    return b"".join([*sized, parts[-1]])


@dataclass(frozen=True)
class SectionsTarget:
    """A reader of some sections of a segment.

    The first part of an input has the numbers of documents and of rows, a byte each; the others are the sections.

    Attributes:
        kinds: type of each section and length of its rows, None for one axis.
        read: reads all sections.
    """

    kinds: Mapping[str, tuple[str, int | None]]
    read: Callable[[ContainerReader, int, int], None]

    def __call__(self, data: bytes) -> None:
        head, *sections = parts_of(data, 1 + len(self.kinds))
        n_docs, n_rows, *_ = head + bytes(2)
        arrays = {
            name: self._array(part, *kind) for part, (name, kind) in zip(sections, self.kinds.items(), strict=True)
        }
        self.read(Parts(arrays), 1 + n_docs % MAX_DOCS, 1 + n_rows)

    @staticmethod
    def _array(part: bytes, dtype: str, row: int | None) -> np.ndarray:
        whole = np.dtype(dtype).itemsize * (row or 1)
        array = np.frombuffer(part[: len(part) // whole * whole], dtype)
        return array if row is None else array.reshape(-1, row)

    def seed(self, file: ContainerReader, n_docs: int, n_rows: int) -> bytes:
        """Return the input that represents the sections of a file."""
        sections = [
            file.section(name, dtype, (None,) if row is None else (None, row)).array().tobytes()
            for name, (dtype, row) in self.kinds.items()
        ]
        return joined([bytes([n_docs - 1, n_rows - 1]), *sections])


@dataclass(frozen=True)
class FileTarget:
    """A reader of whole files of one kind.

    An input has two parts: the sections with their padding, and the table of contents, whose checksums are
    corrected if possible.

    Attributes:
        head: its preamble.
        name: of the file.
        read: reads it; gets the record of the file.
        fixed: the sections, if an input is only the table of contents.
    """

    head: bytes
    name: str
    read: Callable[[MemoryDirectory, FileRecord], None]
    fixed: bytes | None = None

    def __call__(self, data: bytes) -> None:
        body, contents = parts_of(data, 2) if self.fixed is None else (self.fixed, data)
        contents = _signed(contents, body)
        file_id = self.head[18:34]
        blob = container(contents, body, self.head, file_id=file_id)
        record = FileRecord(self.name, len(blob), file_id, xxhash.xxh3_128_digest(contents))
        self.read(MemoryDirectory(HERE, {self.name: blob}), record)

    def seed(self, blob: bytes) -> bytes:
        """Return the input that represents a file."""
        offset, length = FOOTER.unpack(blob[-64:])[:2]
        body, contents = blob[64:offset], blob[offset : offset + length]
        return joined([body, contents]) if self.fixed is None else contents


def _signed(contents: bytes, body: bytes) -> bytes:
    """Correct the checksums of the sections in a table of contents, if it can be parsed."""
    try:
        top = msgpack.unpackb(contents)
        right = [(entry, _digest(entry, body)) for entry in top["sections"].values()]
        if all(entry["chunks"] == digest for entry, digest in right):
            return contents  # keeps the serialization of the input
        for entry, digest in right:
            entry["chunks"] = digest
        return bytes(msgpack.packb(top))
    except Exception:  # any bytes; the reader must report the error
        return contents


def _digest(entry: dict, body: bytes) -> bytes:
    n_bytes = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
    low = entry["offset"] - 64
    assert 0 <= low <= low + n_bytes <= min(len(body), CHUNK_BYTES)
    return xxhash.xxh3_128_digest(body[low : low + n_bytes]) if n_bytes else b""


@dataclass(frozen=True)
class DiskTarget:
    """A reader that opens a file by its path; an input is the content of the file."""

    path: Path
    read: Callable[[], object]

    def __call__(self, data: bytes) -> None:
        with self.path.open("r+b", buffering=0) as file:  # truncated later: some systems sync a recreated file
            file.write(data or b" ")
            file.truncate()
        try:
            self.read()
        except InvalidSetting as error:
            assert "the bundle contains no" in str(error)  # noqa: PT017


def frame(data: bytes) -> None:
    """Read a whole file with the preamble and footer of the input and correct checksums."""
    if len(data) < PREAMBLE.size + FOOTER.size:
        return
    head, body, foot = data[: PREAMBLE.size], data[PREAMBLE.size : -FOOTER.size], data[-FOOTER.size :]
    offset, length, _, *rest = FOOTER.unpack(foot)
    contents = body[max(0, offset - 64) :][:length]
    end = FOOTER.pack(offset, length, xxhash.xxh3_128_digest(contents), *rest)
    blob = head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little") + body + end
    ContainerReader(MemoryDirectory(HERE, {"a.seg": blob}), "a.seg", FileKind.SEGMENT).find_damage()


def ids(file: ContainerReader, n_docs: int, _: int) -> None:
    """Read ids by ordinal and ordinals by id."""
    reader = DocIds(file, n_docs)
    found = both_or_neither(lambda: reader.many(np.arange(n_docs)), lambda: [reader[n] for n in range(n_docs)])
    for doc_id in found[:4]:
        assert all(reader[ordinal] == doc_id for ordinal in reader.ordinals_of(doc_id))
    reader.sorted_hashes()
    _ = reader.strings.offsets


def both_or_neither(one: Callable[[], T], other: Callable[[], T]) -> T:
    """Check that two ways of reading the same data give equal results, or both raise FormatError."""
    refusals, found = [], []
    for use in (one, other):
        try:
            found.append(use())
        except FormatError as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]
    assert not refusals, refusals[0]
    assert found[0] == found[1]
    return found[0]


def documents(file: ContainerReader, n_docs: int, _: int) -> None:
    """Read all documents, one by one and together, and their spans."""
    store = DocStore(file, n_docs)
    for packed in store.packed(np.arange(n_docs)):
        unpack_spans(packed.unpack().spans, HERE)
    assert list(store.records(np.array([0]))) == [store.packed(np.array([0]))[0].record()]
    _ = store.frames.offsets


def postings(file: ContainerReader, n_docs: int, _: int) -> None:
    """Read all terms together as a merge does, and each as a query does."""
    reader = PostingsReader(file, n_docs)
    assert reader.total_length == int(reader.lengths.sum())
    reader.postings("text")
    for term, posted in list(iterate_postings(reader))[:8]:
        entry = must_succeed(lambda term=term: reader.find(term.decode("utf-8", "surrogateescape")))
        if entry:  # wrong keys of blocks, or a term that is not text, may hide it
            single = must_succeed(lambda entry=entry: reader.read(entry))
            assert [column.tolist() for column in single] == [column.tolist() for column in posted]


def must_succeed(use: Callable[[], T]) -> T:
    """Read data that were already read in another way, so that no error is allowed."""
    try:
        return use()
    except FormatError as error:
        raise AssertionError("one way of reading raises an error, another does not") from error


def metadata(file: ContainerReader, n_docs: int, _: int) -> None:
    """Read all columns as filters and as merges do."""
    reader = MetadataReader(file, n_docs)
    everyone, ordinals = np.ones(n_docs, bool), np.arange(n_docs, dtype=np.uint32)
    assert reader.beyond is None or len(reader.beyond) == n_docs
    for path in reader.paths[:8]:
        column = reader.column(path)
        assert column is not None
        for operator in OPERATORS:
            for operand in OPERANDS if operator == "eq" else OPERANDS[:4]:
                codes = column.dictionary.compare(operator, operand)
                assert len(column.find_docs([*codes.certain, *codes.possible])) == n_docs
        for operator in TEXT_OPERATORS:
            codes = column.dictionary.compare(operator, OPERANDS[2])
            assert len(column.find_docs([*codes.certain, *codes.possible])) == n_docs
        assert column.count(everyone).sum() >= 0
        column.find_docs([column.dictionary.everything])
        for _kind, _value, docs in column.values(everyone, ordinals):
            assert docs.max() < n_docs


def centroids(file: ContainerReader, n_docs: int, n_rows: int) -> None:
    """Read all vectors by document and by row."""
    table = CentroidTable(file, n_docs, n_rows, DIM, "int8", 1.0)
    rows, bounds = table.rows_of(np.arange(n_docs))
    assert bounds[-1] == n_rows
    for one, other in zip(table.stored(rows), table.stored_slice(0, n_rows), strict=True):
        assert one.tobytes() == other.tobytes()
    assert sum(len(part) for part in table.batches(None)) == n_rows


def inverted_lists(file: ContainerReader, _: int, n_rows: int) -> None:
    """Read all rows with their codes."""
    lists = InvertedLists(file, NLIST, n_rows, CODE_BYTES)
    assert sorted(lists.rows().tolist()) == list(range(n_rows))
    assert lists.codes().shape == (n_rows, CODE_BYTES)
    assert lists.offsets[-1] == n_rows


def spans(data: bytes) -> None:
    """Read the spans of a document."""
    for each in unpack_spans(data, HERE):
        assert all(low <= high for low, high in each)


def packed_value(data: bytes) -> None:
    """Read a msgpack value with a small and with a large limit of values."""
    found = []
    for most in (8, 1 << 20):
        try:
            found.append(unpack_bounded(data, most))
        except ValueError as error:
            found.append(error)
    assert isinstance(found[0], ValueError) or repr(found[0]) == repr(found[1])


def manifest(directory: MemoryDirectory, _: FileRecord) -> None:
    """Read a manifest."""
    found = Manifest.load(directory, 1)
    assert found.file_names()


def shard_set(directory: MemoryDirectory, _: FileRecord) -> None:
    """Read a shard set."""
    found = ShardSet.load(directory, 1)
    assert len(found.folders) == len(set(found.folders)) > 0


def segment(directory: MemoryDirectory, record: FileRecord) -> None:
    """Open a segment and check its checksums."""
    reader = SegmentReader(directory, record, DIM)
    assert reader.n_docs <= reader.n_rows
    container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
    assert all(finding.path == reader.path for finding in container.find_damage())


def tombstones(directory: MemoryDirectory, record: FileRecord) -> None:
    """Read the flags of deleted documents."""
    assert read_tombstones(directory, record, FILE_ID, N_DOCS).shape == (N_DOCS,)


def quantizer(directory: MemoryDirectory, record: FileRecord) -> None:
    """Read a quantizer."""
    found = read_quantizer(directory, record)
    assert np.isfinite(found.coarse).all()


def graph(directory: MemoryDirectory, _: FileRecord) -> None:
    """Read the graph of a segment."""
    found = read_graph(directory, GRAPH_OF, GRAPH_ROWS)
    assert len(found.levels) == GRAPH_ROWS


BYTES, OFFSETS, ORDINALS = ("uint8", None), ("uint64", None), ("uint32", None)
SECTIONS = {
    "ids": SectionsTarget(
        {"ids": BYTES, "id_offsets": OFFSETS, "id_hashes": OFFSETS, "id_ordinals": ORDINALS}, ids),
    "documents": SectionsTarget(
        {"documents": BYTES, "document_offsets": OFFSETS, "dictionary_ordinals": OFFSETS,
         "document_dictionaries": BYTES, "dictionary_offsets": OFFSETS}, documents),
    "postings": SectionsTarget(
        {"term_keys": OFFSETS, "terms": BYTES, "term_offsets": OFFSETS, "posting_offsets": OFFSETS,
         "postings": BYTES, "doc_lengths": ORDINALS}, postings),
    "metadata": SectionsTarget({"metadata": BYTES, "metadata_directory": BYTES}, metadata),
    "centroids": SectionsTarget(
        {"centroid_offsets": OFFSETS, "centroids": ("int8", DIM), "centroid_scales": ("float32", None)},
        centroids),
    "lists": SectionsTarget(
        {"list_offsets": OFFSETS, "list_rows": ORDINALS, "codes": ("uint8", CODE_BYTES)}, inverted_lists),
}  # fmt: skip
