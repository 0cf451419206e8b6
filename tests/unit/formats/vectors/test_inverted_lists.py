"""Inverted lists: rows and codes in the order of lists."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from support.indexes.format_samples import reread, write_file

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile
from quarry.formats.vectors.inverted_lists import InvertedLists, InvertedListsWriter

NLIST, CODE_BYTES = 7, 5


def random_rows(n_rows, nlist=NLIST):
    generator = np.random.default_rng(n_rows)
    return generator.integers(0, nlist, n_rows), generator.integers(0, 256, (n_rows, CODE_BYTES), np.uint8)


def written(directory, numbers, codes, nlist=NLIST, n_batches=3, **limits):
    writer = InvertedListsWriter(directory, nlist, CODE_BYTES, **limits)
    for part in np.array_split(np.arange(len(numbers)), n_batches):
        writer.add(numbers[part], codes[part])
    assert writer.n_rows == len(numbers)
    container = reread(directory, writer.write)
    writer.close()
    assert directory.names() == ["sample.seg"]
    return InvertedLists(container, nlist, len(numbers), CODE_BYTES)


def check_order(lists, numbers, codes):
    assert lists.offsets.tolist() == [0, *np.cumsum(np.bincount(numbers, minlength=len(lists.offsets) - 1))]
    rows = lists.rows()
    assert rows.dtype == np.uint32
    for number, (low, high) in enumerate(zip(lists.offsets[:-1], lists.offsets[1:], strict=True)):
        np.testing.assert_array_equal(rows[low:high], np.flatnonzero(numbers == number))
    np.testing.assert_array_equal(lists.codes(), codes[rows])


@pytest.mark.parametrize("n_rows", [1, 2, 1000])
def test_rows_ascend_within_each_list(directory, n_rows):
    numbers, codes = random_rows(n_rows)
    check_order(written(directory, numbers, codes), numbers, codes)


@pytest.mark.parametrize("part_bytes", [1, 4, 5, 300, 705, 4999, 5000])
@pytest.mark.parametrize("run_bytes", [1, 320, 1665])
def test_parts_and_runs_join_seamlessly(directory, part_bytes, run_bytes):
    numbers, codes = random_rows(200)
    lists = written(directory, numbers, codes, run_bytes=run_bytes, part_bytes=part_bytes)
    check_order(lists, numbers, codes)


def test_sorting_a_run_takes_a_copy_of_its_codes_and_no_more(directory):
    run_bytes, n_rows = 32 << 20, 1 << 15
    writer = InvertedListsWriter(directory, NLIST, 256, run_bytes=run_bytes)
    numbers, codes = np.arange(n_rows) % NLIST, np.zeros((n_rows, 256), np.uint8)
    tracemalloc.start()
    try:
        for _ in range(run_bytes // codes.nbytes):
            writer.add(numbers, codes.copy())
        assert len(writer.runs()) == 1
        assert tracemalloc.get_traced_memory()[1] < 3.5 * run_bytes
    finally:
        tracemalloc.stop()
        writer.close()


@pytest.mark.parametrize("used", [[0], [NLIST - 1], [2, 4]])
def test_lists_may_be_empty(directory, used):
    numbers = np.array(used)[np.arange(60) % len(used)]
    codes = random_rows(60)[1]
    check_order(written(directory, numbers, codes, part_bytes=50), numbers, codes)


def test_large_lists_wait_in_files(directory):
    numbers, codes = random_rows(1_200_000, nlist=300)
    check_order(written(directory, numbers, codes, nlist=300), numbers, codes)


def test_a_list_number_that_is_none(directory):
    writer = InvertedListsWriter(directory, NLIST, CODE_BYTES)
    for number in (-1, NLIST):
        with pytest.raises(ValueError, match="list number"):
            writer.add(np.array([number]), np.zeros((1, CODE_BYTES), np.uint8))


SECTIONS = {
    "list_offsets": np.array([0, 2, 2, 5], np.uint64),
    "list_rows": np.array([1, 3, 0, 2, 4], np.uint32),
    "codes": np.zeros((5, 2), np.uint8),
}


def opened(directory, **changes):
    write_file(directory, SECTIONS | changes)
    return InvertedLists(ContainerReader(directory, "sample.seg", FileKind.SEGMENT), 3, 5, 2)


def test_lists_made_by_hand_are_read(directory):
    assert opened(directory).rows().tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 2, 2, 5],
        [0, 2, 2, 4],
        [0, 3, 2, 5],
        [0, 2, 6, 5],
        [0, 2, 1 << 63, 5],
        [0, 1 << 63, (1 << 64) - 5, 5],
    ],
)
def test_list_offsets_ascend_to_the_number_of_rows(directory, offsets):
    with pytest.raises(CorruptFile, match=r"sample\.seg: list offsets"):
        opened(directory, list_offsets=np.array(offsets, np.uint64)).offsets.sum()


@pytest.mark.parametrize("rows", [[1, 3, 0, 2, 5], [1, 3, 0, 2, (1 << 32) - 1], [0, 0, 0, 0, 0], [1, 3, 0, 2, 2]])
def test_lists_hold_every_row_once(directory, rows):
    with pytest.raises(CorruptFile, match=r"sample\.seg: the inverted lists"):
        opened(directory, list_rows=np.array(rows, np.uint32)).rows()


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_of_other_shapes(directory, name):
    with pytest.raises(CorruptFile, match=f"section {name} has the wrong shape"):
        opened(directory, **{name: SECTIONS[name][:-1]})
