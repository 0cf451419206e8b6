"""Properties of the postings of any documents, and of the decoder for any bytes."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.indexes.format_samples import reread
from support.indexes.stored_postings import iterate_postings

from quarry.formats.container.directory import Directory
from quarry.formats.postings.elias_fano import Postings, decode, encode
from quarry.formats.postings.postings import MergedPostings, PostingsReader, PostingsWriter

words = st.one_of(
    st.sampled_from(["a", "ab", "abc", "b", "é", "文", "\0", "prefix-and-more", "prefix-and-most"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
)
unhurried = settings(deadline=None)  # examples may be slow on a busy machine
collections = st.lists(st.lists(words, max_size=12), min_size=1, max_size=40)


@st.composite
def posting_lists(draw):
    """Draw a number of documents and postings of them."""
    n_docs = draw(st.one_of(st.integers(1, 200), st.integers(1, (1 << 32) - 1)))
    docs = draw(st.sets(st.integers(0, n_docs - 1), min_size=1, max_size=min(n_docs, 80)))
    frequencies = draw(st.lists(st.integers(1, 300), min_size=len(docs), max_size=len(docs)))
    return n_docs, sorted(docs), frequencies


def as_postings(docs, frequencies):
    return Postings(np.array(docs, np.uint32), np.array(frequencies, np.uint32))


@unhurried
@given(posting_lists())
def test_a_record_holds_its_postings(given_postings):
    n_docs, docs, frequencies = given_postings
    record, _ = encode(n_docs, np.array([len(docs)]), as_postings(docs, frequencies))
    found = decode(record, len(docs), n_docs)
    assert found.docs.tolist() == docs
    assert found.frequencies.tolist() == frequencies


@unhurried
@given(st.lists(posting_lists(), min_size=1, max_size=8))
def test_records_do_not_depend_on_what_is_encoded_with_them(lists):
    n_docs = max(each[0] for each in lists)
    docs = np.concatenate([np.array(each[1], np.uint32) for each in lists])
    frequencies = np.concatenate([np.array(each[2], np.uint32) for each in lists])
    counts = np.array([len(each[1]) for each in lists])
    data, lengths = encode(n_docs, counts, Postings(docs, frequencies))
    alone = [encode(n_docs, np.array([len(each[1])]), as_postings(*each[1:]))[0].tobytes() for each in lists]
    assert data.tobytes() == b"".join(alone)
    assert lengths.tolist() == [len(record) for record in alone]


@st.composite
def nearly_records(draw):
    """Draw bytes, their number of postings, and the number of documents; most are valid but for up to two bits."""
    n_docs, docs, frequencies = draw(posting_lists())
    record, _ = encode(n_docs, np.array([len(docs)]), as_postings(docs, frequencies))
    for bit in draw(st.sets(st.integers(0, 8 * len(record) - 1), max_size=2)):
        record[bit // 8] ^= 1 << bit % 8
    return draw(st.one_of(st.just(record.tobytes()), st.binary(max_size=80))), len(docs), n_docs


@unhurried
@given(nearly_records())
def test_any_bytes_are_postings_or_refused(given_bytes):
    data, n, n_docs = given_bytes
    try:
        docs, frequencies = decode(np.frombuffer(data, np.uint8), n, n_docs)
    except ValueError:
        return
    assert len(docs) == len(frequencies) == n
    assert docs[-1] < n_docs
    assert (np.diff(docs.astype(np.int64)) > 0).all()
    assert frequencies.min() >= 1
    record, _ = encode(n_docs, np.array([n]), Postings(docs, frequencies))
    assert record.tobytes() == data


def merge_postings(directory, readers, keeps, container):
    with closing(MergedPostings(directory, readers, keeps)) as merged:
        merged.prepare()
        merged.write(container)


def write(directory, documents, name):
    writer = PostingsWriter(directory)
    for terms in documents:
        writer.add(terms)
    container = reread(directory, writer.write, name=name)
    writer.close()
    return container


@unhurried
@given(collections)
def test_documents_come_back(tmp_path_factory, documents):
    reader = PostingsReader(
        write(Directory(tmp_path_factory.mktemp("index")), documents, "all.seg"), len(documents)
    )
    found = [[] for _ in documents]
    for term, (docs, frequencies) in iterate_postings(reader):
        for doc, frequency in zip(docs.tolist(), frequencies.tolist(), strict=True):
            found[doc] += [term.decode()] * frequency
        assert reader.postings(term.decode()).docs.tolist() == docs.tolist()
    assert found == [sorted(terms) for terms in documents]
    assert reader.lengths.tolist() == [len(terms) for terms in documents]


@unhurried
@given(collections, st.data())
def test_merging_parts_is_writing_what_is_kept(tmp_path_factory, documents, data):
    directory = Directory(tmp_path_factory.mktemp("index"))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(documents) - 1), max_size=4))) if documents[1:] else []
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents))))
    keep[data.draw(st.integers(0, len(documents) - 1))] = True
    bounds = [0, *cuts, len(documents)]
    readers, masks = [], []
    for number, (low, high) in enumerate(pairwise(bounds)):
        container = write(directory, documents[low:high], f"part{number}.seg")
        readers.append(PostingsReader(container, high - low))
        masks.append(keep[low:high])
    merged = reread(directory, lambda out: merge_postings(directory, readers, masks, out), name="merged.seg")
    rebuilt = write(
        directory, [terms for terms, stays in zip(documents, keep, strict=True) if stays], "rebuilt.seg"
    )
    assert merged.record.digest == rebuilt.record.digest
