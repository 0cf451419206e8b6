"""Spools of sections that are being written."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.formats.container.sections import CHUNK_BYTES
from quarry.formats.container.spool import Spool

PIECE = np.random.default_rng(0).integers(0, 256, 700_001, np.uint8).tobytes()


@pytest.mark.parametrize("n_pieces", [0, 1, 5, 6, 7, 20])
def test_what_was_written_is_read(directory, n_pieces):
    spool, whole = Spool(directory), PIECE * n_pieces
    for _ in range(n_pieces):
        spool.write(PIECE)
    assert spool.n_bytes == len(whole)
    assert (len(directory.names()) == 1) == (len(whole) >= 4 << 20)
    chunks = list(spool.chunks())
    assert b"".join(chunks) == whole
    assert all(len(chunk) == CHUNK_BYTES for chunk in chunks[:-1])
    for offset in {0, 1, len(whole) // 2, max(0, len(whole) - 800_000)}:
        for n_bytes in (0, 1, 800_000):
            assert spool.read(offset, min(n_bytes, len(whole) - offset)) == whole[offset : offset + n_bytes]
    spool.close()
    spool.close()
    assert directory.names() == []


def test_what_was_appended_last_is_dropped(directory):
    spool = Spool(directory)
    for n_pieces in (6, 1):  # of which the first 6 are spilled
        for _ in range(n_pieces):
            spool.append(PIECE)
        spool.spill()
    spool.append(b"dropped")
    spool.cut(7 * len(PIECE))
    spool.append(b"kept")
    assert spool.read(0, spool.n_bytes) == PIECE * 7 + b"kept"
    with pytest.raises(ValueError, match="4200006 bytes were written"):
        spool.cut(6 * len(PIECE) - 1)
    spool.close()


def test_writing_goes_on_after_reading(directory):
    spool = Spool(directory)
    numbers = np.arange(3_000_000, dtype=np.uint32)
    for low in range(0, len(numbers), 100_000):
        spool.write_array(numbers[low : low + 100_000])
        middle = low // 2
        np.testing.assert_array_equal(spool.read_array(np.uint32, middle, low), numbers[middle:low])
    assert spool.n_bytes == numbers.nbytes
    spool.close()


def test_arrays_are_written_in_row_order(directory):
    spool = Spool(directory)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    spool.write_array(array.T)
    spool.write(memoryview(b"ab"))
    assert spool.read(0, 50) == np.ascontiguousarray(array.T).tobytes() + b"ab"


def test_a_temporary_file_is_known_by_its_name(directory):
    spools = [Spool(directory) for _ in range(3)]
    for spool in spools:
        spool.write(bytes(4 << 20))
    names = directory.names()
    assert len(names) == 3
    assert all(name.startswith("spool-") and name.endswith(".tmp") for name in names)
    spools[0].close()
    assert len(directory.names()) == 2
