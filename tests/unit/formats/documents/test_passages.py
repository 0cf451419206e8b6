"""Documents of several passages: written, read back, and merged as if they had been written at once."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.format_samples import document

from quarry.formats.arrays import offsets_from_sizes
from quarry.formats.container.layout import PASSAGES_FEATURE, FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.passages import PassageTable
from quarry.formats.errors import CorruptFile
from quarry.formats.segment import SegmentReader, SegmentWriter
from quarry.formats.segment_merge import MergeInput, merge_segments, rewrite_documents
from quarry.formats.vectors.centroids import RoundedRows

DIM = 4
COUNTS = [1, 3, 2, 1, 1, 4]


def extent(doc: int, number: int, count: int) -> tuple[int, int]:
    return (0, 0) if count == 1 else (10 * number + doc, 10 * number + doc + 9)


def write(directory, counts, first=0) -> FileRecord:
    """Write documents of so many passages; passage p has 1 + p mod 2 rows and the term "p<p>"."""
    writer = SegmentWriter(directory, DIM, "float16")
    owners = offsets_from_sizes(counts)
    passages = np.arange(owners[-1])
    sizes = 1 + passages % 2
    rows = np.random.default_rng(first).standard_normal((sizes.sum(), DIM)).astype(np.float32)
    extents = [extent(d, number, count) for d, count in enumerate(counts) for number in range(count)]
    writer.add_many(
        [f"d{first + d}" for d in range(len(counts))],
        [document(first + d) for d in range(len(counts))],
        RoundedRows.of(rows, "float16"),
        sizes,
        [[f"p{p}", "all"] for p in passages],
        (np.array(counts), np.array(extents, np.uint32)),
    )
    record = writer.finish(None, 0, 0, keep_centroids=True)
    writer.close()
    return record


def read_back(reader: SegmentReader) -> list[tuple[object, ...]]:
    """Return for each document its id, and for each passage extent, terms and rows."""
    found = []
    of_passage: list[set[str]] = [set() for _ in range(reader.passages.n_passages)]
    for term in ["all", *(f"p{p}" for p in range(sum(COUNTS)))]:
        for passage in reader.postings.postings(term).docs.tolist():
            of_passage[passage].add(term)
    rows, _ = reader.centroids.stored_slice(0, reader.n_rows)
    for d in range(reader.n_docs):
        low, high = reader.passages.offsets[d : d + 2].tolist()
        parts = []
        for passage in range(low, high):
            start, stop = reader.centroids.offsets[passage : passage + 2].tolist()
            parts.append((frozenset(of_passage[passage]), rows[start:stop].tobytes()))
        found.append((reader.ids[d], reader.passages.extents(d), parts))
    return found


def test_passages_come_back(directory):
    record = write(directory, COUNTS)
    reader = SegmentReader(directory, record, DIM)
    table = reader.passages
    container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
    assert container.required_features == PASSAGES_FEATURE  # versions without passages refuse the file
    assert (table.is_divided, table.n_passages, reader.n_docs) == (True, 12, 6)
    assert np.diff(table.offsets).tolist() == COUNTS
    assert table.documents_of(np.arange(12)).tolist() == np.repeat(np.arange(6), COUNTS).tolist()
    assert table.extents(1) == [extent(1, number, 3) for number in range(3)]
    assert table.flags(np.array([0, 1, 0, 0, 1, 0], bool)).tolist() == [0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    assert reader.postings.postings("p5").docs.tolist() == [5]
    assert reader.postings.lengths.tolist() == [2] * 12


def test_documents_of_one_passage_need_no_table(directory):
    record = write(directory, [1, 1, 1])
    reader = SegmentReader(directory, record, DIM)
    assert not {"passage_offsets", "passage_extents"} & reader.section_bytes().keys()
    container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
    assert (container.required_features, container.fields.has("n_passages")) == (0, False)
    assert reader.passages.extents(2) is None
    assert reader.passages.documents_of(np.array([2, 0])).tolist() == [2, 0]


@pytest.mark.parametrize(
    "keep",
    [
        None,
        [[0, 1, 0, 1, 0, 1], [1, 1, 0]],
        [[1, 0, 0, 1, 1, 0], [1, 1, 1]],  # none of several passages is left
    ],
)
@pytest.mark.parametrize("rewrites", [False, True])
def test_a_merge_keeps_the_passages_of_documents(directory, keep, rewrites):
    readers = [
        SegmentReader(directory, write(directory, counts, first), DIM)
        for counts, first in [(COUNTS, 0), ([1, 1, 1], 10)]
    ]
    flags = [None, None] if keep is None else [np.array(each, bool) for each in keep]
    wanted = [
        each
        for reader, kept in zip(readers, flags, strict=True)
        for d, each in enumerate(read_back(reader))
        if kept is None or kept[d]
    ]
    inputs = [MergeInput(reader, kept) for reader, kept in zip(readers, flags, strict=True)]
    if rewrites:
        terms = {doc_id: [sorted(part) for part, _ in parts] for doc_id, _, parts in wanted}
        record = rewrite_documents(
            directory,
            inputs,
            0,
            0,
            True,
            lambda name, _, extents: ({"n": len(extents or [1])}, terms[name]),
            lambda _: b"",
        )
    else:
        record = merge_segments(directory, inputs, 0, 0, keep_centroids=True)
    merged = SegmentReader(directory, record, DIM)
    assert merged.passages.is_divided == any(len(parts) > 1 for _, _, parts in wanted)
    for (name, extents, parts), (kept_name, kept_extents, kept_parts) in zip(
        read_back(merged), wanted, strict=True
    ):
        whole = [(0, 0)] if merged.passages.is_divided else None
        assert (name, extents, parts) == (kept_name, kept_extents or whole, kept_parts) or (
            len(parts) == 1 and (name, parts) == (kept_name, kept_parts)
        )


@pytest.mark.parametrize("offsets", [[0, 0, 3], [1, 2, 3], [0, 2, 4], [0, 2, 1]])
def test_offsets_that_do_not_ascend_are_damage(directory, offsets):
    container = ContainerWriter(directory, "bad.seg", FileKind.SEGMENT, bytes(16))
    container.add("passage_offsets", np.array(offsets, np.uint64))
    container.add("passage_extents", np.zeros((3, 2), np.uint32))
    container.finish({})
    table = PassageTable(ContainerReader(directory, "bad.seg", FileKind.SEGMENT), 2, 3)
    with pytest.raises(CorruptFile, match="passage offsets do not ascend"):
        table.documents_of(np.array([0]))
