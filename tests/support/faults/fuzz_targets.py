"""What the fuzzer calls: each target reads one thing that an input stands for, by every way there is to read it.

An input is untrusted bytes. Checksums are made right all over, so that they keep nothing from being read. A target
ends well or with a FormatError; whatever else comes out of it is a bug.
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
from quarry.formats.metadata.values import scalar
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.segment import SegmentReader
from quarry.formats.shard_set import ShardSet
from quarry.formats.tombstones import read_tombstones
from quarry.formats.vectors.centroids import CentroidTable
from quarry.formats.vectors.hnsw_graph import read_graph
from quarry.formats.vectors.inverted_lists import InvertedLists
from quarry.formats.vectors.quantizer import read_quantizer

HERE = Path("memory")
OPERANDS = [scalar(value) for value in (0, 1.5, "b", "long " * 40, None, True, 1 << 62)]
OPERATORS = ("eq", "lt", "lte", "gt", "gte")
T = TypeVar("T")
MAX_DOCS = 64
DIM, NLIST, CODE_BYTES, N_DOCS = 4, 4, 2, 7
GRAPH_ROWS, GRAPH_OF = 12, FileRecord("a.seg", 1000, FILE_ID, bytes(16))


class Parts(ContainerReader):
    """Sections by name, as of an open file whose checksums are right."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.path = HERE
        self._asked = set()
        self._sections = {name: _section(name, array) for name, array in arrays.items()}


def _section(name: str, array: np.ndarray) -> Section:
    data = array.tobytes()
    digests = xxhash.xxh3_128_digest(data) if data else b""
    return Section(HERE, memoryview(data), name, array.dtype, array.shape, 0, len(data), digests)


def parts_of(data: bytes, n: int) -> list[bytes]:
    """The n parts of an input: each but the last has its length in two bytes before it."""
    parts, at = [], 0
    for _ in range(n - 1):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        parts.append(data[at + 2 : end])
        at = end
    return [*parts, data[at:]]


def joined(parts: Sequence[bytes]) -> bytes:
    """An input of these parts."""
    sized = (len(part).to_bytes(2, "little") + part for part in parts[:-1])
    return b"".join([*sized, parts[-1]])


@dataclass(frozen=True)
class SectionsTarget:
    """A reader of some sections of a segment.

    The first part of an input is the numbers of documents and of rows, a byte each; the others are the sections.

    Attributes:
        kinds: of each section the type and the length of a row, None where it has one axis.
        read: reads all of it.
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
        """The input that stands for the sections of a file."""
        sections = [file._sections[name].array().tobytes() for name in self.kinds]
        return joined([bytes([n_docs - 1, n_rows - 1]), *sections])


@dataclass(frozen=True)
class FileTarget:
    """A reader of whole files of one kind.

    An input has two parts: the sections with what is between them, and the table of contents. What that says of
    checksums is put right where it can be.

    Attributes:
        head: its preamble.
        name: of the file.
        read: reads it; it gets what a manifest would say of the file.
        fixed: the sections, where an input is the table of contents alone.
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
        """The input that stands for a file."""
        offset, length = FOOTER.unpack(blob[-64:])[:2]
        body, contents = blob[64:offset], blob[offset : offset + length]
        return joined([body, contents]) if self.fixed is None else contents


def _signed(contents: bytes, body: bytes) -> bytes:
    """A table of contents with the checksums of its sections, where it can be read that far."""
    try:
        top = msgpack.unpackb(contents)
        right = [(entry, _digest(entry, body)) for entry in top["sections"].values()]
        if all(entry["chunks"] == digest for entry, digest in right):
            return contents  # whatever another serialisation would make of it
        for entry, digest in right:
            entry["chunks"] = digest
        return bytes(msgpack.packb(top))
    except Exception:  # any bytes; the reader shall say what is wrong with them
        return contents


def _digest(entry: dict, body: bytes) -> bytes:
    n_bytes = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
    low = entry["offset"] - 64
    assert 0 <= low <= low + n_bytes <= min(len(body), CHUNK_BYTES)
    return xxhash.xxh3_128_digest(body[low : low + n_bytes]) if n_bytes else b""


@dataclass(frozen=True)
class DiskTarget:
    """A reader that opens a file of its own accord; an input is all of its bytes."""

    path: Path
    read: Callable[[], object]

    def __call__(self, data: bytes) -> None:
        with self.path.open("r+b", buffering=0) as file:  # truncated after it: some systems sync a file made anew
            file.write(data or b" ")
            file.truncate()
        try:
            self.read()
        except InvalidSetting as error:
            assert "the bundle contains no" in str(error)  # noqa: PT017


def frame(data: bytes) -> None:
    """A whole file: preamble and footer are the input's, the checksums of both and of what they name are right."""
    if len(data) < PREAMBLE.size + FOOTER.size:
        return
    head, body, foot = data[: PREAMBLE.size], data[PREAMBLE.size : -FOOTER.size], data[-FOOTER.size :]
    offset, length, _, *rest = FOOTER.unpack(foot)
    contents = body[max(0, offset - 64) :][:length]
    end = FOOTER.pack(offset, length, xxhash.xxh3_128_digest(contents), *rest)
    blob = head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little") + body + end
    ContainerReader(MemoryDirectory(HERE, {"a.seg": blob}), "a.seg", FileKind.SEGMENT).find_damage()


