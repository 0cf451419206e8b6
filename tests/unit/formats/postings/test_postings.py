"""Terms and postings are read back as written, and damage is refused."""

from __future__ import annotations

import contextlib
import threading
import tracemalloc

import numpy as np
import pytest
from support.indexes.format_samples import FILE_ID, n_descriptors, reread, write_file
from support.indexes.stored_postings import iterate_postings

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.postings.elias_fano import MAX_RECORD_BYTES, Postings, decode, encode
from quarry.formats.postings.postings import MergedPostings, PostingsReader, PostingsWriter
from quarry.formats.postings.term_batches import TermBatch, merge_terms
from quarry.formats.postings.term_blocks import make_rows
from quarry.formats.postings.term_dictionary import TermDictionaryWriter

SECTIONS = {
    "terms": np.uint8,
    "term_offsets": np.uint64,
    "term_keys": np.uint64,
    "posting_offsets": np.uint64,
    "postings": np.uint8,
    "doc_lengths": np.uint32,
}


def merge_postings(directory, readers, keeps, container):
    with contextlib.closing(MergedPostings(directory, readers, keeps)) as merged:
        merged.prepare()
        merged.write(container)


def stored(directory, documents, name="sample.seg"):
    writer = PostingsWriter(directory)
    for terms in documents:
        writer.add(terms)
    container = reread(directory, writer.write, name=name)
    writer.close()
    return PostingsReader(container, len(documents)), container


def counted(documents):
    """Count the postings of every term in plain Python."""
    found = {}
    for doc, terms in enumerate(documents):
        for term in terms:
            docs = found.setdefault(term, {})
            docs[doc] = docs.get(doc, 0) + 1
    return found


def read_all(reader):
    return {
        term.decode(): dict(zip(docs.tolist(), frequencies.tolist(), strict=True))
        for term, (docs, frequencies) in iterate_postings(reader)
    }


def varied(n_documents, seed=0, n_terms=3000):
    """Return documents whose terms follow Zipf's law; some are empty, and some terms are unusual."""
    generator = np.random.default_rng(seed)
    vocabulary = [f"term{number}" for number in range(n_terms)] + [
        "é",
        "文字",
        "\U0001f600",
        "a b",
        "\0",
        "x" * 255,
    ]
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    weights /= weights.sum()
    return [
        [vocabulary[number] for number in generator.choice(len(vocabulary), generator.integers(0, 40), p=weights)]
        for _ in range(n_documents)
    ]


def arrays(container):
    """Return copies of all sections."""
    return {name: container.section(name, dtype, (None,)).array().copy() for name, dtype in SECTIONS.items()}


@pytest.mark.parametrize("n_documents", [1, 2, 9, 300, 5000])
def test_everything_comes_back(directory, n_documents):
    documents = varied(n_documents)
    reader, container = stored(directory, documents)
    container.refuse_unknown()
    expected = counted(documents)
    assert read_all(reader) == expected
    assert reader.lengths.tolist() == [len(terms) for terms in documents]
    assert reader.total_length == sum(map(len, documents))
    for term, docs in expected.items():
        assert reader.document_frequency(term) == len(docs)
        found = reader.postings(term)
        assert found.docs.tolist() == sorted(docs)
        assert found.frequencies.tolist() == [docs[doc] for doc in sorted(docs)]


def test_terms_that_no_document_has(directory):
    reader, _ = stored(directory, [["m", "mm"], ["term100", "term102"]])
    for term in ("", "a", "m\0", "mmm", "term101", "term1000", "z", "\ud800"):
        assert reader.document_frequency(term) == 0
        assert reader.find(term) is None
        docs, frequencies = reader.postings(term)
        assert len(docs) == len(frequencies) == 0


@pytest.mark.parametrize("n_documents", [1, 5])
def test_documents_without_terms(directory, n_documents):
    reader, _ = stored(directory, [[]] * n_documents)
    assert reader.total_length == 0
    assert reader.postings("x").docs.tolist() == list(iterate_postings(reader)) == []


def test_terms_with_a_common_prefix_are_distinguished(directory):
    """Terms are found in blocks whose first terms have the same 8-byte key."""
    terms = ["prefix" + "x" * n for n in range(100)] + [f"prefixes{n}" for n in range(500)]
    reader, _ = stored(directory, [[term] for term in terms])
    for doc, term in enumerate(terms):
        assert reader.postings(term).docs.tolist() == [doc]
    assert reader.find("prefixes") is None


