"""Containers are read back as written, and everything else is refused."""

from __future__ import annotations

import struct
import sys

import msgpack
import numpy as np
import pytest
import xxhash
from support.indexes.format_samples import (
    FILE_ID,
    container,
    n_descriptors,
    preamble,
    reread,
    section,
    store,
    write_file,
)

from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import BULK_ALIGNMENT, CHUNK_BYTES
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import (
    ChecksumMismatch,
    CorruptFile,
    FormatError,
    FormatTooNew,
    FormatTooOld,
    TruncatedFile,
)

ONE = {"fields": {}, "sections": {"a": section()}}
BIG = np.random.default_rng(0).integers(0, 256, 2 * CHUNK_BYTES + 5000, np.uint8)


def opened(directory, record=None):
    return ContainerReader(directory, "sample.seg", FileKind.SEGMENT, record)


def refused(directory, blob, error=CorruptFile, match=None):
    """Check that the file is refused with this type of error and a short message that names it."""
    store(directory, blob)
    with pytest.raises(FormatError, match=match) as caught:
        opened(directory)
    assert type(caught.value) is error
    assert caught.value.path.name == "sample.seg"
    assert len(str(caught.value)) < 500


def contents(**sections):
    return {"fields": {}, "sections": sections}


def flip(directory, offset, name="sample.seg"):
    with (directory.path / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "uint64", "float16", "float32"])
def test_arrays_of_every_type_come_back(directory, dtype):
    arrays = {
        "one": np.arange(100, dtype=dtype),
        "two": np.arange(60, dtype=dtype).reshape(12, 5),
        "four": np.arange(24, dtype=dtype).reshape(2, 3, 2, 2),
        "strided": np.arange(100, dtype=dtype)[::7],
        "none": np.empty((0, 3), dtype),
    }
    write_file(directory, arrays, {"n": 1})
    container = opened(directory)
    assert container.fields.integer("n", 0, 1) == 1
    for name, array in arrays.items():
        read = container.section(name, dtype, array.shape).array()
        assert read.dtype == array.dtype
        assert not read.flags.writeable or not read.size
        np.testing.assert_array_equal(read, array)
    container.refuse_unknown()
    assert container.section_bytes() == {name: array.nbytes for name, array in arrays.items()}
    assert container.n_bytes == (directory.path / "sample.seg").stat().st_size
    assert container.find_damage() == []


def test_sections_are_aligned_and_zeros_lie_between_them(directory):
    def write(writer):
        writer.add("a", np.ones(3, np.uint8))
        writer.add("bulk", np.ones(5, np.float32), BULK_ALIGNMENT)
        writer.add("empty", np.empty(0, np.uint8))
        writer.add("b", np.ones(1, np.uint64))

    container = reread(directory, write)
    blob = (directory.path / "sample.seg").read_bytes()
    places = {name: container.section(name, kind, (None,)).offset for name, kind in
              (("a", "uint8"), ("bulk", "float32"), ("empty", "uint8"), ("b", "uint64"))}  # fmt: skip
    assert places == {"a": 64, "bulk": 4096, "empty": 4160, "b": 4160}
    assert not any(blob[67:4096])
    assert not any(blob[4116:4160])


def test_the_bytes_are_those_of_the_specification(directory):
    """The bytes of a container are decoded here without code of the package."""
    record = write_file(directory, {"big": BIG, "small": np.arange(6, dtype="<u4").reshape(2, 3)}, {"n": 300})
    blob = (directory.path / "sample.seg").read_bytes()
    magic, kind, major, minor, order, file_id, flags = struct.unpack_from("<9sBHHI16s12s", blob)
    assert (magic, kind, major, minor) == (b"\x89QRRY\r\n\x1a\n", 2, 1, 2)
    assert (order, file_id, flags, blob[46:56]) == (0x0A0B0C0D, FILE_ID, bytes(12), bytes(10))
    assert int.from_bytes(blob[56:64], "little") == xxhash.xxh3_64_intdigest(blob[:56])
    offset, length, digest, total, end_id, end_magic = struct.unpack("<QQ16sQ16s8s", blob[-64:])
    assert (total, end_id, end_magic, offset + length) == (len(blob), FILE_ID, b"QRRYEND\n", len(blob) - 64)
    assert digest == xxhash.xxh3_128_digest(blob[offset : offset + length])
    table = msgpack.unpackb(blob[offset : offset + length])
    assert list(table) == ["fields", "sections"]
    assert table["fields"] == {"n": 300}
    big, small = table["sections"]["big"], table["sections"]["small"]
    assert (big["dtype"], big["shape"], big["offset"]) == ("uint8", [len(BIG)], 64)
    assert (small["dtype"], small["shape"]) == ("uint32", [2, 3])
    assert blob[64 : 64 + len(BIG)] == BIG.tobytes()
    assert struct.unpack_from("<6I", blob, small["offset"]) == tuple(range(6))
    assert big["chunks"] == b"".join(
        xxhash.xxh3_128_digest(BIG[low : low + (1 << 20)].tobytes()) for low in range(0, len(BIG), 1 << 20)
    )
    assert record == FileRecord("sample.seg", len(blob), FILE_ID, digest)


