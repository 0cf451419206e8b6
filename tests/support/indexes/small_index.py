"""A small index of two segments with all kinds of sections, and functions that read or damage it."""

from __future__ import annotations

from pathlib import Path

import msgpack
import numpy as np
import xxhash
from support.indexes.format_samples import container, manifest
from support.indexes.stored_postings import iterate_postings

from quarry.engine.filtering.evaluation import Allowed
from quarry.engine.gpu.device import Device
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.training import measured, train_quantizer
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind
from quarry.formats.container.packing import pack
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.spans import pack_spans, unpack_spans
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import FormatError
from quarry.formats.manifest import Manifest, SegmentRecord, find_latest_generation
from quarry.formats.segment import SegmentWriter
from quarry.formats.snapshot import Snapshot
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import write_quantizer

DIM, CODE_BYTES, NLIST = 32, 8, 16
WORDS = [
    f"{first}{second}" for first in ("ba", "ko", "li", "mu", "te", "xy") for second in ("dor", "fin", "s", "way")
]
KINDS = {"seg": FileKind.SEGMENT, "del": FileKind.TOMBSTONES, "quant": FileKind.QUANTIZER}


def build(folder):
    """Commit an index of 2 x 150 documents and 800 vectors, about 110 KB."""
    directory, generator = Directory(folder), np.random.default_rng(0)
    counts = generator.integers(1, 6, (2, 150))
    vectors = [
        [generator.standard_normal((n, DIM)).astype(np.float32) for n in segment] for segment in counts.tolist()
    ]
    sample = np.concatenate(vectors[0])
    made = measured(train_quantizer(sample, NLIST, CODE_BYTES, 0, 1), sample, len(sample), 1)
    record = write_quantizer(directory, made)
    segments = [_segment(directory, number, vectors[number], made, record, generator) for number in range(2)]
    committed = manifest(segments, [record], dim=DIM, code_bytes=CODE_BYTES)
    committed.commit(directory)
    return directory


def _segment(directory, number, vectors, made, quantizer, generator):
    writer = SegmentWriter(directory, DIM, "int8")
    for n, centroids in enumerate(vectors):
        text = " ".join(generator.choice(WORDS, 60))
        spans = pack_spans([(place * 9, place * 9 + 8)] for place in range(len(centroids)))
        document = StoredDocument(f"title {n}", text, {"n": n, "tags": ["a", "é"]}, spans)
        writer.add(f"{number}/{n} é" if n else "in both", document, centroids, text.split())
    lists = InvertedListsWriter(directory, made.nlist, made.code_bytes)
    for batch in writer.centroids.batches():
        lists.add(*VectorCoder(made, 1).code(batch))
    file = writer.finish(lists, made.nlist, made.code_bytes, keep_centroids=True)
    lists.close()
    writer.close()
    deleted = generator.random(len(vectors)) < 0.1
    deleted[0] = number == 0
    return SegmentRecord(
        file=file,
        tombstones=write_tombstones(directory, file.file_id, deleted),
        quantizer=quantizer.name,
        n_docs=len(vectors),
        n_deleted=int(deleted.sum()),
    )


def current(directory):
    """Return the newest manifest."""
    return Manifest.load(directory, find_latest_generation(directory))


def open_file(directory, name, committed):
    """Open one file of the generation."""
    if name == committed.name:
        return Manifest.load(directory, committed.generation)
    return ContainerReader(directory, name, KINDS[name.rsplit(".")[-1]], records(committed)[name])


def records(committed):
    """Return the records of a manifest's files, by name."""
    found = list(committed.quantizers)
    for segment in committed.segments:
        found += [segment.file, segment.tombstones]
    return {record.name: record for record in found}


def everything(directory):
    """Open the index, read all of its data in every way, and return them."""
    snapshot = Snapshot(directory)
    read = [repr(snapshot.manifest)]
    for segment in snapshot.segments:
        read += _all_of(segment)
    read.append(repr([snapshot.find(doc_id) is None for doc_id in ("in both", "0/7 é", "1/7 é", "nobody")]))
    snapshot.close()
    return read


def _all_of(segment):
    reader, table = segment.reader, segment.reader.centroids
    everyone = np.arange(reader.n_docs)
    ids = reader.ids.many(everyone)
    documents = [_document(reader, packed) for packed in reader.documents.packed(everyone)]
    arrays = [table.offsets, *table.stored_slice(0, reader.n_rows), reader.lists.offsets, reader.lists.rows()]
    arrays += [*table.stored(table.rows_of(np.arange(reader.n_docs))[0]), reader.lists.codes()]
    arrays += [segment.deleted, segment.quantizer.coarse, segment.quantizer.encode_codebook]
    arrays += [reader.postings.lengths]
    for word in WORDS:
        arrays += list(reader.postings.postings(word))
    arrays += _columns(reader)
    terms = []
    for term, postings in iterate_postings(reader.postings):
        terms.append(term)
        arrays += list(postings)
    ordinals = [reader.ids.ordinals_of(doc_id) for doc_id in ids[::10]]
    arrays += list(reader.ids.sorted_hashes())
    read = [repr((ids, documents, ordinals, terms))]
    return read + [array.tobytes() for array in arrays]