def test_terms_are_sorted_as_their_bytes(directory):
    terms = ["\uffff", "\U00010000", "é", "z", "a", "aa", "a\0"]
    reader, _ = stored(directory, [terms])
    assert [term for term, _ in iterate_postings(reader)] == sorted(term.encode() for term in terms)


@pytest.mark.parametrize("term", ["", "x" * 256, "é" * 128])
def test_a_term_that_cannot_be_stored(directory, term):
    writer = PostingsWriter(directory)
    with pytest.raises(ValueError, match="can be stored"):
        writer.add(["fine", term])
    writer.close()


@pytest.mark.parametrize("memory_bytes", [0, 20_000, 200_000])
def test_runs_give_the_same_bytes(directory, memory_bytes):
    documents = varied(800)
    _, whole = stored(directory, documents)
    limits = WriterLimits(posting_bytes=memory_bytes, page_postings=50, batch_postings=100)
    _, pieces = stored(Directory(directory.path, limits=limits), documents, "pieces.seg")
    assert pieces.record.digest == whole.record.digest


def test_memory_is_bounded(directory):
    """Writing 30,000 documents of ten terms, each with a new one, takes far less memory than their postings."""
    limits = WriterLimits(
        section_bytes=1 << 16, posting_bytes=1 << 20, page_postings=1 << 10, batch_postings=1 << 13
    )
    writer = PostingsWriter(Directory(directory.path, limits=limits))
    tracemalloc.start()
    try:
        for doc in range(30_000):
            writer.add(["all", f"doc{doc}", *(f"term{doc * step % 1009}" for step in range(8))])
            writer.spill()
        container = ContainerWriter(directory, "sample.seg", FileKind.SEGMENT, FILE_ID)
        writer.write(container)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
        container.discard()
        writer.close()


def test_temporary_files_are_gone_after_close(directory):
    limits = WriterLimits(section_bytes=1000, posting_bytes=10_000)
    before = n_descriptors()
    writer = PostingsWriter(Directory(directory.path, limits=limits))
    for terms in varied(500):
        writer.add(terms)
        writer.spill()
    assert list(directory.path.iterdir())
    container = ContainerWriter(directory, "sample.seg", FileKind.SEGMENT, FILE_ID)
    writer.write(container)
    container.discard()
    writer.close()
    assert not list(directory.path.iterdir())
    assert n_descriptors() == before


def test_many_threads_read_at_once(directory):
    documents = varied(400)
    reader, _ = stored(directory, documents)
    expected = counted(documents)
    wrong = []

    def read(seed):
        order = np.random.default_rng(seed).permutation(list(expected)).tolist()
        wrong.extend(term for term in order if reader.postings(term).docs.tolist() != sorted(expected[term]))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("keep", ["all", "odd", "none of the first"])
def test_merging_is_like_writing_anew(directory, keep):
    parts = [varied(n, seed) for seed, n in enumerate((300, 1, 70))]
    masks = {
        "all": [None, np.ones(1, bool), None],
        "odd": [np.arange(len(part)) % 2 == 1 for part in parts],
        "none of the first": [np.zeros(300, bool), None, np.arange(70) != 13],
    }[keep]
    readers = [stored(directory, part, f"part{n}.seg")[0] for n, part in enumerate(parts)]
    merged = reread(
        directory, lambda container: merge_postings(directory, readers, masks, container), name="merged.seg"
    )
    kept = [
        document
        for part, mask in zip(parts, masks, strict=True)
        for document, stays in zip(part, np.ones(len(part)) if mask is None else mask, strict=True)
        if stays
    ]
    _, rebuilt = stored(directory, kept, "rebuilt.seg")
    assert merged.record.digest == rebuilt.record.digest


def test_a_damaged_segment_is_not_merged(directory):
    _, container = stored(directory, varied(50))
    sections = arrays(container)
    sections["postings"][100:] ^= 0xFF
    write_file(directory, sections, name="bad.seg")
    reader = PostingsReader(ContainerReader(directory, "bad.seg", FileKind.SEGMENT), 50)
    with pytest.raises(CorruptFile, match=r"bad\.seg"):
        reread(directory, lambda out: merge_postings(directory, [reader], [None], out), name="merged.seg")
    assert not list(directory.path.glob("*.tmp"))