def test_only_chunks_that_are_touched_are_verified(directory):
    write_file(directory, {"big": BIG.reshape(-1, 8)})
    flip(directory, 64 + CHUNK_BYTES + 17)
    rows = opened(directory).section("big", np.uint8, (None, 8))
    per_chunk = CHUNK_BYTES // 8
    np.testing.assert_array_equal(rows.slice(0, per_chunk), BIG[:CHUNK_BYTES].reshape(-1, 8))
    sound = np.array([0, per_chunk - 1, 2 * per_chunk, 2 * per_chunk + 600])
    np.testing.assert_array_equal(rows.rows(sound), BIG.reshape(-1, 8)[sound])
    for touch in (
        rows.array,
        lambda: rows.slice(per_chunk - 1, per_chunk + 1),
        lambda: rows.rows(np.array([0, per_chunk + 2])),
    ):
        with pytest.raises(ChecksumMismatch, match=rf"sample\.seg: section big: .*offset {64 + CHUNK_BYTES} "):
            touch()
    assert rows.find_damaged_chunks() == [1]
    assert rows.slice(5, 5).shape == rows.rows(np.empty(0, np.int64)).shape == (0, 8)


def test_a_row_that_lies_in_two_chunks_touches_both(directory):
    array = BIG[: len(BIG) // 384 * 384].reshape(-1, 384)
    row = CHUNK_BYTES // 384
    for damaged in (CHUNK_BYTES - 1, CHUNK_BYTES):
        name = f"at-{damaged}.seg"
        write_file(directory, {"big": array}, name=name)
        flip(directory, 64 + damaged, name)
        rows = ContainerReader(directory, name, FileKind.SEGMENT).section("big", np.uint8, (None, 384))
        with pytest.raises(ChecksumMismatch):
            rows.rows(np.array([row]))
        with pytest.raises(ChecksumMismatch):
            rows.slice(row, row + 1)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.uint32, np.int64])
def test_ordinals_of_any_type_find_their_chunk(directory, dtype):
    write_file(directory, {"big": BIG[: 2 * CHUNK_BYTES].reshape(-1, 4096)})
    flip(directory, 64 + CHUNK_BYTES)
    rows = opened(directory).section("big", np.uint8, (None, 4096))
    assert len(rows.rows(np.array([255, 257 - 2], dtype))) == 2
    with pytest.raises(ChecksumMismatch):
        rows.rows(np.array([300], dtype))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_arrays_outlive_the_file(directory):
    write_file(directory, {"big": BIG, "small": np.arange(9)[1:].astype(np.uint8)})
    container = opened(directory)
    big = container.section("big", np.uint8, (None,)).array()
    container.close()
    container.close()
    (directory.path / "sample.seg").unlink()
    np.testing.assert_array_equal(big, BIG)


def test_a_section_is_read_by_type_and_shape(directory):
    write_file(directory, {"a": np.zeros((3, 4), np.float32)})
    container = opened(directory)
    for name, dtype, shape in (
        ("b", np.float32, (3, 4)),
        ("a", np.float16, (3, 4)),
        ("a", np.float32, (3,)),
        ("a", np.float32, (3, 5)),
        ("a", np.float32, (3, 4, 1)),
    ):
        with pytest.raises(CorruptFile, match=r"sample\.seg"):
            container.section(name, dtype, shape)
    assert container.section("a", np.float32, (None, 4)).array().shape == (3, 4)
    assert (container.has("a"), container.has("b")) == (True, False)


def test_unknown_sections_and_fields_are_refused(directory):
    write_file(directory, {"a": np.zeros(3, np.uint8), "stowaway": np.zeros(3, np.uint8)}, {"n": 1})
    container = opened(directory)
    container.section("a", np.uint8, (3,))
    with pytest.raises(CorruptFile, match=r"unknown fields; found .*n"):
        container.refuse_unknown()
    container.fields.integer("n", 0, 1)
    with pytest.raises(CorruptFile, match="unknown sections; found stowaway"):
        container.refuse_unknown()