def _columns(reader):
    """Return all values and documents of the metadata columns."""
    everyone, parts = np.ones(reader.n_docs, bool), [np.array(reader.metadata.paths)]
    for path in reader.metadata.paths:
        column = reader.metadata.column(path)
        parts.append(column.find_docs([column.dictionary.everything]))
        for *value, docs in column.values(everyone, np.arange(reader.n_docs, dtype=np.uint32)):
            parts += [np.array([repr(value)]), docs]
    return parts


def _document(reader, packed):
    document = packed.unpack()
    return document, unpack_spans(document.spans, reader.path)


def refusal(use, *arguments):
    """Return the FormatError that `use` raises, or None; any other error is raised."""
    try:
        use(*arguments)
    except FormatError as error:
        return error
    return None


def allowed_docs(flags):
    """Return the documents of a segment that a filter lets pass."""
    return Allowed(flags)


def searcher_of(snapshot, **options):
    """Return what searches a snapshot on one thread."""
    device = Device(options["device"]) if options.get("device") else None
    return Searcher(snapshot, OpenOptions(**{"threads": 1, **options}), device=device)


def search(directory, backend):
    """Search the index in every way; only errors other than FormatError matter, not the hits."""
    snapshot = Snapshot(directory)
    searcher = searcher_of(snapshot, backend=backend)
    queries = np.random.default_rng(1).standard_normal((3, DIM)).astype(np.float32)
    with np.errstate(all="ignore"):
        found = searcher.search(queries, SearchOptions(k=20))
    for segment, doc in zip(found[0].segments.tolist(), found[0].docs.tolist(), strict=True):
        assert not snapshot.segments[segment].deleted[doc]
    snapshot.close()


def changed_copy(value, steps, new):
    """Return a copy of nested maps and lists with a new value at a path; `...` deletes the value."""
    if not steps:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is ... and len(steps) == 1:
        del copy[steps[0]]
    else:
        copy[steps[0]] = changed_copy(copy[steps[0]], steps[1:], new)
    return copy


class Container:
    """A file split into its parts, which can be changed and written again with correct checksums."""

    def __init__(self, path, blob=None):
        self.path = path
        blob = Path(path).read_bytes() if blob is None else blob
        offset, length = (
            int.from_bytes(blob[low : low + 8], "little") for low in (len(blob) - 64, len(blob) - 56)
        )
        self.head, self.file_id = blob[:64], blob[18:34]
        self.contents = msgpack.unpackb(blob[offset : offset + length])
        self.data = bytearray(blob[64:offset])

    @classmethod
    def of(cls, blob):
        """Split the bytes of a file."""
        return cls(None, blob)

    def records(self):
        """Return the manifest's records of other files, which can be changed in place."""
        fields = self.contents["fields"]
        named = list(fields["quantizers"])
        for segment in fields["segments"]:
            named += [segment["file"], segment["tombstones"]]
        return [record for record in named if record]

    def array(self, name):
        """Return a section, which can be changed in place."""
        entry = self.contents["sections"][name]
        count = int(np.prod(entry["shape"]))
        return np.frombuffer(self.data, entry["dtype"], count, entry["offset"] - 64).reshape(entry["shape"])

    def sign(self):
        """Renew the checksums of all sections that lie within the data."""
        for entry in self.contents["sections"].values():
            n_bytes = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
            entry["chunks"] = xxhash.xxh3_128_digest(self.data[entry["offset"] - 64 :][:n_bytes])[
                : 16 if n_bytes else 0
            ]

    def blob(self):
        """Return the bytes of the file."""
        return container(self.contents, bytes(self.data), self.head, file_id=self.file_id)


def signed(files, name, change):
    """Change one file of an index; return all files, with the new checksums in the manifest.

    Args:
        files: content by name.
        name: of the changed file.
        change: called with the `Container` of the file.
    """
    part = Container.of(files[name])
    change(part)
    blob = part.blob()
    if part.head[9] == FileKind.MANIFEST:
        return {**files, name: blob}
    top = max(each for each in files if each.startswith("MANIFEST"))
    root = Container.of(files[top])
    for record in root.records():
        if record["name"] == name:
            record["n_bytes"], record["digest"] = len(blob), xxhash.xxh3_128_digest(pack(part.contents))
    return {**files, name: blob, top: root.blob()}


def resign(directory, name, change):
    """Change a file in a folder, and its record in the manifest; see `signed`."""
    files = {file: (directory.path / file).read_bytes() for file in (name, current(directory).name)}
    for file, blob in signed(files, name, change).items():
        (directory.path / file).write_bytes(blob)
