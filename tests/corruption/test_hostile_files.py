"""Malicious files with correct checksums are refused with a typed error, in bounded time and memory."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np
import pytest
import zstandard
from support.faults.memory_directory import MemoryDirectory
from support.faults.torture import figure
from support.indexes.small_index import (
    Container,
    changed_copy,
    current,
    everything,
    refusal,
    resign,
    search,
    signed,
)

from quarry.formats.errors import FormatError
from quarry.formats.snapshot import check_files

MAX_BYTES = 32 << 20  # of a reader before it refuses a file; the index has 0.1 MB
MAX_CPU_S = 1.0  # of a refusal
N_VALUES = figure(150, 100_000)
N_BYTES = figure(30, 40_000)


def harmed(directory, name, change):
    """Check that the file is refused when it is opened or read, within bounded memory."""
    resign(directory, name, change)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            everything(directory)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    assert caught.value.path == directory.path / name
    assert len(str(caught.value)) < 700


def a_segment(directory):
    return current(directory).segments[1].file.name


def a_quantizer(directory):
    return current(directory).quantizers[0].name


def test_signing_again_is_no_change(directory):
    truth = everything(directory)
    for name in sorted(current(directory).file_names()):
        blob = (directory.path / name).read_bytes()
        resign(directory, name, Container.sign)
        assert (directory.path / name).read_bytes() == blob
    assert everything(directory) == truth


def entry(name, **changes):
    """Return a change of the table of contents' entry for a section."""

    def change(part):
        part.contents["sections"][name] |= changes

    return change


def place(name, other, by=0):
    """Return a change that moves a section to the offset of another one."""

    def change(part):
        sections = part.contents["sections"]
        sections[name]["offset"] = sections[other]["offset"] + by
        part.sign()

    return change


def without(name):
    def change(part):
        del part.contents["sections"][name]

    return change


def copied(name, new):
    def change(part):
        part.contents["sections"][new] = part.contents["sections"][name]

    return change


def hole(part):
    part.data += bytes(4096)


@pytest.mark.parametrize(
    "change",
    [
        place("ids", "codes"),
        place("centroids", "centroid_offsets"),
        place("codes", "centroids", 64),
        place("list_offsets", "list_offsets", -64),
        place("documents", "documents", 64),
        place("documents", "documents", 1),
        copied("ids", "ids2"),
        copied("ids", "../ids"),
        without("ids"),
        without("centroid_scales"),
        without("document_dictionaries"),
        without("dictionary_ordinals"),
        hole,
        entry("codes", offset=1 << 40),
        entry("codes", offset=-64),
        entry("codes", offset=True),
        entry("codes", shape=[1 << 48, 1 << 48]),
        entry("codes", shape=[(1 << 63) - 1, 8]),
        entry("codes", shape=[(1 << 64) - 1, 0]),
        entry("codes", shape=[-1, 8]),
        entry("codes", shape=[]),
        entry("codes", shape=[1] * 1000),
        entry("codes", shape=None),
        entry("codes", dtype="object"),
        entry("codes", dtype="float64"),
        entry("codes", dtype="int8"),
        entry("codes", dtype="(1000000,)u1"),
        entry("codes", chunks=b""),
        entry("codes", chunks=bytes(16)),
        entry("codes", chunks=bytes(1 << 20)),
        entry("codes", more=1),
        entry("documents", shape=[0], chunks=b""),
        entry("ids", shape=[1 << 20]),
    ],
)
def test_tables_of_contents(directory, change):
    harmed(directory, a_segment(directory), change)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_docs", 0),
        ("n_docs", (1 << 32) - 1),
        ("n_docs", 149),
        ("n_rows", (1 << 32) - 1),
        ("n_rows", -1),
        ("dim", 1 << 16),
        ("dim", 31),
        ("nlist", 1 << 24),
        ("nlist", 0),
        ("code_bytes", 1 << 16),
        ("code_bytes", True),
        ("centroids", "float16"),
        ("centroids", ["int8"]),
        ("largest_norm", float("nan")),
        ("largest_norm", 1e300),
        ("unknown", {}),
    ],
)
def test_fields_of_a_segment(directory, name, value):
    harmed(directory, a_segment(directory), lambda part: part.contents["fields"].update({name: value}))


