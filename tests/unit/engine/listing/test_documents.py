"""Iteration over all documents of an index."""

from __future__ import annotations

import gc
import itertools
import json
import tracemalloc

import pytest
from support.indexes.format_samples import n_descriptors
from support.indexes.inside import view_of
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import Document, Engine, IndexClosed, InvalidFilter, InvalidSetting, UnknownFieldWarning
from quarry.engine.listing.documents import StoredDocuments

N = 60
DOCS = [
    Document(f"{n} é 文\n", f"text {n}", f"title {n}" * (n % 2), {"n": n, "odd": bool(n % 2), "list": [n, None]})
    for n in range(N)
]


@pytest.fixture(scope="module", params=[None, 3], ids=["whole", "sharded"])
def path(request, tmp_path_factory):
    """Build an index of several segments with deleted documents."""
    path = tmp_path_factory.mktemp("listing") / "index"
    engine.build(DOCS[:20], path, encoder=ENCODER, shards=request.param)
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        for part in (DOCS[20:40], [*DOCS[40:], Document("gone", "gone")]):
            index.add(part)
            index.commit()
        index.delete("gone")
        index.commit()
    return path


@pytest.fixture
def index(path):
    with Engine.open(path, encoder=ENCODER) as opened:
        yield opened


@pytest.fixture
def own(path, tmp_path):
    """Open an index that a test may change."""
    copied = tmp_path / "own"
    engine.build(DOCS, copied, encoder=ENCODER, shards=3 if any(path.glob("SHARDS-*")) else None)
    with Engine.open(copied, encoder=ENCODER, writable=True) as opened:
        yield opened


def fields(documents):
    return sorted((doc.id, doc.text, doc.title, json.dumps(doc.metadata, sort_keys=True)) for doc in documents)


def test_every_document_is_read_once(index):
    assert fields(index) == fields(index.documents()) == fields(DOCS)
    assert list(index.ids()) == [doc.id for doc in index]


def test_documents_are_those_that_get_returns(index):
    assert list(index) == index.get(index.ids())


def test_pages_are_parts_of_the_whole(index):
    for only in (None, {"odd": True}, {"n": {"$gte": 55}}):
        whole = list(index.ids(filter=only))
        for offset, limit in itertools.product((0, 1, 6, 7, 25, len(whole), 10**12), (0, 1, 7, 30, None)):
            expected = whole[offset:] if limit is None else whole[offset : offset + limit]
            assert list(index.ids(filter=only, offset=offset, limit=limit)) == expected
            assert [doc.id for doc in index.documents(filter=only, offset=offset, limit=limit)] == expected


def test_pages_are_parts_of_the_whole_however_many_are_read_at_a_time(index, tmp_path):
    whole, segments = list(index.ids()), [each for part in view_of(index).partitions for each in part.segments]
    stored = StoredDocuments(segments, [None] * len(segments), tmp_path, (3, 3, 7))
    for offset, limit in itertools.product((0, 1, 6, 7, 25, len(whole), 10**12), (0, 1, 7, 30, None)):
        expected = whole[offset:] if limit is None else whole[offset : offset + limit]
        assert list(stored.ids(offset, limit)) == expected
        assert [doc.id for doc in stored.documents(offset, limit)] == expected


def test_filters(index):
    assert fields(index.documents(filter={"odd": True})) == fields(doc for doc in DOCS if doc.metadata["odd"])
    assert list(index.documents(filter={"n": -1})) == []
    with pytest.warns(UnknownFieldWarning):
        assert list(index.ids(filter={"nothing": 1})) == []
    with pytest.raises(InvalidFilter):
        index.ids(filter={"$and": 1})


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, [], 1 << 80])
def test_wrong_offsets_and_limits_are_errors_before_anything_is_read(index, wrong):
    with pytest.raises(InvalidSetting, match="offset is out of range"):
        index.documents(offset=wrong)
    with pytest.raises(InvalidSetting, match="limit is out of range"):
        index.ids(limit=wrong)


def test_an_iterator_does_not_see_what_happens_meanwhile(own):
    expected = fields(own)
    documents = own.documents()
    first = [next(documents)]
    own.delete(own.ids(limit=50))
    own.add([{"id": "new", "text": "new"}])
    own.commit()
    own.merge()
    assert len(own) == N - 50 + 1
    own.close()
    assert fields(first + list(documents)) == expected


def test_files_are_closed_with_the_iterators(own):
    before = n_descriptors()
    unread, begun = own.documents(), own.ids()
    next(begun)
    own.delete(own.ids())
    own.add([{"id": "new", "text": "new"}])
    own.commit()
    del unread, begun
    gc.collect()
    assert n_descriptors() <= before


def test_a_closed_index_is_not_read(path):
    index = Engine.open(path, encoder=ENCODER)
    index.close()
    with pytest.raises(IndexClosed):
        index.documents()


def test_an_empty_index(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        assert list(index) == list(index.ids(filter={"a": 1}, offset=5)) == []


def test_an_index_is_a_source_of_documents(index, tmp_path):
    report = engine.build(index, tmp_path / "copy", encoder=ENCODER)
    assert report.n_documents == N
    with Engine.open(tmp_path / "copy", encoder=ENCODER) as copy:
        assert fields(copy) == fields(index)


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path):
    text = "word " * 400
    engine.build(({"id": str(n), "text": f"{text} {n}"} for n in range(500)), tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        list(index.documents(limit=1))
        tracemalloc.start()
        n_characters = sum(len(doc.text) for doc in index)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert n_characters > 1_000_000
    assert peak < 500_000