def slow_record(n_docs, docs, frequencies):
    """Encode a record bit by bit, as its description says."""
    width = 0
    while n_docs >= len(docs) << (width + 1):
        width += 1
    bits = [doc >> bit & 1 for doc in docs for bit in range(width)]
    before = 0
    for doc in docs:
        bits += [0] * ((doc >> width) - before) + [1]
        before = doc >> width
    for frequency in frequencies:
        bits += [0] * (frequency - 1) + [1]
    bits += [0] * (-len(bits) % 8)
    return bytes(sum(bits[at + bit] << bit for bit in range(8)) for at in range(0, len(bits), 8))


@pytest.mark.parametrize(
    ("n_docs", "n"), [(1, 1), (2, 2), (7, 3), (100, 100), (1000, 24), (1000, 25), (10**6, 500)]
)
def test_records_are_as_described(n_docs, n):
    generator = np.random.default_rng(n)
    docs = np.sort(generator.choice(n_docs, n, replace=False))
    frequencies = generator.geometric(0.5, n)
    given = Postings(docs.astype(np.uint32), frequencies.astype(np.uint32))
    data, lengths = encode(n_docs, np.array([n]), given)
    assert data.tobytes() == slow_record(n_docs, docs.tolist(), frequencies.tolist())
    assert lengths.tolist() == [len(data)]


def test_a_record_of_the_largest_segment():
    n_docs = (1 << 32) - 1
    for docs in ([0], [n_docs - 1], [0, n_docs - 1], list(range(n_docs - 60, n_docs, 2))):
        given = Postings(np.array(docs, np.uint32), np.full(len(docs), 3, np.uint32))
        data, _ = encode(n_docs, np.array([len(docs)]), given)
        assert decode(data, len(docs), n_docs).docs.tolist() == docs


def test_records_longer_than_a_chunk():
    """Records with more postings than are decoded at a time are read back, sparse and dense."""
    for n_docs in (70_000, 3_000_000):
        docs = np.arange(0, n_docs, n_docs // 69_999)[:69_999].astype(np.uint32)
        frequencies = np.ones(len(docs), np.uint32)
        frequencies[[0, 40_000, -1]] = [100_000, 5, 70_000]
        data, _ = encode(n_docs, np.array([len(docs)]), Postings(docs, frequencies))
        found = decode(data, len(docs), n_docs)
        assert (found.docs == docs).all()
        assert (found.frequencies == frequencies).all()


def test_many_postings_are_encoded_as_few():
    """Records of several chunks, made one by one, have the bytes of records that are made together."""
    generator, n_docs = np.random.default_rng(0), 3_000_000
    counts = np.array([3, 70_001, 1, 2, 16_384, 1_600_000, 90_000])
    docs = [np.sort(generator.choice(n_docs, n, replace=False)) for n in counts]
    frequencies = generator.geometric(0.3, counts.sum()).astype(np.uint32)
    frequencies[[3, 40_000, -1]] = [100_000, 5, 70_000]
    given = Postings(np.concatenate(docs).astype(np.uint32), frequencies)
    data, lengths = encode(n_docs, counts, given)
    together, expected = encode(n_docs, counts, given, many=1 << 30)
    assert lengths.tolist() == expected.tolist()
    assert data.tobytes() == together.tobytes()


def test_a_frequent_term_takes_little_more_memory_than_its_postings():
    n = 1 << 20
    postings = Postings(np.arange(n, dtype=np.uint32) * 3, np.ones(n, np.uint32))
    tracemalloc.start()
    try:
        encode(3 * n, np.array([n]), postings)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("gathered", [1, 100, 1 << 17])
def test_merged_terms_are_those_of_sorting_all_postings(gathered):
    generator, first, sources, expected = np.random.default_rng(0), 0, [], {}
    for _ in range(4):
        terms = sorted(generator.choice(60, 40, replace=False).tolist())
        counts = generator.integers(1, 50, len(terms))
        docs = [np.sort(generator.choice(200, n, replace=False)) + first for n in counts]
        frequencies = generator.integers(1, 9, int(counts.sum())).astype(np.uint32)
        rows = make_rows([f"term{term:02}".encode() for term in terms])
        sources.append(
            iter([TermBatch(rows, counts, Postings(np.concatenate(docs).astype(np.uint32), frequencies))])
        )
        for term, some, some_frequencies in zip(
            terms, docs, np.split(frequencies, np.cumsum(counts)[:-1]), strict=True
        ):
            expected.setdefault(f"term{term:02}".encode(), []).extend(zip(some, some_frequencies, strict=True))
        first += 200
    found = {
        term: list(zip(*postings, strict=True))
        for batch in merge_terms(sources, gathered)
        for term, postings in batch.terms()
    }
    assert found == expected
    assert list(found) == sorted(found)


GOOD_FEW = slow_record(1000, [3, 500, 999], [1, 4, 2])
GOOD_MANY = slow_record(1000, list(range(0, 1000, 25)), [2] * 40)


@pytest.mark.parametrize(("record", "n"), [(GOOD_FEW, 3), (GOOD_MANY, 40)])
def test_records_that_are_none(record, n):
    for bad in (b"", record[:-1], record + b"\0", record + b"\1", bytes(len(record)), b"\xff" * len(record)):
        with pytest.raises(ValueError, match=r"record|ordinals"):
            decode(np.frombuffer(bad, np.uint8), n, 1000)
    with pytest.raises(ValueError, match=r"record|ordinals"):
        decode(np.frombuffer(record, np.uint8), n + 1, 1000)


@pytest.mark.parametrize("n", [3, 40])
def test_ordinals_that_do_not_ascend_or_lie_outside(n):
    fine = list(range(0, 25 * n, 25))
    for docs in ([*fine[:-2], fine[-1], fine[-1]], [*fine[:-1], 25 * n], [*fine[:-1], 1 << 31]):
        record = slow_record(25 * n, docs, [1] * n) if docs[-1] < 10**6 else far_record(n)
        with pytest.raises(ValueError, match="ordinals"):
            decode(np.frombuffer(record, np.uint8), n, 25 * n)


def far_record(n):
    """Return a record whose last document has so many zeros that its ordinal exceeds 32 bits."""
    return slow_record(25 * n, [*range(n - 1), 1 << 20], [1] * n)


def test_ordinals_that_would_be_right_but_for_a_bit_too_many():
    """Ordinals that are too large by 2^32 are refused instead of truncated."""
    docs = list(range(0, 1 << 31, 1 << 26))
    fine = slow_record(1 << 31, docs, [1] * 32)
    assert decode(np.frombuffer(fine, np.uint8), 32, 1 << 31).docs.tolist() == docs
    far = slow_record(1 << 31, [doc + (1 << 32) for doc in docs], [1] * 32)
    with pytest.raises(ValueError, match="ordinals"):
        decode(np.frombuffer(far, np.uint8), 32, 1 << 31)


def test_a_record_too_long_for_its_places():
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (MAX_RECORD_BYTES + 1,), (0,))
    with pytest.raises(ValueError, match="too long"):
        decode(huge, 100, 1000)