def ids(file: ContainerReader, n_docs: int, _: int) -> None:
    """Ids by ordinal, ordinals by id."""
    reader = DocIds(file, n_docs)
    found = both_or_neither(lambda: reader.many(np.arange(n_docs)), lambda: [reader[n] for n in range(n_docs)])
    for doc_id in found[:4]:
        assert all(reader[ordinal] == doc_id for ordinal in reader.ordinals_of(doc_id))
    reader.sorted_hashes()
    reader.strings.lengths()


def both_or_neither(one: Callable[[], object], other: Callable[[], object]) -> object:
    """What two ways of reading the same give: equal answers, or a FormatError from both."""
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
    """All documents, each by itself and together; their spans."""
    store = DocStore(file, n_docs)
    for packed in store.packed(np.arange(n_docs)):
        unpack_spans(packed.unpack().spans, HERE)
    assert list(store.records(np.array([0]))) == [store.packed(np.array([0]))[0].record()]
    store.frames.lengths()


def postings(file: ContainerReader, n_docs: int, _: int) -> None:
    """All terms together as a merge reads them, and each as a query finds it."""
    reader = PostingsReader(file, n_docs)
    assert reader.total_length == int(reader.lengths.sum())
    reader.postings("text")
    found = list(reader)
    assert len(found) == reader.n_terms
    for term, posted in found[:8]:
        entry = sure(lambda term=term: reader.find(term.decode("utf-8", "surrogateescape")))
        if entry:  # the keys of the blocks, or a term that is no text, may hide it
            single = sure(lambda entry=entry: reader.read(entry))
            assert [column.tolist() for column in single] == [column.tolist() for column in posted]


def sure(use: Callable[[], T]) -> T:
    """What has been read in another way already cannot be damaged."""
    try:
        return use()
    except FormatError as error:
        raise AssertionError("one way of reading refuses what another does not") from error


def metadata(file: ContainerReader, n_docs: int, _: int) -> None:
    """All columns, as filters and as a merge read them."""
    reader = MetadataReader(file, n_docs)
    everyone, ordinals = np.ones(n_docs, bool), np.arange(n_docs, dtype=np.uint32)
    assert reader.beyond is None or len(reader.beyond) == n_docs
    for path in reader.paths[:8]:
        column = reader.column(path)
        for operator in OPERATORS:
            for operand in OPERANDS if operator == "eq" else OPERANDS[:4]:
                codes = column.dictionary.compare(operator, operand)
                assert len(column.find_docs([*codes.sure, *codes.doubtful])) == n_docs
        column.find_docs([column.dictionary.everything])
        for _kind, _value, docs in column.values(everyone, ordinals):
            assert docs.max() < n_docs


def centroids(file: ContainerReader, n_docs: int, n_rows: int) -> None:
    """All vectors, by document and by row."""
    table = CentroidTable(file, n_docs, n_rows, DIM, "int8", 1.0)
    rows, bounds = table.rows_of(np.arange(n_docs))
    assert bounds[-1] == n_rows
    for one, other in zip(table.stored(rows), table.stored_slice(0, n_rows), strict=True):
        assert one.tobytes() == other.tobytes()
    assert sum(len(part) for part in table.batches(None)) == n_rows


def inverted_lists(file: ContainerReader, _: int, n_rows: int) -> None:
    """All rows with their codes."""
    lists = InvertedLists(file, NLIST, n_rows, CODE_BYTES)
    assert sorted(lists.rows().tolist()) == list(range(n_rows))
    assert lists.codes().shape == (n_rows, CODE_BYTES)
    assert lists.offsets[-1] == n_rows


def spans(data: bytes) -> None:
    """The spans of a document."""
    for each in unpack_spans(data, HERE):
        assert all(low <= high for low, high in each)


def packed_value(data: bytes) -> None:
    """A value in msgpack, with few values allowed and with many."""
    found = []
    for most in (8, 1 << 20):
        try:
            found.append(unpack_bounded(data, most))
        except ValueError as error:
            found.append(error)
    assert isinstance(found[0], ValueError) or repr(found[0]) == repr(found[1])


def manifest(directory: MemoryDirectory, _: FileRecord) -> None:
    """A manifest, and again what it says, written anew."""
    found = Manifest.load(directory, 1)
    assert found.file_names()


def shard_set(directory: MemoryDirectory, _: FileRecord) -> None:
    """A shard set."""
    found = ShardSet.load(directory, 1)
    assert len(found.folders) == len(set(found.folders)) > 0


def segment(directory: MemoryDirectory, record: FileRecord) -> None:
    """A segment, opened and checked."""
    reader = SegmentReader(directory, record, DIM)
    assert reader.n_docs <= reader.n_rows
    assert all(finding.path == reader.path for finding in reader._container.find_damage())


def tombstones(directory: MemoryDirectory, record: FileRecord) -> None:
    """Which documents are deleted."""
    assert read_tombstones(directory, record, FILE_ID, N_DOCS).shape == (N_DOCS,)


def quantizer(directory: MemoryDirectory, record: FileRecord) -> None:
    """Codebooks."""
    found = read_quantizer(directory, record)
    assert np.isfinite(found.coarse).all()


def graph(directory: MemoryDirectory, _: FileRecord) -> None:
    """A graph of a segment."""
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
