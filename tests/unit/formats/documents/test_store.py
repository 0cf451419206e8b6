"""Stored texts and metadata, one frame per document."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import msgpack
import numpy as np
import pytest
import zstandard
from support.indexes.format_samples import document, reread, write_file

from quarry.formats.container.background import work_at_once
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.store import DocStore, DocStoreWriter, StoredDocument
from quarry.formats.errors import CorruptFile

METADATA = {"n": -(1 << 63), "m": (1 << 63) - 1, "x": 0.1, "ok": True, "none": None, "é": ["ü", {"deep": [[]]}]}
KINDS = {"documents": np.uint8, "document_offsets": np.uint64, "document_dictionaries": np.uint8}
WORDS = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew"]


def stored(directory, documents):
    writer = DocStoreWriter(directory)
    for each in documents:
        writer.add(each)
    container = reread(directory, writer.write)
    writer.close()
    return DocStore(container, len(documents)), container


def by_hand(directory, frames, dictionary=b"", offsets=None):
    """Return a store of the given frames."""
    ends = np.cumsum([0] + [len(frame) for frame in frames])
    sections = {
        "documents": np.frombuffer(b"".join(frames), np.uint8),
        "document_offsets": np.array(ends if offsets is None else offsets, np.uint64),
        "document_dictionaries": np.frombuffer(dictionary, np.uint8),
        "dictionary_offsets": np.array([0, len(dictionary)], np.uint64),
        "dictionary_ordinals": np.array([0, len(ends if offsets is None else offsets) - 1], np.uint64),
    }
    write_file(directory, sections)
    return DocStore(
        ContainerReader(directory, "sample.seg", FileKind.SEGMENT), len(sections["document_offsets"]) - 1
    )


def frame(*fields):
    return zstandard.ZstdCompressor().compress(msgpack.packb(list(fields)))


def refused(store, number=0, match=None):
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile, match=match) as caught:
            store[number]
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "sample.seg" in message
    assert len(message) < 400


def varied(n_documents):
    generator = np.random.default_rng(0)
    return [
        document(
            n, text=" ".join(generator.choice(WORDS, 50)), metadata=METADATA | {"n": n}, spans=bytes([n % 256])
        )
        for n in range(n_documents)
    ]


@pytest.mark.parametrize("n_documents", [1, 63, 64, 700])
def test_every_document_comes_back_in_any_order(directory, n_documents):
    documents = varied(n_documents)
    store, container = stored(directory, documents)
    for number in np.random.default_rng(1).permutation(n_documents).tolist():
        assert store[number] == documents[number]
    assert (container.section_bytes()["document_dictionaries"] > 0) == (n_documents >= 64)


def test_odd_texts(directory):
    documents = [
        StoredDocument("", "", {}, b""),
        StoredDocument("\0", "\U0001f600" * 100_000, {}, bytes(100_000)),
        StoredDocument("t", "x" * (9 << 20), {"a": {}}, b"\xff"),
    ]
    store, _ = stored(directory, documents)
    assert [store[n] for n in range(3)] == documents


def test_documents_beyond_the_sample_use_its_dictionary(directory):
    documents = varied(100) + [document(n, text=f"{n} " + "long " * 20_000) for n in range(60)] + varied(300)
    store, container = stored(directory, documents)
    assert container.section_bytes()["document_dictionaries"] > 0
    assert all(store[n] == documents[n] for n in range(len(documents)))


def test_documents_that_are_one_object_in_a_row(directory):
    one, other = StoredDocument("a", "text", {"n": 1}, b""), StoredDocument("", "other", {}, b"")
    documents = [one, one, other, other, one, StoredDocument("a", "text", {"n": 2}, b""), one]
    writer = DocStoreWriter(directory)
    writer.add_many(documents)
    writer.add_many(documents[4:])
    container = reread(directory, writer.write)
    writer.close()
    read = DocStore(container, 10)
    assert [read[number] for number in range(10)] == documents + documents[4:]


def small_samples(directory):
    """Return the same folder, whose writers train their dictionaries after 20 kB."""
    return Directory(directory.path, limits=WriterLimits(sample_bytes=20_000))


def test_frames_made_by_other_threads_follow_in_the_order_of_their_documents(directory):
    documents, directory = iter(varied(900)), small_samples(directory)
    held = threading.Event()
    n_started = 0
    with ThreadPoolExecutor(2) as pool:

        def start(work, item):
            nonlocal n_started
            n_started += 1
            if n_started == 1:  # the first group takes longer than the second one
                return pool.submit(lambda: held.wait(10) and work(item))
            future = pool.submit(work, item)
            if n_started == 2:
                future.result()
                held.set()
            return future

        there = DocStoreWriter(directory, start=start)
        here = DocStoreWriter(directory)
        while group := list(islice(documents, 100)):
            there.add_many(group)
            here.add_many(group)
        assert [each.metadata["n"] for each in there.documents()] == list(range(900))
        containers = [reread(directory, each.write, name=f"{n}.seg") for n, each in enumerate((there, here))]
    assert n_started > 2
    for name in ("documents", "document_offsets", "document_dictionaries"):
        sections = [each.section(name, kind, (None,)).array() for each in containers for kind in (KINDS[name],)]
        np.testing.assert_array_equal(*sections)
    there.close()
    here.close()


def test_frames_that_another_thread_could_not_make(directory):
    """They are made by the writer itself."""
    directory, documents = small_samples(directory), varied(300)

    def start(work, item):
        return work_at_once(lambda _: (_ for _ in ()).throw(MemoryError), item)

    writer = DocStoreWriter(directory, start=start)
    writer.add_many(documents[:200])
    writer.add_many(documents[200:])
    container = reread(directory, writer.write)
    writer.close()
    read = DocStore(container, 300)
    assert [read[number] for number in range(300)] == documents


def test_closing_leaves_out_what_was_not_begun(directory):
    directory = small_samples(directory)
    held, began = threading.Event(), []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(held.wait, 10)
        writer = DocStoreWriter(
            directory, start=lambda work, item: pool.submit(lambda: began.append(1) or work(item))
        )
        writer.add_many(varied(200))
        writer.close()
        held.set()
    assert not began
    assert not directory.names()


def test_documents_too_alike_or_too_short_for_a_dictionary(directory):
    for documents in ([document(0)] * 200, [StoredDocument("", "", {}, b"")] * 200):
        store, container = stored(directory, documents)
        assert store[199] == documents[199]
        container.close()
        del store
        (directory.path / "sample.seg").unlink()


def test_a_document_that_could_not_be_read_is_not_written(directory):
    writer = DocStoreWriter(directory)
    with pytest.raises(OverflowError, match="can be stored"):
        writer.add(document(text="x" * (64 << 20)))
    writer.close()


def test_many_threads_read_at_once(directory):
    documents = varied(300)
    store, _ = stored(directory, documents)
    wrong = []

    def read(seed):
        order = np.random.default_rng(seed).permutation(300).tolist()
        wrong.extend(number for number in order if store[number] != documents[number])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("offsets", [[0, 0], [5, 4], [0, 1 << 40], [(1 << 64) - 1, 1], [1 << 63, 1 << 63]])
def test_offsets_that_lead_nowhere(directory, offsets):
    refused(by_hand(directory, [frame("t", "x", {}, b"")], offsets=offsets))


def test_a_frame_made_by_hand_is_read(directory):
    assert by_hand(directory, [frame("t", "x", {"a": 1}, b"s")])[0] == StoredDocument("t", "x", {"a": 1}, b"s")


GOOD = frame("title", "text " * 100, {}, b"")
STREAM = zstandard.ZstdCompressor().compressobj()
NO_SIZE = STREAM.compress(msgpack.packb(["t", "x", {}, b""])) + STREAM.flush()
SKIPPABLE = b"\x50\x2a\x4d\x18\4\0\0\0abcd"


@pytest.mark.parametrize(
    "bad",
    [
        GOOD[:-1],
        GOOD[: len(GOOD) // 2],
        GOOD + b"\0",
        GOOD + GOOD,
        GOOD + SKIPPABLE,
        SKIPPABLE + GOOD,
        SKIPPABLE,
        NO_SIZE,
        b"\0" + GOOD,
        b"text",
        GOOD[:4],
        zstandard.ZstdCompressor().compress(b""),
    ],
)
def test_damaged_frames(directory, bad):
    refused(by_hand(directory, [bad]))


@pytest.mark.parametrize("size", [1, 1 << 20, 64 << 20, (64 << 20) + 1, 1 << 40, (1 << 64) - 3])
def test_a_frame_that_states_another_size(directory, size):
    """A frame whose header has a wrong size is refused: magic, descriptor, 8 bytes of size, then a raw block."""
    body = msgpack.packb(["t", "x", {}, b""])
    block = (len(body) << 3 | 1).to_bytes(3, "little") + body
    head = bytes.fromhex("28b52ffd e0")
    honest = by_hand(directory, [head + len(body).to_bytes(8, "little") + block])
    assert honest[0].text == "x"
    del honest
    gc.collect()  # the file is closed, so that Windows deletes it
    (directory.path / "sample.seg").unlink()
    refused(by_hand(directory, [head + size.to_bytes(8, "little") + block]))


def test_a_frame_of_a_huge_document(directory):
    bomb = zstandard.ZstdCompressor().compress(bytes((64 << 20) + 1))
    assert len(bomb) < 10_000
    refused(by_hand(directory, [bomb]), match="states a size out of bounds")


@pytest.mark.parametrize("value", ["90", "80", "c0", "a26162"])
def test_a_frame_of_many_small_values(directory, value):
    n_values = 60_000_000 // (len(value) // 2)
    metadata = b"\x81\xa1a\xdd" + n_values.to_bytes(4, "big") + bytes.fromhex(value) * n_values
    bomb = zstandard.ZstdCompressor().compress(b"\x94\xa0\xa0" + metadata + b"\xc4\0")
    refused(by_hand(directory, [bomb]), match="cannot be read")


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("t", "x", {}),
        ("t", "x", {}, b"", 1),
        ("t", b"x", {}, b""),
        (None, "x", {}, b""),
        ("t", "x", [], b""),
        ("t", "x", {}, ""),
        ("t", "x", {1: 1}, b""),
        ("t", "x", {b"a": 1}, b""),
        ("t", "x", {"a": msgpack.ExtType(5, b"")}, b""),
        ("t", "x", {"a": msgpack.Timestamp(0)}, b""),
    ],
)
def test_fields_of_other_types(directory, fields):
    refused(by_hand(directory, [frame(*fields)]))


@pytest.mark.parametrize(
    "record",
    [
        b"\xc0",
        b"\x84\xa1t\xa1x\xa1a\xa1b\xa1c\xa1d\xa1e\xa1f",
        b"\x94\xa1t\xa1\xff\x80\xc4\0",
        b"\x94\xa1t\xa1x\x82\xa1a\1\xa1a\2\xc4\0",
        b"\x94\xa0\xa0\x80\xc4\0\0",
        b"\x94\xa0\xa0\x80\xc4\5",
        b"\x91" * 5000,
    ],
)
def test_records_that_are_none(directory, record):
    refused(by_hand(directory, [zstandard.ZstdCompressor().compress(record)]))


@pytest.mark.parametrize("dictionary", [b"\x37\xa4\x30\xec" + bytes(4), b"\x37\xa4\x30\xec" + b"\xff" * 1000])
def test_a_dictionary_that_is_none(directory, dictionary):
    refused(by_hand(directory, [GOOD], dictionary), match="invalid dictionary")


def test_memory_that_is_short_when_the_first_documents_are_compressed(directory):
    """The dictionary of documents that could not be compressed is chosen again."""

    def known(size):
        if not refusals:
            refusals.append(MemoryError())
            raise refusals[0]
        return b""

    refusals = []
    writer, texts = DocStoreWriter(directory, known), [document(number) for number in range(5)]
    for each in texts:
        writer.add(each)
    with pytest.raises(MemoryError):
        writer.dictionary()
    writer.add(document(5))
    container = reread(directory, writer.write)
    writer.close()
    store = DocStore(container, 6)
    assert [store[number] for number in range(6)] == [*texts, document(5)]
    assert container.find_damage() == []


def test_a_frame_of_another_dictionary(directory):
    samples = [
        msgpack.packb(["t", " ".join(np.random.default_rng(n).choice(WORDS, 50)), {}, b""]) for n in range(200)
    ]
    trained = [zstandard.train_dictionary(2000, part) for part in (samples[:100], samples[100:])]
    packed = zstandard.ZstdCompressor(dict_data=trained[0], write_checksum=True).compress(samples[0])
    assert by_hand(directory, [packed], trained[0].as_bytes())[0].title == "t"
    (directory.path / "sample.seg").unlink()
    refused(by_hand(directory, [packed], trained[1].as_bytes()))
