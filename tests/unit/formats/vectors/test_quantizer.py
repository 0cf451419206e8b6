"""Quantizer files, which are named by a hash of their content."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from support.indexes.format_samples import quantizer

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import SEARCH_SETTINGS_FEATURE, FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting, read_quantizer, write_quantizer

KINDS = [
    quantizer(),
    quantizer(nbits=8, n_sub=3, dim=12),
    quantizer(apart=True),
    quantizer(input_dim=20),
    quantizer(apart=True, input_dim=5, by_residual=True),
    quantizer(nlist=1, dim=2, n_sub=2),
]


@pytest.mark.parametrize("made", KINDS)
def test_a_quantizer_comes_back(directory, made):
    read = read_quantizer(directory, write_quantizer(directory, made))
    for name in ("coarse", "encode_codebook", "score_codebook", "rotation"):
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name))
    assert read.by_residual == made.by_residual
    assert read.identity() == made.identity()
    assert (read.encode_codebook is read.score_codebook) == (made.encode_codebook is made.score_codebook)


def test_properties_derived_from_arrays():
    four, eight = quantizer(dim=8, n_sub=4), quantizer(dim=12, n_sub=3, nbits=8, nlist=9, input_dim=20)
    assert (four.nlist, four.nbits, four.code_bytes, four.input_dim) == (4, 4, 2, 8)
    assert (eight.nlist, eight.nbits, eight.code_bytes, eight.input_dim) == (9, 8, 3, 20)


def altered(array):
    array = array.copy()
    array.flat[3] = np.nextafter(array.flat[3], np.float32(9))
    return array


def test_any_other_part_is_another_identity():
    made = quantizer(apart=True, input_dim=8)
    others = [
        replace(made, **{name: altered(getattr(made, name))})
        for name in ("coarse", "encode_codebook", "score_codebook", "rotation")
    ]
    others += [
        replace(made, by_residual=True),
        replace(made, rotation=None),
        replace(made, score_codebook=made.encode_codebook),
        replace(made, encode_codebook=made.score_codebook, score_codebook=made.encode_codebook),
        replace(made, encode_codebook=made.encode_codebook.reshape(2, 16, 4), score_codebook=made.score_codebook),
        replace(made, coarse=made.coarse.reshape(2, 16)),
    ]
    identities = {made.identity(), *(other.identity() for other in others)}
    assert len(identities) == 1 + len(others)
    assert replace(made, coarse=np.asfortranarray(made.coarse)).identity() == made.identity()


def test_the_same_codebook_twice_is_the_same_quantizer(directory):
    made = quantizer()
    twice = replace(made, score_codebook=made.encode_codebook.copy())
    assert twice.identity() == made.identity()
    assert read_quantizer(directory, write_quantizer(directory, twice)).identity() == made.identity()


def test_the_same_quantizer_is_written_once(directory):
    made = quantizer()
    record = write_quantizer(directory, made)
    assert record.name == f"{made.identity()}.quant"
    assert record.file_id.hex() == made.identity()
    written = (directory.path / record.name).stat().st_mtime_ns
    assert write_quantizer(directory, quantizer()) == record
    assert directory.names() == [record.name]
    assert (directory.path / record.name).stat().st_mtime_ns == written


def test_two_at_once(directory, monkeypatch):
    """If one of two simultaneous writes fails, the file of the other stays, because an index may refer to it."""
    made, real, written = quantizer(), os.fsync, []

    def overtaken(_):
        monkeypatch.setattr(os, "fsync", real)
        written.append(write_quantizer(directory, made))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", overtaken)
    with pytest.raises(OSError, match="Input/output"):
        write_quantizer(directory, made)
    assert directory.names() == [written[0].name]
    assert read_quantizer(directory, written[0]).identity() == made.identity()


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_one_that_cannot_be_put_in_place(directory, monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(os, call, lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            write_quantizer(directory, quantizer())
    assert directory.names() == []


@pytest.mark.parametrize("damage", [lambda blob: b"", lambda blob: blob[:100], lambda blob: bytes(len(blob))])
def test_files_of_an_interrupted_writer_are_replaced(directory, damage):
    path = directory.path / write_quantizer(directory, quantizer()).name
    path.write_bytes(damage(path.read_bytes()))
    assert read_quantizer(directory, write_quantizer(directory, quantizer())).identity() == quantizer().identity()


def test_data_that_rotted_is_not_taken_over(directory):
    path = directory.path / write_quantizer(directory, quantizer()).name
    sound = path.read_bytes()
    path.write_bytes(sound[:70] + b"\xff" + sound[71:])
    write_quantizer(directory, quantizer())
    assert path.read_bytes() == sound


def test_the_length_of_decoded_vectors_is_a_part_of_the_identity(directory):
    made = replace(quantizer(), by_residual=True, unit_length=True)
    record = write_quantizer(directory, made)
    assert read_quantizer(directory, record).unit_length
    assert made.identity() != replace(made, unit_length=False).identity()
    assert not read_quantizer(directory, write_quantizer(directory, quantizer())).unit_length


@pytest.mark.parametrize(
    ("features", "fields"), [(1, {}), (1, {"unit_length": False}), (0, {"unit_length": True})]
)
def test_fields_must_agree_with_the_features_that_readers_must_support(directory, features, fields):
    with pytest.raises(CorruptFile):
        read_quantizer(directory, by_hand(directory, fields, required=features))


def test_a_file_under_the_name_of_another(directory):
    record = write_quantizer(directory, quantizer())
    (directory.path / "x.quant").write_bytes((directory.path / record.name).read_bytes())
    with pytest.raises(CorruptFile, match="does not match its name"):
        read_quantizer(directory, replace(record, name="x.quant"))


FIT = {"n_rows": 9, "coarse_error": 0.5, "code_error": 0.0, "imbalance": 1.0}


def by_hand(directory: Directory, changes=(), sections=(), features=0, required=0) -> FileRecord:
    """Write a file with other fields or sections under its correct name, as a hostile writer could."""
    made = quantizer(dim=8, n_sub=4, input_dim=8)
    fields = {"metric": "inner_product", "by_residual": False, "nlist": 4, "dim": 8, "input_dim": 8, "M": 4}
    fields |= {"nbits": 4, "fit": FIT} | dict(changes)
    arrays = {name: getattr(made, name) for name in ("coarse", "encode_codebook", "rotation")} | dict(sections)
    parts = Quantizer(*(arrays.get(name) for name in ("coarse", "encode_codebook")), None, None, False)
    encode = arrays["encode_codebook"]
    parts = replace(parts, score_codebook=arrays.get("score_codebook", encode), rotation=arrays.get("rotation"))
    name = f"{parts.identity()}.quant"
    writer = ContainerWriter(directory, name, FileKind.QUANTIZER, bytes(16), features, required)
    for section, array in arrays.items():
        if array is not None:
            writer.add(section, array)
    return writer.finish({key: value for key, value in fields.items() if value is not None})


def test_a_file_made_by_hand_is_read(directory):
    assert read_quantizer(directory, by_hand(directory)).input_dim == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "l2"},
        {"by_residual": 0},
        {"nlist": 5},
        {"nlist": 0},
        {"nlist": 1 << 40},
        {"dim": 7},
        {"dim": 4},
        {"dim": 1 << 17},
        {"M": 0},
        {"M": 3},
        {"M": 8},
        {"M": 16},
        {"nbits": 5},
        {"nbits": 8},
        {"nbits": 4.0},
        {"input_dim": 7},
        {"input_dim": 0},
        {"more": 1},
        {"nbits": None},
        {"fit": 1},
        {"fit": FIT | {"n_rows": 0}},
        {"fit": FIT | {"imbalance": float("inf")}},
    ],
)
def test_fields_that_contradict_the_sections(directory, changes):
    with pytest.raises(CorruptFile, match=r"\.quant: "):
        read_quantizer(directory, by_hand(directory, changes))


@pytest.mark.parametrize(
    "recall", [[0, 0.5, 0.4, 1], [-0.1, 0, 0, 1], [0, 0, 0, 1.01], [0, 0, np.nan, 1], [0, 0, 1]]
)
def test_recalls_that_cannot_be(directory, recall):
    read_quantizer(directory, write_quantizer(directory, quantizer(measured=True)))
    hostile = replace(quantizer(), probe_recall=np.array(recall, np.float32))
    with pytest.raises(CorruptFile, match="probe_recall"):
        read_quantizer(directory, write_quantizer(directory, hostile))


@pytest.mark.parametrize("rows", [0, -1, (1 << 32) + 1])
def test_candidate_rows_that_cannot_be(directory, rows):
    with pytest.raises(CorruptFile, match="candidate_rows"):
        read_quantizer(directory, write_quantizer(directory, replace(quantizer(), candidate_rows=rows)))


def test_search_settings_come_back(directory):
    made = quantizer(measured=True)
    assert len(made.search_settings) == 2
    assert read_quantizer(directory, write_quantizer(directory, made)).search_settings == made.search_settings


def setting(k=10, nprobe=1, rows=1):
    return SearchSetting(k, nprobe, rows)


@pytest.mark.parametrize(
    "settings",
    [
        [setting(k=0)],
        [setting(k=(1 << 20) + 1)],
        [setting(nprobe=0)],
        [setting(nprobe=5)],  # of four lists
        [setting(rows=0)],
        [setting(rows=(1 << 32) + 1)],
        [setting(rows=1.0)],
        [setting(k=True)],
        [setting(), setting()],
        [setting(k=20), setting()],
        [setting(k=k) for k in range(1, 18)],
    ],
)
def test_search_settings_that_cannot_be(directory, settings):
    with pytest.raises(CorruptFile, match="search_settings"):
        read_quantizer(
            directory, write_quantizer(directory, replace(quantizer(), search_settings=tuple(settings)))
        )


@pytest.mark.parametrize(
    "value", [[], None, 1, {"k": 1}, [1], [{"k": 1, "nprobe": 1}], [{"k": 1, "nprobe": 1, "rows": 1, "more": 1}]]
)
def test_a_field_that_holds_no_search_settings(directory, value):
    with pytest.raises(CorruptFile, match="search_settings"):
        read_quantizer(directory, by_hand(directory, {"search_settings": value}, features=SEARCH_SETTINGS_FEATURE))


def test_what_was_measured_later_is_no_part_of_the_name(directory):
    made = quantizer(measured=True)
    assert made.identity() == replace(made, candidate_rows=None, search_settings=()).identity()


def test_what_a_later_version_adds_is_ignored(directory):
    record = by_hand(directory, {"added_later": 1}, features=1 << 9)
    assert read_quantizer(directory, record) is not None


def zeros(*shapes):
    names = ("coarse", "encode_codebook", "rotation")
    return {name: np.zeros(shape, np.float32) for name, shape in zip(names, shapes, strict=True)}


def tainted(name, value):
    array = getattr(quantizer(dim=8, n_sub=4, input_dim=8), name).copy()
    array.flat[-1] = value
    return {name: array}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["coarse", "encode_codebook", "rotation", "score_codebook"])
def test_numbers_that_are_not_finite(directory, name, value):
    with pytest.raises(CorruptFile, match=f"section {name} has values that are not finite"):
        read_quantizer(directory, by_hand(directory, sections=tainted(name, value)))


@pytest.mark.parametrize(
    ("changes", "sections"),
    [
        ({}, {"coarse": np.zeros((4, 8), np.float16)}),
        ({}, {"coarse": np.zeros((4, 9), np.float32)}),
        ({}, {"coarse": np.zeros(32, np.float32)}),
        ({}, {"rotation": np.zeros((9, 8), np.float32)}),
        ({}, {"score_codebook": np.zeros((4, 16, 3), np.float32)}),
        ({"input_dim": 9}, {"rotation": None}),
        ({}, {"stowaway": np.zeros(3, np.uint8)}),
        ({"dim": 7, "M": 3}, zeros((4, 7), (3, 16, 2), (7, 8))),
        ({"dim": 6, "M": 3}, zeros((4, 6), (3, 16, 2), (6, 8))),
        ({"nbits": 6}, zeros((4, 8), (4, 64, 2), (8, 8))),
    ],
)
def test_sections_of_other_shapes(directory, changes, sections):
    with pytest.raises(CorruptFile, match=r"\.quant: "):
        read_quantizer(directory, by_hand(directory, changes, sections))


def test_a_file_of_another_kind(directory):
    writer = ContainerWriter(directory, "x.quant", FileKind.SEGMENT, bytes(16))
    record = writer.finish({})
    with pytest.raises(FormatError, match="wrong kind of file"):
        read_quantizer(directory, record)
    assert ContainerReader(directory, "x.quant", FileKind.SEGMENT).record == record
