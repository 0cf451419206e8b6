"""One bit is enough: found at open in what describes the data, at first touch or by a check in the data."""

from __future__ import annotations

import random
from contextlib import contextmanager

import numpy as np
import pytest
from small_index import DIM, current, everything, open_file, refusal
from torture import figure

from engine import Engine
from formats.errors import FormatError
from formats.snapshot import Snapshot, check_files

N_WHOLE_OPENS = 3000
QUERIES = np.random.default_rng(3).standard_normal((2, DIM)).astype(np.float32)


@contextmanager
def flipped(path, bit):
    """A file with one bit of it turned over."""
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        byte = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte[0] ^ 1 << bit % 8]))
        yield
        file.seek(bit // 8)
        file.write(byte)


def bits_of_the_frame(path):
    """Every bit of preamble, table of contents and footer."""
    blob = path.read_bytes()
    contents = int.from_bytes(blob[-64:-56], "little")
    return [*range(64 * 8), *range(contents * 8, len(blob) * 8)]


def bits_of_the_data(path):
    """Every bit of the sections and of the zeros between them."""
    return range(64 * 8, int.from_bytes(path.read_bytes()[-64:-56], "little") * 8)


def test_the_index_is_what_these_tests_are_about(sound):
    assert check_files(sound, current(sound)) == []
    committed = current(sound)
    assert len(committed.file_names()) == 6
    assert 80_000 < sum((sound.path / name).stat().st_size for name in committed.file_names()) < 250_000
    assert all(segment.n_deleted for segment in committed.segments)


@pytest.mark.parametrize("suffix", ["MANIFEST", "seg", "del", "quant"])
def test_every_bit_that_describes_the_data(directory, suffix, torture):
    """Exhaustive: each flip is found when the file is opened, and the error names the file."""
    committed = current(directory)
    names = sorted(name for name in committed.file_names() if suffix in name)
    for name in names:
        path = directory.path / name
        open_file(directory, name, committed)
        torture.add(flips=len(bits_of_the_frame(path)))
        for bit in bits_of_the_frame(path):
            with flipped(path, bit), pytest.raises(FormatError) as caught:
                open_file(directory, name, committed)
            assert caught.value.path == path


def test_a_sample_of_them_when_the_whole_index_is_opened(directory):
    committed, chance = current(directory), random.Random(0)
    for name in sorted(committed.file_names()):
        path = directory.path / name
        for bit in chance.sample(bits_of_the_frame(path), N_WHOLE_OPENS // 6):
            with flipped(path, bit), pytest.raises(FormatError) as caught:
                Snapshot(directory)
            assert caught.value.path == path
    Snapshot(directory).close()


def data_bits(directory, torture, usual, seed):
    """Pairs of a file and a bit in its data: a sample of at least `usual`, or all of them."""
    paths = [directory.path / name for name in sorted(current(directory).file_names())]
    bits = [(path, bits_of_the_data(path)) for path in paths]
    n_bits = sum(len(of_file) for _, of_file in bits)
    torture.seed, n = seed, min(n_bits, figure(usual, n_bits))
    torture.add(flips=n, bits=n_bits)
    starts = np.cumsum([0] + [len(of_file) for _, of_file in bits])
    for place in sorted(random.Random(seed).sample(range(n_bits), n)):
        number = int(np.searchsorted(starts, place, "right")) - 1
        yield bits[number][0], bits[number][1][place - int(starts[number])]


def test_every_bit_of_the_data_is_found_by_a_check(directory, torture):
    committed = current(directory)
    for path, bit in data_bits(directory, torture, 5000, 1):
        with flipped(path, bit):
            found = check_files(directory, committed)
        assert [error.path for error in found] == [path]
    assert check_files(directory, committed) == []


def answers(directory):
    """What a search finds, by vectors and by words, and reads of what it found."""
    with Engine.open(directory.path, threads=1) as index:
        found = [*index.search_vectors(QUERIES, k=10), index.search("bador kofin mus", mode="lexical")]
        return [(hit.id, hit.score, hit.text, hit.metadata) for hits in found for hit in hits]


def test_a_search_is_right_or_says_what_is_damaged(directory, torture):
    truth = answers(directory)
    n_refused = 0
    for path, bit in data_bits(directory, torture, 400, 4):
        with flipped(path, bit):
            found = refusal(lambda: same(answers(directory), truth))
        n_refused += found is not None
        assert found is None or found.path == path
    torture.add(refused=n_refused)
    assert n_refused > 100


def same(found, truth):
    assert found == truth


def test_a_flipped_bit_never_changes_what_is_read(directory, torture):
    """Without a check: whoever touches the bit gets an error. Only zeros between sections are nobody's."""
    truth, committed, n_silent = everything(directory), current(directory), 0
    for path, bit in data_bits(directory, torture, 300, 2):
        with flipped(path, bit):
            found = refusal(lambda: same(everything(directory), truth))
            if found is None:
                (found,) = check_files(directory, committed)
                assert "padding" in str(found)
                n_silent += 1
            assert found.path == path
    assert n_silent < torture.counts["flips"] / 4
