"""Columns hold the values of any metadata, in one segment or merged from several."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.indexes.format_samples import reread
from support.indexes.metadata_oracle import (
    KEYS,
    OPERATORS,
    TEXT_OPERATORS,
    found_at,
    metadata,
    same,
    scalars,
    type_of,
)

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.metadata.columns import MAX_PATHS, MetadataReader, MetadataWriter, merge_metadata
from quarry.formats.metadata.values import to_scalar

collections = st.lists(metadata, min_size=1, max_size=30)
few = settings(deadline=None, max_examples=40)
PATHS = [*KEYS, "a.a", "b.a", "c.é", "a.b.c", "."]


def stored(directory, documents, name="sample.seg", max_paths=MAX_PATHS):
    writer = MetadataWriter(directory, max_paths)
    for each in documents:
        writer.add(each)
    container = reread(directory, writer.write, name=name)
    writer.close()
    return MetadataReader(container, len(documents))


def marked(column, runs):
    return set(np.flatnonzero(column.find_docs(runs)).tolist())


COMPARED = {
    "number": OPERATORS,
    "text": OPERATORS | {name: holds for name, holds in TEXT_OPERATORS.items() if not name.startswith("$i")},
    "bool": {},
    None: {},
}


def check(reader, documents, operands):
    """Check that every column agrees with the metadata of the documents."""
    beyond = set() if reader.beyond is None else set(np.flatnonzero(reader.beyond).tolist())
    for path in PATHS:
        values = [found_at(each, path) for each in documents]
        having = {doc for doc, found in enumerate(values) if found}
        column = reader.column(path)
        if column is None:
            assert having <= beyond
            continue
        assert marked(column, [column.dictionary.everything]) == having
        for operand in operands:
            equal = {doc for doc, found in enumerate(values) if any(same(value, operand) for value in found)}
            agree(column, "eq", operand, equal)
            for name, compare in COMPARED[type_of(operand)].items():
                holding = {
                    doc
                    for doc, found in enumerate(values)
                    if any(type_of(value) == type_of(operand) and compare(value, operand) for value in found)
                }
                agree(column, name[1:], operand, holding)


def agree(column, operator, operand, expected):
    codes = column.dictionary.compare(operator, to_scalar(operand))
    sure, possible = marked(column, codes.certain), marked(column, codes.possible)
    assert sure <= expected <= sure | possible
    if operator != "contains" and (not isinstance(operand, str) or len(operand.encode()) < 61):
        assert not codes.possible


@few
@given(collections, st.lists(scalars, max_size=6))
def test_a_segment_holds_what_its_documents_have(documents, operands):
    with tempfile.TemporaryDirectory() as folder:
        check(stored(Directory(Path(folder)), documents), documents, operands)


@few
@given(st.lists(collections, min_size=1, max_size=4), st.lists(scalars, max_size=4), st.data())
def test_merged_segments_are_one_segment_of_what_is_kept(segments, operands, data):
    with tempfile.TemporaryDirectory() as folder:
        directory = Directory(Path(folder))
        most = data.draw(st.sampled_from([1, 3, MAX_PATHS]))
        readers = [stored(directory, docs, f"part{number}.seg", most) for number, docs in enumerate(segments)]
        keeps = [
            data.draw(st.none() | st.lists(st.booleans(), min_size=len(docs), max_size=len(docs)).map(np.array))
            for docs in segments
        ]
        merged = reread(directory, lambda out: merge_metadata(directory, readers, keeps, out, most))
        kept = [
            each
            for docs, keep in zip(segments, keeps, strict=True)
            for each, stays in zip(docs, keep if keep is not None else [True] * len(docs), strict=True)
            if stays
        ]
        check(MetadataReader(merged, len(kept)), kept, operands)


@few
@given(collections)
def test_merging_is_writing_anew(documents):
    """A merge writes the same bytes as a new segment of the same documents."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Directory(Path(folder))
        halves = [documents[: len(documents) // 2], documents[len(documents) // 2 :]]
        readers = [stored(directory, half, f"half{n}.seg") for n, half in enumerate(halves)]
        merged = reread(directory, lambda out: merge_metadata(directory, readers, [None, None], out))
        again = reread(
            directory,
            lambda container: merge_metadata(
                directory, [MetadataReader(merged, len(documents))], [None], container
            ),
            name="again.seg",
        )
        limited = Directory(directory.path, limits=WriterLimits(posting_bytes=300))
        spilled = stored(limited, documents, "spilled.seg")
        whole = stored(directory, documents, "whole.seg")
        assert merged.section_bytes() == again.section_bytes()
        for path in whole.paths:
            assert spilled.column(path).counts == whole.column(path).counts
            assert MetadataReader(merged, len(documents)).column(path).counts == whole.column(path).counts