def test_a_file_is_held_to_what_the_manifest_says(directory):
    record = write_file(directory, {"a": np.zeros(3, np.uint8)})
    assert opened(directory, record).record == record
    name, n_bytes, file_id, digest = record.name, record.n_bytes, record.file_id, record.digest
    for wrong, error in (
        (FileRecord(name, n_bytes + 1, file_id, digest), TruncatedFile),
        (FileRecord(name, n_bytes, bytes(16), digest), CorruptFile),
        (FileRecord(name, n_bytes, file_id, bytes(16)), CorruptFile),
    ):
        with pytest.raises(
            error, match=r"sample\.seg: (the file has another size than in|not the file that) the manifest"
        ):
            opened(directory, wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "../x.seg"), ("name", 1), ("n_bytes", 127), ("file_id", bytes(15)), ("digest", ""), ("more", 1)],
)
def test_a_record_is_strict(directory, field, value):
    record = write_file(directory, {})
    fields = record.to_fields()
    assert FileRecord.from_fields(Fields(fields, directory.path, "file")) == record
    with pytest.raises(CorruptFile):
        FileRecord.from_fields(Fields(fields | {field: value}, directory.path, "file"))


def test_a_container_made_by_hand_is_read(directory):
    store(directory, container(ONE, bytes(8) + bytes(56)))
    assert opened(directory).section("a", np.uint8, (8,)).array().tolist() == [0] * 8


@pytest.mark.parametrize("length", [1, 63, 64, 127])
def test_short_files(directory, length):
    refused(directory, container(ONE, bytes(64))[:length], TruncatedFile, "too short")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"magic": b"\x89PNG\r\n\x1a\n\0"}, CorruptFile),
        ({"version": (2, 0)}, FormatTooNew),
        ({"version": (65535, 65535)}, FormatTooNew),
        ({"version": (0, 1)}, FormatTooOld),
        ({"version": (0, 65535)}, FormatTooOld),
        ({"flags": 2}, FormatTooNew),
        ({"flags": 1 << 31}, FormatTooNew),
        ({"order": 0x0D0C0B0A}, CorruptFile),
        ({"reserved": bytes(9) + b"\1"}, CorruptFile),
        ({"kind": FileKind.MANIFEST}, CorruptFile),
        ({"kind": 200}, CorruptFile),
    ],
)
def test_preambles(directory, changes, error):
    refused(directory, container(ONE, bytes(64), preamble(**changes)), error)


@pytest.mark.parametrize("minor", [1, 65535])
def test_a_later_minor_version_is_read(directory, minor):
    store(directory, container(ONE, bytes(64), preamble(version=(1, minor))))
    assert opened(directory).section("a", np.uint8, (8,)).array().tolist() == [0] * 8


def test_a_preamble_with_a_wrong_checksum(directory):
    refused(directory, container(ONE, bytes(64), preamble()[:-1] + b"\0"), ChecksumMismatch)


def test_a_file_that_is_refused_is_closed(directory):
    whole = container(ONE, bytes(64))
    before = n_descriptors()
    for blob in (b"", whole[:50], whole + b"\0", container([], bytes(64)), container(ONE, bytes(128))):
        store(directory, blob)
        with pytest.raises(FormatError):
            opened(directory)
    assert n_descriptors() == before


@pytest.mark.parametrize(
    ("footer", "error"),
    [
        ({"magic": b"QRRYEND\r"}, TruncatedFile),
        ({"total": 1}, TruncatedFile),
        ({"total": (1 << 64) - 1}, TruncatedFile),
        ({"file_id": bytes(16)}, CorruptFile),
        ({"digest": bytes(16)}, ChecksumMismatch),
        ({"offset": 0}, CorruptFile),
        ({"offset": (1 << 64) - 1}, CorruptFile),
        ({"length": 1 << 63}, CorruptFile),
        ({"length": 0}, CorruptFile),
    ],
)
def test_footers(directory, footer, error):
    refused(directory, container(ONE, bytes(64), **footer), error)


def test_a_table_of_contents_over_the_preamble_is_refused(directory):
    blob = container(ONE, bytes(64))
    length = len(blob) - 64
    refused(directory, container(ONE, bytes(64), offset=0, length=length), CorruptFile, "out of bounds")


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"\xc0",
        b"\x80",
        [],
        {"fields": {}},
        {"sections": {}},
        {"fields": [], "sections": {}},
        {"fields": {}, "sections": []},
        {"fields": {}, "sections": {}, "more": {}},
        {"fields": {}, "sections": {b"a": section()}},
    ],
)
def test_tables_of_contents_that_are_none(directory, table):
    refused(directory, container(table, bytes(64)))


