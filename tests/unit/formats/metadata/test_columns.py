"""Limits of metadata columns, documents beyond them, and damage; tests/property tests the values."""

from __future__ import annotations

import tracemalloc

import msgpack
import numpy as np
import pytest
from support.indexes.format_samples import FILE_ID, n_descriptors, reread, write_file

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.container.layout import FileKind
from quarry.formats.container.packing import pack
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.metadata.columns import (
    MAX_PATH_BYTES,
    MAX_PATHS,
    MetadataReader,
    MetadataWriter,
    merge_metadata,
)
from quarry.formats.metadata.values import Kind, to_scalar, truncate_long_text


def written(directory, documents, name="sample.seg", max_paths=MAX_PATHS):
    writer = MetadataWriter(directory, max_paths)
    for each in documents:
        writer.add(each)
    container = reread(directory, writer.write, name=name)
    writer.close()
    return container


def stored(directory, documents, name="sample.seg", max_paths=MAX_PATHS):
    return MetadataReader(written(directory, documents, name, max_paths), len(documents))


def equal(reader, path, value):
    column = reader.column(path)
    return np.flatnonzero(column.find_docs(column.dictionary.compare("eq", to_scalar(value)).certain)).tolist()


def test_mappings_that_are_one_object_in_a_row(directory):
    one, other = {"a": 1}, {"a": 2}
    writer = MetadataWriter(directory)
    writer.add_many([one, one, other, {}, one])
    writer.add_many([one, other])
    reader = MetadataReader(reread(directory, writer.write), 7)
    writer.close()
    assert (equal(reader, "a", 1), equal(reader, "a", 2)) == ([0, 1, 4, 5], [2, 6])


def test_no_metadata_no_bytes(directory):
    container = written(directory, [{}, {}])
    assert container.section_bytes() == {}
    reader = MetadataReader(container, 2)
    assert (reader.paths, reader.beyond, reader.column("a")) == ([], None, None)
    merged = reread(directory, lambda new: merge_metadata(directory, [reader], [None], new), name="merged.seg")
    assert merged.section_bytes() == {}


@pytest.mark.parametrize(
    ("values", "n_bytes"),
    [
        ([1, 2, 3] * 100, 3 * 8 + 8 + 304),  # one byte per document
        ([*range(300)], 300 * 8 + 8 + 600),  # two bytes
        ([1] * 50 + [None] * 250, 8 + 8 + 304),
    ],
)
def test_columns_are_small(directory, values, n_bytes):
    container = written(directory, [{"n": value} for value in values])
    assert container.section_bytes()["metadata"] == n_bytes


def test_rare_paths_take_space_for_their_values_only(directory):
    container = written(directory, [{f"only {n}": True} for n in range(300)])
    assert container.section_bytes()["metadata"] == 300 * (8 + 8 + 8)


def test_paths_beyond_the_bounds(directory):
    long = "p" * (MAX_PATH_BYTES - 1) + "é"
    reader = stored(directory, [{"a": 1}, {long: 1}, {"b": 2, "c": 3}, {"a": [4], "d": 5}, {"b": 1}], max_paths=2)
    assert reader.paths == ["a", "b"]
    assert reader.beyond.tolist() == [False, True, True, True, False]
    assert (equal(reader, "a", 4), equal(reader, "b", 1)) == ([3], [4])


def test_a_path_of_a_complete_segment_cannot_be_kept_beside_an_incomplete_one(directory):
    """A path is dropped if the other segment may have it beyond its limit; its documents become incomplete."""
    incomplete = stored(directory, [{"a": 1}, {"b": 1}, {"c": 1}], "first.seg", max_paths=2)
    complete = stored(directory, [{"a": 1}, {"c": 1}, {}, {"c": 1}], "second.seg", max_paths=2)
    keeps = [None, np.array([True, True, True, False])]
    merged = reread(directory, lambda out: merge_metadata(directory, [incomplete, complete], keeps, out, 2))
    reader = MetadataReader(merged, 6)
    assert reader.paths == ["a", "b"]
    assert np.flatnonzero(reader.beyond).tolist() == [2, 4]
    assert equal(reader, "a", 1) == [0, 3]


def test_long_texts_are_distinguished_by_their_documents_only(directory):
    long = ["x" * 200, "x" * 64 + "é" * 40, "x" * 63 + "é" * 50]
    reader = stored(directory, [{"t": text} for text in [*long, "x" * 128]])
    column = reader.column("t")
    assert (column.counts[Kind.TEXT], column.counts[Kind.LONG_TEXT]) == (1, 2)
    codes = column.dictionary.compare("eq", to_scalar(long[0]))
    assert np.flatnonzero(column.find_docs(codes.possible)).tolist() == [0, 1, 2]
    assert not codes.certain
    assert equal(reader, "t", "x" * 128) == [3]
    assert truncate_long_text(long[2]) == "x" * 63


def test_numbers_beyond_64_bits_are_refused(directory):
    writer = MetadataWriter(directory)
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError, match="64-bit"):
            writer.add({"n": number})
    writer.close()


