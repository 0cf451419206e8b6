"""Files that are too short or too long are refused when the index is opened."""

from __future__ import annotations

import os
import random

import pytest
from support.faults.torture import figure, sample
from support.indexes.small_index import current, open_file

from quarry.formats.errors import FormatError
from quarry.formats.snapshot import Snapshot

N_LENGTHS = figure(10, 40)
USUAL = 20  # lengths of a file, besides those at its parts


def files(directory):
    for name in sorted(current(directory).file_names()):
        path = directory.path / name
        yield path, path.read_bytes()


def refused(directory, path):
    with pytest.raises(FormatError) as caught:
        Snapshot(directory)
    assert caught.value.path == path


def lengths(blob, chance):
    """Return the smallest and largest lengths, those around the table of contents, and a sample of all others."""
    contents = int.from_bytes(blob[-64:-56], "little")
    near = {*range(0, 70, 7), *range(len(blob) - 70, len(blob), 7), *range(contents - 3, contents + 3)}
    return sorted(near | set(chance.sample(range(len(blob)), min(len(blob), N_LENGTHS))))


def test_every_length_below_the_full_one(directory, torture):
    """A file of any length below the full one, by default of a sample of them, is refused when it is opened."""
    committed, chance = current(directory), random.Random(1)
    for path, blob in files(directory):
        shorter = {place - 1 for place in sample([""] * len(blob), USUAL, path.name)} | set(lengths(blob, chance))
        torture.add(lengths=len(shorter))
        for length in sorted(shorter, reverse=True):
            os.truncate(path, length)
            with pytest.raises(FormatError) as caught:
                open_file(directory, path.name, committed)
            assert caught.value.path == path
        path.write_bytes(blob)


def test_truncated_files_when_the_whole_index_is_opened(directory):
    chance = random.Random(0)
    for path, blob in files(directory):
        for length in lengths(blob, chance):
            path.write_bytes(blob[:length])
            refused(directory, path)
        path.write_bytes(blob)
    Snapshot(directory).close()


@pytest.mark.parametrize("n_bytes", [1, 64, 4096])
def test_extended_files(directory, n_bytes):
    for path, blob in files(directory):
        for tail in (bytes(n_bytes), blob[-n_bytes:], blob[:n_bytes], b"\xff" * n_bytes):
            path.write_bytes(blob + tail)
            refused(directory, path)
            path.write_bytes(tail + blob)
            refused(directory, path)
        path.write_bytes(blob + blob)
        refused(directory, path)
        path.write_bytes(blob)


def test_a_page_that_was_never_written(directory):
    """A file that has its length but contains zeros, as after a power loss, is refused."""
    for path, blob in files(directory):
        for low in (0, len(blob) - 4096 if len(blob) > 4096 else 0, len(blob) - 64):
            path.write_bytes(blob[:low] + bytes(min(4096, len(blob) - low)) + blob[low + 4096 :])
            refused(directory, path)
        path.write_bytes(bytes(len(blob)))
        refused(directory, path)
        path.write_bytes(blob)
