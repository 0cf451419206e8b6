"""Merging the texts of several segments: frames are copied if they are many, and compressed again if few."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from support.indexes.format_samples import document, reread, write_file

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.store import DocStore, DocStoreWriter
from quarry.formats.documents.store_merge import CopyPolicy, merge_documents
from quarry.formats.errors import CorruptFile

WORDS = [
    first + second for first in ("ash", "birch", "elm", "fir", "oak") for second in ("en", "er", "ing", "s", "ed")
]


def texts(first, n_documents, n_words=40):
    generator = np.random.default_rng(first)
    return [
        document(first + n, text=" ".join(generator.choice(WORDS, n_words)), spans=bytes([n % 256]))
        for n in range(n_documents)
    ]


def store_of(directory, write, n_documents, name="sample.seg"):
    (directory.path / name).unlink(missing_ok=True)
    return DocStore(reread(directory, write, name=name), n_documents)


@pytest.fixture
def stores(directory):
    """Return a function that writes documents and returns their store."""
    n_made = 0

    def made(documents):
        nonlocal n_made
        n_made += 1
        writer = DocStoreWriter(directory)
        for each in documents:
            writer.add(each)
        found = store_of(directory, writer.write, len(documents), f"{n_made}.seg")
        writer.close()
        return found

    return made


def merged(directory, stores, keeps=None, name="merged.seg", **policy):
    """Merge with a `CopyPolicy` of these values."""
    keeps = keeps or [None] * len(stores)
    n_docs = sum(
        store.n_docs if keep is None else int(keep.sum()) for store, keep in zip(stores, keeps, strict=True)
    )
    return store_of(
        directory, lambda out: merge_documents(directory, stores, keeps, out, CopyPolicy(**policy)), n_docs, name
    )


def frames(store, low, high):
    return store.frames.many(np.arange(low, high))


def everything(store):
    return [store[number] for number in range(store.n_docs)]


def n_bytes(store):
    return int(store.frames.offsets[-1]) + sum(len(store.dictionary(run)) for run in range(n_runs(store)))


def n_runs(store):
    return len(store.run_starts) - 1


@pytest.mark.parametrize("limit", [1, 4000, 12_000, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_what_stays_is_what_was_written(directory, stores, limit, seed):
    generator = np.random.default_rng(seed)
    documents = [texts(1000 * n, int(generator.choice([1, 3, 70, 300]))) for n in range(5)]
    keeps = [generator.random(len(each)) < generator.choice([0.05, 0.5, 0.9]) for each in documents]
    keeps[seed] = None
    keeps[(seed + 1) % 5][:] = False
    result = merged(directory, [stores(each) for each in documents], keeps, run_bytes=limit)
    assert everything(result) == [
        each
        for part, keep in zip(documents, keeps, strict=True)
        for number, each in enumerate(part)
        if keep is None or keep[number]
    ]


def test_many_frames_are_copied(directory, stores):
    parts = [stores(texts(0, 300)), stores(texts(5000, 400))]
    result = merged(directory, parts, run_bytes=8000)
    assert result.run_starts.tolist() == [0, 300, 700]
    assert frames(result, 0, 300) == frames(parts[0], 0, 300)
    assert frames(result, 300, 700) == frames(parts[1], 0, 400)
    assert [result.dictionary(run) for run in range(2)] == [part.dictionary(0) for part in parts]


def test_few_documents_join_the_run_before_or_behind_them(directory, stores):
    few, many = [stores(texts(number, 20)) for number in range(3)], [stores(texts(90 + n, 300)) for n in range(2)]
    result = merged(directory, [few[0], many[0], few[1], few[2], many[1]], run_bytes=8000)
    assert result.run_starts.tolist() == [0, 360, 660]
    assert frames(result, 20, 320) == frames(many[0], 0, 300)
    assert frames(result, 360, 660) == frames(many[1], 0, 300)


def test_those_that_are_many_together_become_a_run(directory, stores):
    parts = [stores(texts(0, 400)), *(stores(texts(n, 100)) for n in range(1, 5))]
    result = merged(directory, parts, run_bytes=8000)
    assert result.run_starts.tolist() == [0, 400, 800]
    assert result.dictionary(1) not in {b"", *(part.dictionary(0) for part in parts)}


def test_a_dictionary_is_trained_only_where_it_pays(directory, stores):
    large, small = stores(texts(0, 300)), stores(texts(900, 80))
    assert merged(directory, [large, small]).dictionary(0) == large.dictionary(0)
    result = merged(directory, [small, small, small, small], name="other.seg")
    assert result.dictionary(0) != small.dictionary(0)
    assert len(result.dictionary(0)) > 2 * len(small.dictionary(0)) > 0


def test_neighbours_of_one_dictionary_become_one_run(directory, stores):
    both = stores(texts(0, 400))
    low, high = np.arange(400) < 200, np.arange(400) >= 200
    assert merged(directory, [both, both], [low, high], run_bytes=3000).run_starts.tolist() == [
        0,
        400,
    ]


def test_the_number_of_runs_stays_bounded(directory, stores):
    parts = [stores(texts(n, 30)) for n in range(20)]
    result = merged(directory, parts, run_bytes=1, max_runs=4)
    assert n_runs(result) <= 4
    assert everything(result) == [each for n in range(20) for each in texts(n, 30)]


def test_many_merges_take_no_more_room_than_one_build(directory, stores):
    generator = np.random.default_rng(7)
    number, store, live = 0, stores(texts(0, 800)), texts(0, 800)
    for _ in range(40):
        number += 1000
        keep = generator.random(len(live)) < 0.9
        added = texts(number, len(live) - int(keep.sum()))
        live = [each for each, stays in zip(live, keep, strict=True) if stays] + added
        store = merged(
            directory,
            [store, stores(added)],
            [keep, None],
            f"merged-{number}.seg",
            run_bytes=30_000,
        )
    assert everything(store) == live
    assert n_bytes(store) < 1.15 * n_bytes(stores(live))  # dictionaries are a large part of so small a file


def test_an_invalid_dictionary_is_reported(directory, stores):
    body = zstandard.ZstdCompressor().compress(bytes(2000) + np.random.default_rng(0).bytes(2000))
    wrong = b"\x37\xa4\x30\xec" + b"\xff" * 1000
    sections = {
        "documents": np.frombuffer(body, np.uint8),
        "document_offsets": np.array([0, len(body)], np.uint64),
        "document_dictionaries": np.frombuffer(wrong, np.uint8),
        "dictionary_offsets": np.array([0, len(wrong)], np.uint64),
        "dictionary_ordinals": np.array([0, 1], np.uint64),
    }
    write_file(directory, sections)
    damaged = DocStore(ContainerReader(directory, "sample.seg", FileKind.SEGMENT), 1)
    with pytest.raises(CorruptFile, match="invalid dictionary"):
        merged(directory, [damaged, stores(texts(0, 1, 2))])


@pytest.mark.parametrize(
    ("file_share", "good_bytes", "is_copied"), [(0, 0, False), (0.9, 0, False), (1.1, 0, True), (1.1, 1, False)]
)
def test_good_dictionaries_are_kept_in_a_large_file(directory, stores, file_share, good_bytes, is_copied):
    """Two dictionaries are kept if they take at most 1/128 of the file."""
    parts = [stores(texts(first, 300)) for first in (0, 5000)]
    longest = max(len(part.dictionary(0)) for part in parts)
    policy = CopyPolicy(good_dictionary_bytes=good_bytes * longest + 1)

    def write(container):
        container.add("centroids", np.zeros(int(file_share * 2 * 128 * longest), np.uint8))
        merge_documents(directory, parts, [None, None], container, policy)

    result = store_of(directory, write, 600, "merged.seg")
    assert (frames(result, 0, 600) == frames(parts[0], 0, 300) + frames(parts[1], 0, 300)) == is_copied
    assert n_runs(result) == 1 + is_copied