@pytest.fixture
def sections(directory):
    """Return the sections of some documents, to be damaged."""
    _, container = stored(directory, varied(60, n_terms=300), "good.seg")
    return arrays(container)


def opened(directory, sections, n_documents=60):
    (directory.path / "sample.seg").unlink(missing_ok=True)
    write_file(directory, sections)
    return PostingsReader(ContainerReader(directory, "sample.seg", FileKind.SEGMENT), n_documents)


def exercise(reader):
    """Read in every way; only errors other than FormatError are raised."""
    for ask in (
        lambda: list(iterate_postings(reader)),
        lambda: [reader.postings(f"term{n}") for n in range(0, 300, 30)],
        lambda: reader.total_length,
    ):
        with contextlib.suppress(FormatError):
            ask()


@pytest.mark.parametrize("name", ["terms", "term_offsets", "term_keys", "posting_offsets", "postings"])
def test_changed_bytes_are_refused_or_read_as_something_else(directory, sections, name):
    generator = np.random.default_rng(1)
    size = sections[name].nbytes
    for place in generator.choice(size, min(size, 60), replace=False).tolist():
        bad = {key: value.copy() for key, value in sections.items()}
        bad[name].view(np.uint8)[place] ^= generator.integers(1, 256)
        exercise(opened(directory, bad))


@pytest.mark.parametrize("name", list(SECTIONS))
def test_shorter_and_longer_sections(directory, sections, name):
    for value in (sections[name][:-1], sections[name][:0], np.append(sections[name], sections[name][-1:])):
        with contextlib.suppress(FormatError):
            exercise(opened(directory, sections | {name: value}))


def test_a_missing_section(directory, sections):
    for name in SECTIONS:
        with pytest.raises(CorruptFile, match=name):
            opened(directory, {key: value for key, value in sections.items() if key != name})


