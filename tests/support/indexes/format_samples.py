"""Makes small parts of indexes for the tests of the formats, and containers byte by byte."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash

from quarry.formats.container.layout import END_MAGIC, FOOTER, MAGIC, PREAMBLE, VERSION, FileKind
from quarry.formats.container.packing import pack
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.store import StoredDocument
from quarry.formats.manifest import EncoderRecord, IndexSettings, Manifest, SegmentRecord
from quarry.formats.metadata.columns import MAX_PATHS, MetadataWriter
from quarry.formats.segment import SegmentWriter
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting

FILE_ID = bytes(range(16))
ODD_IDS = [
    "plain",
    " ",
    "é",  # composed
    "e\u0301",  # the same text, decomposed
    "../../etc/passwd",
    "a\0b",
    "\n",
    "\U0001f600\u200d",
    "文" * 1365,
    "CON",
    "null",
    "True",
]


def n_descriptors():
    """Return the number of open file descriptors of this process, after garbage collection."""
    gc.collect()
    if sys.platform == "win32" or not Path("/dev/fd").exists():
        pytest.skip("open files cannot be counted on this system")
    return sum(1 for _ in Path("/dev/fd").iterdir())


def write_file(directory, sections, fields=None, kind=FileKind.SEGMENT, name="sample.seg"):
    """Write a container of whole arrays and return its record."""
    writer = ContainerWriter(directory, name, kind, FILE_ID)
    for section, array in sections.items():
        writer.add(section, array)
    return writer.finish(fields or {})


def reread(directory, write, kind=FileKind.SEGMENT, name="sample.seg"):
    """Write a container by calling `write` with its writer, and open it."""
    writer = ContainerWriter(directory, name, kind, FILE_ID)
    write(writer)
    writer.finish({})
    return ContainerReader(directory, name, kind)


def preamble(  # noqa: PLR0917
    kind=FileKind.SEGMENT,
    magic=MAGIC,
    version=VERSION,
    order=0x0A0B0C0D,
    flags=0,
    writer=0,
    optional=0,
    reserved=bytes(10),
    file_id=FILE_ID,
):
    """Make a preamble of any values with a correct checksum."""
    head = PREAMBLE.pack(magic, kind, *version, order, file_id, flags, writer, optional, reserved)
    return head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little")


def container(contents, data=b"", head=None, **footer):
    """Make a whole file with correct checksums; `contents` is a value to be packed, or packed bytes."""
    head = preamble() if head is None else head
    packed = contents if isinstance(contents, bytes) else pack(contents)
    offset = len(head) + len(data)
    end = {
        "offset": offset,
        "length": len(packed),
        "digest": xxhash.xxh3_128_digest(packed),
        "total": offset + len(packed) + 64,
        "file_id": FILE_ID,
        "magic": END_MAGIC,
    }
    return head + data + packed + FOOTER.pack(*(end | footer).values())


def section(offset=64, shape=(8,), dtype="uint8", n_chunks=1, data=bytes(8)):
    """Make the entry of a section with the bytes `data` in a table of contents."""
    digests = xxhash.xxh3_128_digest(data) * n_chunks
    return {"dtype": dtype, "shape": list(shape), "offset": offset, "chunks": digests}


def store(directory, blob, name="sample.seg"):
    """Write bytes to a file of the folder and return its path."""
    path: Path = directory.path / name
    write_over(path, blob)
    return path


def write_over(path, blob):
    """Write bytes to a file, which an error about its content keeps open until it is collected."""
    if sys.platform == "win32":
        gc.collect()
    path.write_bytes(blob)


def quantizer(
    seed=0, nlist=4, dim=8, n_sub=4, *, nbits=4, input_dim=None, apart=False, by_residual=False, measured=False
):
    """Make a quantizer of random values."""
    generator = np.random.default_rng(seed)

    def floats(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    encode = floats(n_sub, 1 << nbits, dim // n_sub)
    score = floats(n_sub, 1 << nbits, dim // n_sub) if apart else encode
    rotation = None if input_dim is None else floats(dim, input_dim)
    recall = np.sort(generator.random(nlist, np.float32)) if measured else None
    coarse, rows = floats(nlist, dim), int(generator.integers(1, 1000)) if measured else None
    settings = (SearchSetting(10, 1, 7), SearchSetting(100, nlist, 1 << 32)) if measured else ()
    return Quantizer(coarse, encode, score, rotation, by_residual, recall, None, rows, settings)


def document(number=0, **changes):
    """Make a document to be stored."""
    fields = {
        "title": f"title {number}",
        "text": f"text of {number}",
        "metadata": {"n": number},
        "spans": b"\1\0\4",
    }
    return StoredDocument(**(fields | changes))


def write_segment(  # noqa: PLR0917
    directory,
    ids,
    kind="int8",
    made_with=None,
    dim=8,
    keep=True,
    rows_per_doc=3,
    metadata=None,
    title=None,
    max_paths=MAX_PATHS,
):
    """Write a segment of random vectors, with inverted lists of random codes if there is a quantizer.

    `metadata` and `title` make those of a document from its number; words of the title are then terms too.
    """
    generator = np.random.default_rng(len(ids))
    writer = SegmentWriter(directory, dim, kind)
    writer.metadata = MetadataWriter(directory, max_paths)
    for number, doc_id in enumerate(ids):
        vectors = generator.standard_normal((1 + number % rows_per_doc, dim)).astype(np.float32)
        stored = document(number, **({"metadata": metadata(number)} if metadata else {}))
        terms = stored.text.split()
        if title:
            stored = replace(stored, title=title(number))
            terms += stored.title.split()
        writer.add(doc_id, stored, vectors, terms)
    lists = None
    if made_with:
        n_rows = writer.centroids.n_rows
        lists = InvertedListsWriter(directory, made_with.nlist, made_with.code_bytes)
        codes = generator.integers(0, 256, (n_rows, made_with.code_bytes), np.uint8)
        lists.add(generator.integers(0, made_with.nlist, n_rows), codes)
    sizes = (made_with.nlist, made_with.code_bytes) if made_with else (0, 0)
    record = writer.finish(lists, *sizes, keep_centroids=keep)
    for part in (writer, lists):
        if part:
            part.close()
    return record


def segment_record(directory, ids, deleted=(), made_with=None, quantizer_name="", **options):
    """Write a segment with deleted documents and return its entry in a manifest."""
    file = write_segment(directory, ids, made_with=made_with, **options)
    flags = np.isin(np.arange(len(ids)), deleted)
    return SegmentRecord(
        file=file,
        tombstones=write_tombstones(directory, file.file_id, flags) if deleted else None,
        quantizer=quantizer_name,
        n_docs=len(ids),
        n_deleted=len(deleted),
    )


def manifest(segments=(), quantizers=(), generation=1, **changes):
    """Make a manifest."""
    settings = {
        "dim": 8,
        "representation": "pieces",
        "representation_settings": {"tokens_per_piece": 32},
        "beta": None,
        "centroids": "int8",
        "code_bytes": 2,
        "language": "english",
        "analysis_rules": 1,
        "k1": 1.2,
        "b": 0.75,
        "seed": 0,
    }
    return Manifest(
        generation=generation,
        commit_id=os.urandom(16),
        parent_id=bytes(16),
        settings=IndexSettings(**(settings | changes)),
        encoder=EncoderRecord(name="words", identity="0" * 32, normalize=True),
        segments=tuple(segments),
        quantizers=tuple(quantizers),
    )
