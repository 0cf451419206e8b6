"""Byte strings of any length in one section."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.indexes.format_samples import write_file

from quarry.formats.container.byte_strings import ByteStrings
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import CHUNK_BYTES
from quarry.formats.errors import ChecksumMismatch, CorruptFile

LENGTHS = [0, 5, CHUNK_BYTES - 5, 0, 3, CHUNK_BYTES + 10, CHUNK_BYTES - 13, 0]
ENDS = np.cumsum([0, *LENGTHS])
DATA = np.random.default_rng(0).integers(0, 256, ENDS[-1], np.uint8)


def opened(directory, data=DATA, offsets=ENDS, damaged=None):
    record = write_file(directory, {"strings": data, "starts": np.asarray(offsets).astype(np.uint64)})
    if damaged is not None:
        path = directory.path / record.name
        blob = bytearray(path.read_bytes())
        blob[64 + damaged] ^= 1
        path.write_bytes(blob)
    container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
    return ByteStrings(container, "strings", "starts", len(offsets) - 1)


def test_strings_are_returned_in_the_requested_order(directory):
    strings = opened(directory)
    expected = [DATA[low:high].tobytes() for low, high in pairwise(ENDS)]
    assert [strings[n] for n in range(len(LENGTHS))] == expected
    order = np.array([5, 0, 7, 5, 2])
    assert strings.many(order) == [expected[n] for n in order]
    assert strings.many(order[:0]) == []


@pytest.mark.parametrize(
    ("damaged", "touched"), [(0, {1}), (CHUNK_BYTES - 1, {2}), (CHUNK_BYTES, {4, 5}), (2 * CHUNK_BYTES + 2, {5})]
)
def test_only_chunks_that_a_string_lies_in_are_verified(directory, damaged, touched):
    """Strings are refused exactly if a chunk (1 MiB) that they overlap is damaged."""
    chunk, strings = damaged // CHUNK_BYTES, opened(directory, damaged=damaged)
    for n, (low, high) in enumerate(pairwise(ENDS)):
        if low < high and low // CHUNK_BYTES <= chunk <= (high - 1) // CHUNK_BYTES:
            with pytest.raises(ChecksumMismatch):
                strings.many(np.array([n]))
            touched = touched - {n}
        elif low < high:
            assert strings[n] == DATA[low:high].tobytes()
    assert not touched


@pytest.mark.parametrize(
    "offsets", [[0, 9, 3], [2, 1, 3], [0, 1, 1 << 63], [(1 << 64) - 1] * 3, [4, 4, 4], [0, 1 << 40, 3]]
)
def test_strings_outside_their_section(directory, offsets):
    strings = opened(directory, DATA[:3], np.array(offsets, np.uint64))
    with pytest.raises(CorruptFile, match=r"sample\.seg: item \d of section strings is out of bounds"):
        strings.many(np.arange(2))
