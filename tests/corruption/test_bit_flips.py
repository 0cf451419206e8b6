"""A single flipped bit is found when the file is opened, when the data is first read, or by a check."""

from __future__ import annotations

import random
from contextlib import contextmanager

import numpy as np
import pytest
from support.faults.memory_directory import MemoryDirectory
from support.faults.torture import figure, sample
from support.indexes.small_index import DIM, current, everything, open_file, refusal

from quarry.engine import Engine
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.gpu.device import Device
from quarry.engine.index.partition import OpenPartition
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.view import View
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.formats.errors import FormatError
from quarry.formats.snapshot import Snapshot, check_files

N_WHOLE_OPENS = figure(120, 3000)
TEXT = "bador kofin mus"
RESOURCES = ViewResources(OpenOptions(threads=1), Device(), open_encoder())
QUERIES = np.random.default_rng(3).standard_normal((2, DIM)).astype(np.float32)


@contextmanager
def flipped(path, bit):
    """Flip one bit of a file within the block."""
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        byte = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte[0] ^ 1 << bit % 8]))
        yield
        file.seek(bit // 8)
        file.write(byte)


def bits_of_the_frame(blob):
    """Return every bit of preamble, table of contents and footer."""
    contents = int.from_bytes(blob[-64:-56], "little")
    return [*range(64 * 8), *range(contents * 8, len(blob) * 8)]


def bits_of_the_data(blob):
    """Return every bit of the sections and of the padding between them."""
    return range(64 * 8, int.from_bytes(blob[-64:-56], "little") * 8)


def contents(directory):
    """Return the files of the index by name, for changes."""
    return {name: bytearray((directory.path / name).read_bytes()) for name in current(directory).file_names()}


@pytest.fixture
def in_memory(sound):
    """Return a copy of the index in memory whose bits may be flipped."""
    return MemoryDirectory(sound.path, contents(sound))


@contextmanager
def turned(file, bit):
    """Flip one bit of a file in memory within the block."""
    file[bit // 8] ^= 1 << bit % 8
    yield
    file[bit // 8] ^= 1 << bit % 8


def test_the_index_is_what_these_tests_are_about(sound):
    assert check_files(sound, current(sound)) == []
    committed = current(sound)
    assert len(committed.file_names()) == 6
    assert 80_000 < sum((sound.path / name).stat().st_size for name in committed.file_names()) < 250_000
    assert all(segment.n_deleted for segment in committed.segments)


@pytest.mark.parametrize("suffix", ["MANIFEST", "seg", "del", "quant"])
def test_every_bit_that_describes_the_data(in_memory, suffix, torture):
    """Each flipped bit outside the data is found when the file is opened, and the error names the file.

    By default this is shown for a sample of the bits.
    """
    committed = current(in_memory)
    for name in sorted(name for name in in_memory.files if suffix in name):
        file, path = in_memory.files[name], in_memory.path / name
        open_file(in_memory, name, committed)
        bits = bits_of_the_frame(file)
        bits = [bits[place - 1] for place in sample([bit // 8 // 16 for bit in bits], 100, name)]
        torture.add(flips=len(bits))
        for bit in bits:
            with turned(file, bit):
                found = refusal(open_file, in_memory, name, committed)
            assert found is not None
            assert found.path == path


def test_a_sample_of_them_when_the_whole_index_is_opened(directory):
    committed, chance = current(directory), random.Random(0)
    for name in sorted(committed.file_names()):
        path = directory.path / name
        for bit in chance.sample(bits_of_the_frame(path.read_bytes()), N_WHOLE_OPENS // 6):
            with flipped(path, bit), pytest.raises(FormatError) as caught:
                Snapshot(directory)
            assert caught.value.path == path
    Snapshot(directory).close()


def data_bits(files, n, seed):
    """Yield (file name, bit of its data): n of them, or all."""
    bits = [(name, bits_of_the_data(files[name])) for name in sorted(files)]
    starts = np.cumsum([0] + [len(of_file) for _, of_file in bits])
    for place in sorted(random.Random(seed).sample(range(starts[-1]), min(n, starts[-1]))):
        number = int(np.searchsorted(starts, place, "right")) - 1
        yield bits[number][0], bits[number][1][place - int(starts[number])]


def counted_bits(files, torture, usual, seed):
    """Yield `usual` bits of the data, and all of them at the torture level; count them."""
    n_bits = sum(len(bits_of_the_data(blob)) for blob in files.values())
    torture.seed, n = seed, min(n_bits, figure(usual, n_bits))
    torture.add(flips=n, bits=n_bits)
    return data_bits(files, n, seed)


def test_every_bit_of_the_data_is_found_by_a_check(in_memory, torture):
    """A check of the damaged file finds every flipped bit."""
    committed = current(in_memory)
    for name, bit in counted_bits(in_memory.files, torture, 500, 1):
        with turned(in_memory.files[name], bit):
            (found,) = open_file(in_memory, name, committed).find_damage()
        assert found.path == in_memory.path / name
    assert check_files(in_memory, committed) == []


def test_a_check_of_the_index_finds_one_damaged_file(directory):
    committed = current(directory)
    for name, bit in data_bits(contents(directory), figure(60, 1500), 5):
        with flipped(directory.path / name, bit):
            (found,) = check_files(directory, committed)
        assert found.path == directory.path / name
    assert check_files(directory, committed) == []


def same(found, truth):
    assert found == truth


def read(answers_of_queries):
    """Return everything of some hits that a caller can read."""
    return [(hit.id, hit.score, hit.text, hit.metadata) for hits in answers_of_queries for hit in hits]


def answers(directory, before=None, changed=""):
    """Search by vectors and by words; return the view and what can be read of its hits.

    A view made from that of the valid index, `before`, reuses everything that was not read from the file
    `changed`.
    """
    segments = before.partitions[0].segments if before else ()
    known = [segment for segment in segments if changed not in made_of(segment)]
    snapshot = Snapshot(directory, known)
    opened = before.partitions[0] if before else None
    partition = OpenPartition("index", snapshot, RESOURCES.options, RESOURCES.device, opened)
    view = View(directory.path, [partition], RESOURCES)
    by_words = view.search([TEXT], SearchOptions(k=10, mode="lexical"))
    return view, read([*view.search(None, SearchOptions(k=10, mode="dense"), QUERIES), *by_words])


def made_of(segment):
    """Return the names of the files that an open segment was read from."""
    record = segment.record
    return {record.file.name, record.tombstones.name, record.quantizer}


def test_a_search_is_right_or_says_what_is_damaged(in_memory, torture):
    """A search is right or names the damaged file, of which nothing is reused from an earlier view."""
    (sound, truth), n_refused = answers(in_memory), 0
    for name, bit in counted_bits(in_memory.files, torture, 80, 4):
        with turned(in_memory.files[name], bit):
            found = refusal(lambda name=name: same(answers(in_memory, sound, name)[1], truth))
        n_refused += found is not None
        assert found is None or found.path == in_memory.path / name
    assert answers(in_memory)[1] == truth
    torture.add(refused=n_refused)
    assert n_refused > 8


def test_a_search_of_an_index_on_disk(directory):
    def found():
        with Engine.open(directory.path, threads=1) as index:
            return [*index.search_vectors(QUERIES, k=10), index.search(TEXT, mode="lexical")]

    truth = found()
    assert read(truth) == answers(directory)[1]
    for name, bit in data_bits(contents(directory), figure(15, 200), 6):
        with flipped(directory.path / name, bit):
            error = refusal(lambda: same(read(found()), read(truth)))
        assert error is None or error.path == directory.path / name


def test_a_flipped_bit_never_changes_what_is_read(in_memory, torture):
    """Reading a flipped bit raises an error even without verification; only padding is never read."""
    truth, committed, n_silent = everything(in_memory), current(in_memory), 0
    torture.seed, n_flips = 2, figure(100, 20_000)
    for name, bit in data_bits(in_memory.files, n_flips, 2):
        with turned(in_memory.files[name], bit):
            found = refusal(lambda: same(everything(in_memory), truth))
            if found is None:
                (found,) = check_files(in_memory, committed)
                assert "padding" in str(found)
                n_silent += 1
            assert found.path == in_memory.path / name
    torture.add(flips=n_flips, in_padding=n_silent)
    assert n_silent < n_flips / 4