def put(name, value, at=slice(None)):
    """Return a change of values in a section."""

    def change(part):
        part.array(name)[at] = value
        part.sign()

    return change


def reordered(name):
    def change(part):
        part.array(name)[...] = part.array(name)[::-1].copy()
        part.sign()

    return change


def wrapped(name):
    """Return a change to decreasing offsets whose differences as signed numbers are all positive."""

    def change(part):
        offsets = part.array(name)
        low = len(offsets) - 3
        offsets[low : low + 2] = [1 << 63, (1 << 64) - 5]
        part.sign()

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("list_rows", 1 << 31, at=7),
        put("list_rows", 0),
        put("list_rows", 5, at=slice(0, 10)),
        put("list_offsets", 1 << 63, at=3),
        put("list_offsets", 0, at=-1),
        put("list_offsets", 1, at=0),
        reordered("list_offsets"),
        wrapped("list_offsets"),
        put("centroid_offsets", 0),
        put("centroid_offsets", 1 << 63, at=3),
        put("centroid_offsets", 1 << 20, at=-1),
        reordered("centroid_offsets"),
        wrapped("centroid_offsets"),
        put("id_offsets", 1 << 63, at=4),
        put("id_offsets", (1 << 64) - 1),
        put("id_offsets", 1 << 40, at=-1),
        reordered("id_offsets"),
        put("ids", 0xFF),
        put("id_ordinals", (1 << 32) - 1),
        put("id_ordinals", 150, at=9),
        put("document_offsets", 0),
        put("document_offsets", 1 << 63),
        put("document_offsets", 1 << 40, at=-1),
        reordered("document_offsets"),
        put("documents", 0),
        put("documents", 0xFF),
        put("document_dictionaries", 0xFF, at=slice(8, None)),
        put("dictionary_offsets", 1 << 40, at=-1),
        put("dictionary_ordinals", 1),
        put("dictionary_ordinals", 1 << 63, at=-1),
    ],
)
def test_numbers_in_a_segment(directory, change):
    harmed(directory, a_segment(directory), change)


def frame_of(inflated):
    """Return a change that replaces the frames of the first documents."""

    def change(part):
        packed = zstandard.ZstdCompressor(level=19).compress(inflated)
        offsets = part.array("document_offsets")
        taken = int(np.searchsorted(offsets, len(packed)))
        part.array("documents")[: len(packed)] = np.frombuffer(packed, np.uint8)
        offsets[1 : taken + 1] = np.maximum(offsets[1 : taken + 1], len(packed))
        offsets[1] = len(packed)
        part.sign()

    return change


def spans_of(packed):
    return b"\x94\xa1t\xa1x\x80\xc6" + len(packed).to_bytes(4, "big") + packed


@pytest.mark.parametrize(
    "change",
    [
        frame_of(bytes(65 << 20)),
        frame_of(b"\x94\xa0\xa0\x81\xa1a\xdd\x03\0\0\0" + b"\x90" * (3 << 24) + b"\xc4\0"),
        frame_of(b"\x94\xa0\xa0\x81\xa1a" + b"\xdd\0\x0f\0\0" * 1000),
        frame_of(b"\x94\xa1t\xa1x\x80\xa0"),
        frame_of(b"\xdf\xff\xff\xff\xff"),
        frame_of(b"\x91" * 100_000),
        frame_of(spans_of(b"\xff" * 100_000)),
        frame_of(spans_of(bytes((16 << 20) + 1))),
        frame_of(spans_of(b"\1\0")),
    ],
)
def test_frames_with_false_sizes(directory, change):
    resign(directory, a_segment(directory), change)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"document|spans"):
            everything(directory)
        assert tracemalloc.get_traced_memory()[1] < 160 << 20  # a document may have 64 MiB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["coarse", "encode_codebook"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.0])
def test_numbers_in_a_quantizer(directory, name, value):
    """Finite values are refused too, because the file is named by its content."""
    harmed(directory, a_quantizer(directory), put(name, value, at=3))