def test_a_table_of_contents_that_is_too_long(directory):
    refused(directory, container({"fields": {"x": bytes(17 << 20)}, "sections": {}}), match="out of bounds")
    writer = ContainerWriter(directory, "long.seg", FileKind.SEGMENT, FILE_ID)
    with pytest.raises(OverflowError):
        writer.finish({"x": bytes(17 << 20)})


@pytest.mark.parametrize(
    "entry",
    [
        {},
        [],
        section() | {"more": 1},
        section(dtype="float64"),
        section(dtype="O"),
        section(dtype=">u4"),
        section(shape=(1,) * 5),
        section(shape=()),
        section(shape=(-8,)),
        section(shape=(True,) * 4),
        section(shape=(8.0,)),
        section(shape=("8",)),
        section(shape=(1 << 49,)),
        section(shape=(1 << 48,) * 4),
        section(shape=(0, 1 << 48, 1 << 48), n_chunks=0),
        section(shape=(1 << 16, 1 << 16)),
        section(shape=(65,)),
        section(shape=(64, 2)),
        section(offset=63),
        section(offset=65),
        section(offset=0),
        section(offset=-64),
        section(offset=128),
        section(offset=1 << 63),
        section(offset=64.0),
        section(n_chunks=0),
        section(n_chunks=2),
        section() | {"shape": 8},
        section() | {"chunks": "x" * 16},
        section() | {"dtype": b"uint8"},
    ],
)
def test_sections_that_cannot_be(directory, entry):
    refused(directory, container(contents(a=entry), bytes(64)))


@pytest.mark.parametrize("name", ["", "../a", "a b", "x" * 100, "é"])
def test_names_of_sections_are_plain(directory, name):
    refused(directory, container(contents(**{name: section()}), bytes(64)), match="section")


@pytest.mark.parametrize(
    "sections",
    [
        {"a": section(), "b": section()},
        {"a": section(shape=(100,)), "b": section(offset=128)},
        {"a": section(shape=(200,)), "b": section(offset=128, shape=(8,))},
        {"a": section(offset=64 + 4096)},
        {"a": section(), "b": section(offset=64 + 4096 + 64)},
        {"a": section(shape=(0,), n_chunks=0, offset=64 + 4096)},
    ],
)
def test_sections_that_overlap_or_leave_a_hole(directory, sections):
    refused(
        directory, container(contents(**sections), bytes(8192 - 64)), match="overlaps another one or leaves a gap"
    )


def test_a_hole_before_the_table_of_contents(directory):
    refused(directory, container(ONE, bytes(128)), match="a gap")
    refused(directory, container(ONE, bytes(8)), match="a gap")
    refused(directory, container(contents(), bytes(64)), match="a gap")
    store(directory, container(contents()))
    opened(directory).refuse_unknown()


def test_too_many_sections(directory):
    sections = {f"s{number}": section(shape=(0,), n_chunks=0) for number in range(4097)}
    refused(directory, container(contents(**sections)), match="too many sections")
    del sections["s0"]
    store(directory, container(contents(**sections)))
    assert len(opened(directory).section_bytes()) == 4096


def test_findings_name_every_damage(directory):
    write_file(directory, {"big": BIG, "small": np.zeros(3, np.uint8)})
    assert opened(directory).find_damage() == []
    small = opened(directory).section("small", np.uint8, (3,)).offset
    for offset in (64, 64 + 2 * CHUNK_BYTES, 64 + len(BIG), small + 1, small + 60):
        flip(directory, offset)
    found = opened(directory).find_damage()
    assert [type(error) for error in found] == [
        ChecksumMismatch, ChecksumMismatch, CorruptFile, ChecksumMismatch, CorruptFile
    ]  # fmt: skip
    texts = [str(error) for error in found]
    assert all("sample.seg" in text for text in texts)
    assert f"section big: the chunk at offset {64 + 2 * CHUNK_BYTES}" in texts[1]
    assert f"padding from offset {64 + len(BIG)} to {small}" in texts[2]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_writer_that_fails_leaves_nothing_open(directory, error):
    def chunks():
        yield bytes(CHUNK_BYTES)
        raise error

    before = n_descriptors()
    writer = ContainerWriter(directory, "sample.seg", FileKind.SEGMENT, FILE_ID)
    assert n_descriptors() == before + 1
    with pytest.raises(error):
        writer.add_chunks("a", np.uint8, (2 * CHUNK_BYTES,), chunks())
    assert n_descriptors() == before
    writer.discard()
    assert directory.names() == []
