"""`check_files` reads every byte of a generation and reports all damage."""

from __future__ import annotations

import pytest
from support.indexes.format_samples import manifest, n_descriptors, quantizer, segment_record

from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatError
from quarry.formats.snapshot import check_files
from quarry.formats.vectors.quantizer import write_quantizer


@pytest.fixture
def committed(directory):
    made = quantizer()
    record = write_quantizer(directory, made)
    ids = [f"document {n}" for n in range(100)]
    segments = [
        segment_record(directory, ids, deleted=[1, 3], made_with=made, quantizer_name=record.name),
        segment_record(directory, ids[:5]),
    ]
    committed = manifest(segments, [record])
    committed.commit(directory)
    return committed


def flip(directory, name, offset):
    path = directory.path / name
    blob = bytearray(path.read_bytes())
    blob[offset] ^= 0x10
    path.write_bytes(blob)


def test_a_sound_index(directory, committed):
    before = n_descriptors()
    assert check_files(directory, committed) == []
    assert n_descriptors() == before


def test_one_error_for_each_damage(directory, committed):
    flip(directory, committed.segments[0].file.name, 64)
    flip(directory, committed.segments[0].file.name, 4096)
    flip(directory, committed.quantizers[0].name, 64)
    flip(directory, committed.segments[0].tombstones.name, 64)
    directory.delete(committed.segments[1].file.name)
    found = check_files(directory, committed)
    assert [(type(error), error.path.name) for error in found] == [
        (ChecksumMismatch, committed.quantizers[0].name),
        (ChecksumMismatch, committed.segments[0].file.name),
        (ChecksumMismatch, committed.segments[0].file.name),
        (ChecksumMismatch, committed.segments[0].tombstones.name),
        (CorruptFile, committed.segments[1].file.name),
    ]
    assert "section centroid_offsets" in str(found[1])
    assert "section centroids" in str(found[2])


@pytest.mark.parametrize("offset", [0, 30, 60, -1, -30, -64, -70])
def test_damage_outside_the_data(directory, committed, offset):
    for name in committed.file_names():
        flip(directory, name, offset)
    found = check_files(directory, committed)
    assert sorted(error.path.name for error in found) == sorted(committed.file_names())
    assert all(isinstance(error, FormatError) for error in found)


def test_a_damaged_table_of_contents_is_named_with_its_place(directory, committed):
    name = committed.segments[0].file.name
    blob = (directory.path / name).read_bytes()
    offset = int.from_bytes(blob[-64:-56], "little")
    flip(directory, name, offset + 9)
    (found,) = check_files(directory, committed)
    assert "the table of contents is damaged" in str(found)
    assert f"from offset {offset}" in str(found)


def test_padding_is_checked(directory, committed):
    name = committed.segments[0].file.name
    blob = (directory.path / name).read_bytes()
    flip(directory, name, 4095)
    assert blob[4095] == 0
    (found,) = check_files(directory, committed)
    assert "padding" in str(found)


def test_files_of_another_generation_are_not_its_own(directory, committed):
    segments = [segment_record(directory, ["x"])]
    committed.next(tuple(segments), ()).commit(directory)
    flip(directory, segments[0].file.name, 64)
    assert check_files(directory, committed) == []
