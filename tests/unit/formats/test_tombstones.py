"""Tombstones: one bit for each document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.indexes.format_samples import write_file

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.tombstones import read_tombstones, write_tombstones

ID = b"segment of tests"


@pytest.mark.parametrize("n_docs", [1, 7, 8, 9, 64, 1001])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_flags_come_back(directory, n_docs, share):
    flags = np.random.default_rng(0).random(n_docs) < share
    record = write_tombstones(directory, ID, flags)
    read = read_tombstones(directory, record, ID, n_docs)
    assert read.dtype == bool
    np.testing.assert_array_equal(read, flags)


def test_the_bits(directory):
    record = write_tombstones(directory, ID, np.isin(np.arange(12), [0, 3, 11]))
    assert record.name == f"{record.file_id.hex()}.del"
    container = ContainerReader(directory, record.name, FileKind.TOMBSTONES, record)
    assert container.section("deleted", np.uint8, (2,)).array().tolist() == [0b0000_1001, 0b0000_1000]


def test_every_file_has_a_name_of_its_own(directory):
    first, second = (write_tombstones(directory, ID, np.ones(3, bool)) for _ in range(2))
    assert first.name != second.name
    assert first.digest == second.digest


def test_tombstones_of_another_segment(directory):
    record = write_tombstones(directory, ID, np.ones(8, bool))
    for segment_id, n_docs in ((bytes(16), 8), (ID, 7), (ID, 9), (ID, 1 << 31)):
        with pytest.raises(FormatError, match=record.name):
            read_tombstones(directory, record, segment_id, n_docs)


@pytest.mark.parametrize(
    ("fields", "deleted"),
    [
        ({"n_deleted": 2}, [1]),
        ({"n_deleted": 0}, [1]),
        ({"n_deleted": -1}, [1]),
        ({"n_deleted": 6}, [255]),
        ({}, [1 << 5]),
        ({"n_deleted": 2}, [1 | 1 << 7]),
        ({}, [1, 0]),
        ({}, []),
        ({"n_docs": 6}, [1]),
        ({"n_docs": 5.0}, [1]),
        ({"segment_id": b"short"}, [1]),
        ({"more": 1}, [1]),
    ],
)
def test_tombstones_that_do_not_add_up(directory, fields, deleted):
    good = {"segment_id": ID, "n_docs": 5, "n_deleted": 1}
    write_file(directory, {"deleted": np.array([1], np.uint8)}, good, FileKind.TOMBSTONES, "good.del")
    record = ContainerReader(directory, "good.del", FileKind.TOMBSTONES).record
    assert read_tombstones(directory, record, ID, 5).tolist() == [True, False, False, False, False]
    bad = write_file(
        directory, {"deleted": np.array(deleted, np.uint8)}, good | fields, FileKind.TOMBSTONES, "x.del"
    )
    with pytest.raises(CorruptFile, match=r"x\.del"):
        read_tombstones(directory, bad, ID, 5)
    with pytest.raises(FormatError):
        read_tombstones(directory, replace(record, name="x.del"), ID, 5)
