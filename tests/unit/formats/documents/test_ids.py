"""Lookups of ordinals by id and of ids by ordinal."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.format_samples import ODD_IDS, reread, write_file

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.ids import DocIds, DocIdsWriter, hash_id
from quarry.formats.errors import CorruptFile, FormatError


@pytest.fixture
def writer(directory):
    writer = DocIdsWriter(directory)
    yield writer
    writer.close()


def filled(writer, ids):
    for doc_id in ids:
        writer.add(doc_id)
    return writer


def read(directory, writer, **options):
    return DocIds(reread(directory, writer.write), len(writer), **options)


def last_of_each(ids):
    return {doc_id: ordinal for ordinal, doc_id in enumerate(ids)}


def test_odd_ids_come_back_exactly(directory, writer):
    ids = read(directory, filled(writer, ODD_IDS))
    assert [ids[ordinal] for ordinal in range(len(ODD_IDS))] == ODD_IDS
    assert [ids.ordinals_of(doc_id) for doc_id in ODD_IDS] == [[n] for n in range(len(ODD_IDS))]
    for absent in ("", "Plain", "plain ", "\udc80", "e", "\U0001f600"):
        assert ids.ordinals_of(absent) == []


def test_an_id_may_be_empty(directory, writer):
    ids = read(directory, filled(writer, ["", "a", ""]))
    assert [ids[n] for n in range(3)] == ["", "a", ""]
    assert ids.ordinals_of("") == [0, 2]


def test_a_lone_surrogate_is_found_nowhere(writer):
    filled(writer, ["a"])
    assert writer.ordinals_of("\ud800") == []
    with pytest.raises(UnicodeEncodeError):
        writer.add("\ud800")
    assert len(writer) == 1


REPEATED = ["a", "b", "a", "c", "bb", "a", "c", "ddd", "eeee", "bb", "f"]


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_later_document_supersedes(directory, writer, repeats):
    check_superseded(directory, writer, REPEATED * repeats)


def test_superseded_by_id_and_not_by_hash(directory):
    """Hashes have three values, because no two ids with the same XXH3-64 are known."""
    options = {"hash_of": lambda encoded: len(encoded) % 3}
    ids = REPEATED + [f"{n:0{1 + n % 7}}" for n in range(50)] + REPEATED
    check_superseded(directory, DocIdsWriter(directory, **options), ids, **options)


@pytest.mark.parametrize("sorted_hashes", [1, 10, 300])
def test_ids_sorted_in_parts(tmp_path, sorted_hashes):
    directory = Directory(tmp_path, limits=WriterLimits(sorted_hashes=sorted_hashes))
    writer = DocIdsWriter(directory)
    ids = REPEATED + [str(n) for n in range(700)] + REPEATED
    filled(writer, ids)
    assert writer.find_superseded().tolist() == sorted(set(range(len(ids))) - set(last_of_each(ids).values()))
    container = reread(directory, writer.write)
    hashes = container.section("id_hashes", np.uint64, (len(writer),)).array()
    ordinals = container.section("id_ordinals", np.uint32, (len(writer),)).array()
    given = np.array([hash_id(writer[n]) for n in range(len(writer))], np.uint64)
    assert ordinals.tolist() == np.argsort(given, kind="stable").tolist()
    assert hashes.tolist() == np.sort(given).tolist()


def check_superseded(directory, writer, ids, **options):
    filled(writer, ids)
    live = set(last_of_each(ids).values())
    superseded = writer.find_superseded()
    assert superseded.dtype == np.uint32
    assert superseded.tolist() == [n for n in range(len(ids)) if n not in live]
    everywhere = {doc_id: [n for n, other in enumerate(ids) if other == doc_id] for doc_id in ids}
    assert {doc_id: writer.ordinals_of(doc_id) for doc_id in ids} == everywhere
    stored = read(directory, writer, **options)
    assert {doc_id: stored.ordinals_of(doc_id) for doc_id in ids} == everywhere
    assert stored.ordinals_of("nobody") == writer.ordinals_of("nobody") == []


def test_an_empty_writer_has_no_ids(writer):
    assert writer.ordinals_of("a") == []
    assert writer.find_superseded().tolist() == []


def test_hashes_are_sorted(directory, writer):
    filled(writer, map(str, range(500)))
    container = reread(directory, writer.write)
    hashes = container.section("id_hashes", np.uint64, (500,)).array()
    ordinals = container.section("id_ordinals", np.uint32, (500,)).array()
    assert hashes.tolist() == sorted(hash_id(str(n)) for n in range(500))
    assert [hash_id(str(n)) for n in ordinals] == hashes.tolist()


def test_ids_that_spilled_to_a_file(directory, writer):
    ids = [f"{n:05}" + "x" * 4000 for n in range(1500)]
    filled(writer, [*ids, ids[7], ids[1400]])
    assert writer.find_superseded().tolist() == [7, 1400]
    assert writer.ordinals_of(ids[7]) == [7, 1500]


@pytest.mark.parametrize(
    "damage",
    [
        {"id_offsets": [0, 9, 3]},
        {"id_offsets": [2, 1, 3]},
        {"id_offsets": [0, 1, 1 << 63]},
        {"id_offsets": [(1 << 64) - 1, (1 << 64) - 1, (1 << 64) - 1]},
        {"id_ordinals": [2, 2]},
        {"id_ordinals": [(1 << 32) - 1] * 2},
        {"ids": [0xFF, 0xC3, 0x28]},
    ],
)
def test_numbers_that_lead_nowhere(directory, damage):
    good = {"ids": [97, 98, 99], "id_offsets": [0, 1, 3], "id_hashes": sorted([hash_id("a"), hash_id("bc")])}
    good["id_ordinals"] = [0, 1] if good["id_hashes"][0] == hash_id("a") else [1, 0]
    types = {"ids": np.uint8, "id_offsets": np.uint64, "id_hashes": np.uint64, "id_ordinals": np.uint32}
    for name, values in (("good.seg", good), ("bad.seg", good | damage)):
        write_file(directory, {key: np.array(values[key], types[key]) for key in types}, name=name)
    stored = DocIds(ContainerReader(directory, "good.seg", FileKind.SEGMENT), 2)
    assert [stored[0], stored[1], stored.ordinals_of("a"), stored.ordinals_of("bc")] == ["a", "bc", [0], [1]]
    stored = DocIds(ContainerReader(directory, "bad.seg", FileKind.SEGMENT), 2)
    with pytest.raises(CorruptFile, match=r"bad\.seg"):
        assert [stored[0], stored[1], stored.ordinals_of("a"), stored.ordinals_of("bc")]


def test_sections_of_other_lengths(directory, writer):
    filled(writer, "abc")
    container = reread(directory, writer.write)
    with pytest.raises(FormatError):
        DocIds(container, 4)