def test_terms_that_do_not_ascend_from_block_to_block(directory):
    """Two swapped blocks of equal size are refused when all terms are read."""
    _, container = stored(directory, [[f"{number:02x}"] for number in range(32)], "good.seg")
    sections = arrays(container)
    blocks = sections["terms"].reshape(2, -1)
    sections["terms"] = np.concatenate([blocks[1], blocks[0]])
    with pytest.raises(
        CorruptFile, match="a block from 0 to 1 of the terms cannot be read; found terms do not ascend"
    ):
        list(iterate_postings(opened(directory, sections, 32)))


RECORD = slow_record(3, [1], [2])


def by_hand(directory, block, n_docs=3, records=RECORD):
    """Return a reader of one block of terms."""
    sections = {
        "terms": np.frombuffer(block, np.uint8),
        "term_offsets": np.array([0, len(block)], np.uint64),
        "term_keys": np.array([0], np.uint64),
        "posting_offsets": np.array([0, len(records)], np.uint64),
        "postings": np.frombuffer(records, np.uint8),
        "doc_lengths": np.zeros(n_docs, np.uint32),
    }
    return opened(directory, sections, n_docs)


def test_a_block_made_by_hand_is_read(directory):
    assert len(RECORD) == 1
    reader = by_hand(directory, b"\0\2ab\1\1")
    assert read_all(reader) == {"ab": {1: 2}}


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\0",
        b"\0\2",
        b"\0\2ab",
        b"\0\2ab\1",
        b"\0\2ab\1\x80",
        b"\0\2ab\1" + b"\x80" * 9 + b"\1",
        b"\0\2ab\1\2",  # more bytes of postings than there are
        b"\0\2ab\0\1",  # no documents
        b"\0\2ab\4\1",  # more documents than there are
        b"\1\2ab\1\1",  # shares a byte, but is the first
        b"\0\0\1\1",  # an empty term
        b"\0\2ab\1\1\2\0\1\0",  # the same term twice
        b"\0\2ab\1\1\0\1a\1\0",  # descending terms
        b"\0\2ab\1\1\0",
    ],
)
def test_blocks_that_are_none(directory, block):
    with pytest.raises(CorruptFile, match="block 0 of the terms cannot be read"):
        list(iterate_postings(by_hand(directory, block)))


def test_records_that_leave_a_gap(directory):
    with pytest.raises(CorruptFile, match="block 0 of the terms cannot be read"):
        list(iterate_postings(by_hand(directory, b"\0\2ab\1\1", records=RECORD + RECORD)))


def test_postings_outside_their_section(directory, sections):
    reader = opened(directory, sections | {"postings": sections["postings"][:10]})
    with pytest.raises(CorruptFile, match="outside"):
        list(iterate_postings(reader))


def test_the_dictionary_writes_what_its_description_says(directory):
    writer = TermDictionaryWriter(directory)
    writer.add(make_rows([b"ab"]), np.array([3]), np.array([200]))
    writer.add(make_rows([b"abc"]), np.array([1]), np.array([1]))
    sections = arrays_of_dictionary(reread(directory, writer.write))
    writer.close()
    assert sections["terms"] == b"\0\2ab\3\xc8\1" + b"\2\1c\1\1"
    assert sections["term_offsets"] == (0).to_bytes(8, "little") + (12).to_bytes(8, "little")
    assert sections["term_keys"] == b"ab\0\0\0\0\0\0"[::-1]
    assert sections["posting_offsets"] == (0).to_bytes(8, "little") + (201).to_bytes(8, "little")


def arrays_of_dictionary(container):
    names = ("terms", "term_offsets", "term_keys", "posting_offsets")
    return {name: container.section(name, SECTIONS[name], (None,)).array().tobytes() for name in names}


def test_more_terms_and_documents_than_a_key_of_32_bits_can_number(directory):
    """Of 2^17 documents and 2^15 or more terms, a key has more than 32 bits."""
    n_documents, n_terms = (1 << 17) + 1, (1 << 15) + 5
    documents = [[f"t{(doc * 7919) % n_terms}"] if doc % 4 == 0 else () for doc in range(n_documents)]
    documents[5] = ["t1", "t2", "t1"]
    documents[-1] = [f"t{number}" for number in range(n_terms)]
    writer = PostingsWriter(directory)
    writer.add_many(documents)
    reader = PostingsReader(reread(directory, writer.write), n_documents)
    writer.close()
    expected = counted(documents)
    found = read_all(reader)
    assert found.keys() == expected.keys()
    for term in ("t0", "t1", "t2", f"t{n_terms - 1}"):
        assert found[term] == expected[term]