@pytest.mark.parametrize(
    ("name", "value"),
    [("nlist", 1 << 24), ("nlist", 15), ("M", 32), ("nbits", 8), ("dim", 1), ("input_dim", 64),
     ("by_residual", True), ("metric", "l2"), ("more", 0)],
)  # fmt: skip
def test_fields_of_a_quantizer(directory, name, value):
    harmed(directory, a_quantizer(directory), lambda part: part.contents["fields"].update({name: value}))


@pytest.mark.parametrize(
    ("fields", "deleted"),
    [({"n_deleted": 0}, None), ({"n_docs": 1 << 31}, None), ({"segment_id": bytes(16)}, None), ({}, 0), ({}, 255),
     ({"n_deleted": 150}, 255)],
)  # fmt: skip
def test_tombstones(directory, fields, deleted):
    def change(part):
        part.contents["fields"] |= fields
        if deleted is not None:
            part.array("deleted")[...] = deleted
            part.sign()

    name = current(directory).segments[1].tombstones.name
    harmed(directory, name, change)


def cheap_refusal(use, *arguments):
    """Return the refusal, if any, and check that it takes less than a second of CPU time."""
    started = time.process_time()
    found = refusal(use, *arguments)
    assert found is None or time.process_time() - started < MAX_CPU_S
    return found


def iterate_values(value, steps=()):
    """Yield the path of every value in nested maps and lists."""
    yield steps
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from iterate_values(item, (*steps, key))


POOL = [
    None, True, False, 0, 1, -1, 63, 64, 65, 127, 1 << 16, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 48, (1 << 63) - 1,
    (1 << 64) - 1, -(1 << 63), 0.0, 1.5, float("nan"), float("inf"), "", "int8", "float32", "float16", "uint64",
    "none", "../x", "codes", "x" * 5000, b"", bytes(16), bytes(32), [], [0], [1, 1], [800, 32], [1 << 40] * 4, {},
    {"a": 1}, {b"a": 1}, [[[[[]]]]], ...,
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["MANIFEST", "seg", "del", "quant"])
def test_any_value_in_the_place_of_any_other(sound, suffix, torture):
    """If any value of a table of contents is replaced, the index is read as before or a FormatError is raised."""
    files = contents(sound)
    name = sorted(name for name in files if suffix in name)[0]
    chance, n_refused = random.Random(suffix), 0

    def change(part):
        steps = chance.choice(list(iterate_values(part.contents)))
        part.contents = changed_copy(part.contents, steps, chance.choice(POOL if steps else POOL[:-1]))

    for _ in range(N_VALUES // 4):
        changed = MemoryDirectory(sound.path, signed(files, name, change))
        found = cheap_refusal(everything, changed)
        n_refused += found is not None
        assert found is None or found.path.parent == sound.path
    torture.add(files=N_VALUES // 4, refused=n_refused)
    assert n_refused > N_VALUES // 8


def contents(directory):
    """Return the files of the index by name."""
    return {name: (directory.path / name).read_bytes() for name in current(directory).file_names()}


@pytest.mark.parametrize("backend", ["auto", "exact", "scan"])
def test_any_bytes_in_the_sections(sound, backend, torture):
    """A search over random bytes with correct checksums ends with hits or with a FormatError."""
    files, chance, n_refused = contents(sound), random.Random(backend), 0

    def change(part):
        name = chance.choice(sorted(part.contents["sections"]))
        section = part.array(name).reshape(-1).view(np.uint8)
        for _ in range(chance.choice([1, 1, 4, 100])):
            section[chance.randrange(len(section))] = chance.randrange(256)
        part.sign()

    for number in range(N_BYTES // 3):
        changed = MemoryDirectory(sound.path, signed(files, a_segment(sound), change))
        if number % 10 == 0:
            assert check_files(changed, current(changed)) == []
        for use in ((everything, changed), (search, changed, backend)):
            found = cheap_refusal(*use)
            n_refused += found is not None
            assert found is None or found.path.parent == sound.path
    torture.add(files=N_BYTES // 3, refused=n_refused)
