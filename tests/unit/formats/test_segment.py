"""Segment files are read back as written."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.format_samples import ODD_IDS, document, n_descriptors, quantizer, write_segment

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CommitFailed, CorruptFile, InvalidDocument
from quarry.formats.segment import SegmentReader, SegmentWriter

VECTORS = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


@pytest.mark.parametrize("kind", ["int8", "float16"])
@pytest.mark.parametrize("made_with", [None, quantizer()])
@pytest.mark.parametrize("keep", [True, False])
def test_a_segment_comes_back(directory, kind, made_with, keep):
    keep = keep or made_with is None
    record = write_segment(directory, ODD_IDS, kind, made_with, keep=keep)
    assert record.name == f"{record.file_id.hex()}.seg"
    assert directory.names() == [record.name]
    before = n_descriptors()
    reader = SegmentReader(directory, record, 8)
    assert n_descriptors() == before + 1
    assert (reader.n_docs, reader.n_bytes, reader.segment_id) == (len(ODD_IDS), record.n_bytes, record.file_id)
    assert [reader.ids[n] for n in range(reader.n_docs)] == ODD_IDS
    assert all(reader.documents[n] == document(n) for n in range(reader.n_docs))
    assert np.diff(reader.centroids.offsets).tolist() == [1 + n % 3 for n in range(reader.n_docs)]
    assert reader.n_rows == reader.centroids.offsets[-1]
    assert (reader.lists is None) == (made_with is None)
    assert reader.centroids.kind == (kind if keep else "none")
    if keep:
        rows, scales = reader.centroids.stored_slice(0, reader.n_rows)
        norms = np.linalg.norm(rows.astype(np.float64) * scales[:, None], axis=1)
        assert norms.max() <= reader.centroids.largest_norm <= norms.max() * 1.0001
    if made_with:
        assert sorted(reader.lists.rows().tolist()) == list(range(reader.n_rows))
    assert sum(reader.section_bytes().values()) < reader.n_bytes
    reader.close()
    assert reader.documents[3] == document(3)


def test_bulk_sections_start_on_pages(directory):
    record = write_segment(directory, ODD_IDS, made_with=quantizer())
    container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
    assert container.section("centroids", np.int8, (None, 8)).offset % 4096 == 0
    assert container.section("codes", np.uint8, (None, 2)).offset % 4096 == 0


def test_a_document_that_was_refused_leaves_no_trace(directory):
    writer = SegmentWriter(directory, 8, "float16")
    writer.add("a", document(1), VECTORS)
    with pytest.raises(InvalidDocument, match="document 'b': the norm of a vector is too large"):
        writer.add("b", document(2), VECTORS * 1e6)
    writer.add("c", document(3), VECTORS)
    reader = SegmentReader(directory, writer.finish(None, 0, 0, keep_centroids=True), 8)
    assert [reader.ids[0], reader.ids[1], reader.n_docs] == ["a", "c", 2]
    assert reader.documents[1] == document(3)


@pytest.mark.parametrize("where", ["centroids", "documents", "ids"])
def test_a_document_that_was_taken_in_part_spoils_the_segment(directory, monkeypatch, where):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    writer = SegmentWriter(directory, 8, "int8")
    writer.add("a", document(1), VECTORS)
    with monkeypatch.context() as patch:
        patch.setattr(getattr(writer, where), "add_many", full_disk)
        with pytest.raises(OSError, match="No space"):
            writer.add("b", document(2), VECTORS)
    writer.add("c", document(3), VECTORS)
    with pytest.raises(CommitFailed):
        writer.finish(None, 0, 0, keep_centroids=True)
    writer.close()
    assert directory.names() == []


def test_temporary_files_go(directory):
    writer = SegmentWriter(directory, 256, "float16")
    vectors = np.ones((3000, 256), np.float32)
    for number in range(12):
        writer.add(f"{number}" + "x" * 4000, document(number, text="y" * 10), vectors)
        writer.spill()
    assert len(directory.names()) == 1
    record = writer.finish(None, 0, 0, keep_centroids=True)
    writer.close()
    assert directory.names() == [record.name]


FIT = {"n_rows": 24, "coarse_error": 0.5, "code_error": 0.0, "imbalance": 1.0}
GOOD = {
    "n_docs": 12,
    "n_rows": 24,
    "dim": 8,
    "largest_norm": 10.0,
    "centroids": "int8",
    "nlist": 4,
    "code_bytes": 2,
    "fit": FIT,
}


def by_hand(directory, changes, without=(), stowaway=False):
    """Copy a segment with other fields or sections."""
    original = write_segment(directory, ODD_IDS, made_with=quantizer())
    container = ContainerReader(directory, original.name, FileKind.SEGMENT)
    writer = ContainerWriter(directory, "copy.seg", FileKind.SEGMENT, bytes(16))
    for name, (dtype, shape) in {
        "centroid_offsets": ("uint64", 1), "centroids": ("int8", 2), "centroid_scales": ("float32", 1),
        "list_offsets": ("uint64", 1), "list_rows": ("uint32", 1), "codes": ("uint8", 2), "ids": ("uint8", 1),
        "id_offsets": ("uint64", 1), "id_hashes": ("uint64", 1), "id_ordinals": ("uint32", 1),
        "terms": ("uint8", 1), "term_offsets": ("uint64", 1), "term_keys": ("uint64", 1),
        "posting_offsets": ("uint64", 1), "postings": ("uint8", 1), "doc_lengths": ("uint32", 1),
        "document_dictionaries": ("uint8", 1), "dictionary_offsets": ("uint64", 1),
        "dictionary_ordinals": ("uint64", 1), "documents": ("uint8", 1), "document_offsets": ("uint64", 1),
    }.items():  # fmt: skip
        if name not in without:
            writer.add(name, container.section(name, dtype, (None,) * shape).array())
    if stowaway:
        writer.add("stowaway", np.zeros(1, np.uint8))
    fields = GOOD | changes
    return writer.finish({name: value for name, value in fields.items() if value is not None})


def test_a_copy_made_by_hand_is_read(directory):
    assert SegmentReader(directory, by_hand(directory, {}), 8).n_rows == 24


@pytest.mark.parametrize(
    "changes",
    [
        {"n_docs": 0},
        {"n_docs": 11},
        {"n_docs": 1 << 32},
        {"n_docs": (1 << 32) - 1, "n_rows": (1 << 32) - 1},
        {"n_rows": 11},
        {"n_rows": 25},
        {"n_rows": 24.0},
        {"dim": 9},
        {"dim": 0},
        {"dim": True},
        {"largest_norm": float("nan")},
        {"largest_norm": float("inf")},
        {"largest_norm": -1.0},
        {"largest_norm": 1},
        {"centroids": "float16"},
        {"centroids": "none"},
        {"centroids": "float32"},
        {"nlist": 0},
        {"code_bytes": 0},
        {"nlist": 0, "code_bytes": 0},
        {"nlist": 5},
        {"nlist": 1 << 24},
        {"nlist": (1 << 24) + 1},
        {"code_bytes": 3},
        {"more": 1},
        {"dim": None},
        {"fit": None},
        {"fit": 1},
        {"fit": FIT | {"n_rows": 0}},
        {"fit": FIT | {"coarse_error": -1.0}},
        {"fit": FIT | {"code_error": float("nan")}},
        {"fit": FIT | {"imbalance": 1}},
        {"fit": FIT | {"more": 1.0}},
    ],
)
def test_fields_that_contradict_the_sections(directory, changes):
    with pytest.raises(CorruptFile, match=r"copy\.seg"):
        SegmentReader(directory, by_hand(directory, changes), 8)


@pytest.mark.parametrize(
    "name",
    ["centroid_offsets", "centroids", "centroid_scales", "list_offsets", "list_rows", "codes", "ids", "id_offsets",
     "id_hashes", "id_ordinals", "terms", "term_offsets", "term_keys", "posting_offsets", "postings",
     "doc_lengths", "document_dictionaries", "dictionary_offsets", "dictionary_ordinals", "documents",
     "document_offsets"],
)  # fmt: skip
def test_every_section_is_needed(directory, name):
    with pytest.raises(CorruptFile, match=rf"copy\.seg: a section is missing; expected {name}"):
        SegmentReader(directory, by_hand(directory, {}, without=[name]), 8)


def test_no_other_section_is_allowed(directory):
    with pytest.raises(CorruptFile, match=r"copy\.seg: unknown sections; found stowaway"):
        SegmentReader(directory, by_hand(directory, {}, stowaway=True), 8)


def test_codes_alone_and_no_codes_cannot_be(directory):
    record = by_hand(directory, {"centroids": "none", "nlist": 0, "code_bytes": 0})
    with pytest.raises(CorruptFile, match="contradict one another"):
        SegmentReader(directory, record, 8)