def test_memory_stays_bounded(directory):
    text = "text" * 20
    before = n_descriptors()
    writer = MetadataWriter(Directory(directory.path, limits=WriterLimits(posting_bytes=1 << 18)))
    tracemalloc.start()
    for number in range(8000):
        writer.add({"n": number, "t": f"{number} {text}"})
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    container = ContainerWriter(directory, "sample.seg", FileKind.SEGMENT, FILE_ID)
    writer.write(container)
    container.finish({})
    writer.close()
    assert taken < 12 << 20  # 4 MiB of the spool, 256 KiB of a run, and overhead
    assert n_descriptors() == before
    assert sorted(directory.names()) == ["sample.seg"]
    reader = MetadataReader(ContainerReader(directory, "sample.seg", FileKind.SEGMENT), 8000)
    assert equal(reader, "t", f"1234 {text}") == [1234]


DOCUMENTS = [{"n": number, "t": [f"text {number}", "all"]} for number in range(300)]


def harmed(directory, change):
    """Return a reader of changed sections; `change` gets the data and the unpacked directory."""
    container = written(directory, DOCUMENTS)
    data = container.section("metadata", np.uint8, (None,)).array().copy()
    contents = msgpack.unpackb(container.section("metadata_directory", np.uint8, (None,)).array().tobytes())
    data = change(data, contents) if data is not None else data
    sections = {"metadata": data, "metadata_directory": np.frombuffer(pack(contents), np.uint8)}
    write_file(directory, sections, name="harmed.seg")
    return MetadataReader(ContainerReader(directory, "harmed.seg", FileKind.SEGMENT), len(DOCUMENTS))


def read_all(reader):
    everyone, ordinals = np.ones(reader.n_docs, bool), np.arange(reader.n_docs, dtype=np.uint32)
    for path in reader.paths:
        column = reader.column(path)
        column.find_docs([column.dictionary.everything])
        column.dictionary.compare("eq", to_scalar("text 7"))
        column.dictionary.compare("gt", to_scalar(7))
        list(column.values(everyone, ordinals))


def entry(path, **changes):
    def change(data, contents):
        contents["columns"][path] |= changes
        return data

    return change


def replaced(contents_changes):
    def change(data, contents):
        contents.update(contents_changes)
        return data

    return change


def cut(data, contents):
    return data[:-8]


def huge_offset_of_a_text(data, contents):
    column = contents["columns"]["t"]
    data[column["offset"] : column["offset"] + 80] = 255
    return data


def documents_that_are_not_there(data, contents):
    column = contents["columns"]["t"]
    pairs = len(data) - column["n_pairs"] * 6 - 8
    data[pairs : pairs + 40] = 255
    return data


@pytest.mark.parametrize(
    "change",
    [
        entry("n", offset=4),
        entry("n", offset=1 << 40),
        entry("n", offset=-8),
        entry("n", offset=8.0),
        entry("n", dense=1),
        entry("n", n_pairs=1 << 60),
        entry("n", text_bytes=1 << 40),
        entry("n", more=1),
        entry("n", counts=[0, 0, 0, 0, 301, 0, 0]),
        entry("n", counts=[0] * 8),
        entry("n", counts=[2, 0, 0, 0, 300, 0, 0, 0]),
        entry("n", counts=[0, 0, 0, 0, -300, 0, 0, 0]),
        entry("n", counts=[0, 0, 0, 0, True, 0, 0, 0]),
        entry("n", counts=[0, 0, 0, 0, 1 << 40, 0, 0, 0]),
        entry("n", counts=[0, 0, 0, 0, 1 << 31, 0, 0, 0]),
        entry("n", counts=[0, 0, 0, 0, 260, 0, 0, 0]),
        entry("n", counts=None),
        replaced({"beyond": 1}),
        replaced({"beyond": {}}),
        replaced({"columns": []}),
        replaced({"columns": {"a": None}}),
        replaced({"more": 1}),
        cut,
        huge_offset_of_a_text,
        documents_that_are_not_there,
    ],
)
def test_damage_is_refused(directory, change):
    with pytest.raises(CorruptFile) as caught:
        read_all(harmed(directory, change))
    assert caught.value.path == directory.path / "harmed.seg"


def test_too_many_columns(directory):
    reader = stored(directory, [{str(number): 1 for number in range(MAX_PATHS + 1)}], max_paths=MAX_PATHS + 1)
    with pytest.raises(CorruptFile, match="too many columns"):
        _ = reader.paths


def test_a_section_alone(directory):
    write_file(directory, {"metadata": np.zeros(8, np.uint8)})
    with pytest.raises(CorruptFile, match="metadata_directory"):
        MetadataReader(ContainerReader(directory, "sample.seg", FileKind.SEGMENT), 1)


def test_any_byte_changed_is_an_error_or_an_answer(directory):
    """A changed byte leads to a FormatError or an answer, never to another error."""
    generator, refused = np.random.default_rng(0), 0
    for _ in range(80):
        place, value = int(generator.integers(1 << 30)), int(generator.integers(256))

        def change(data, contents, place=place, value=value):
            data[place % len(data)] = value
            return data

        try:
            read_all(harmed(directory, change))
        except FormatError:
            refused += 1
        for name in list(directory.names()):
            directory.delete(name)
    assert refused > 5
