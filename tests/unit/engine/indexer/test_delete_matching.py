"""Deletion by filter deletes the documents that match after all uncommitted changes."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.indexes.changes import SMALL_MERGED_OFTEN
from support.indexes.metadata_oracle import clashes, fields_of, filters, metadata, passes, titles
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import Document, Engine, InvalidFilter, InvalidSetting, ReadOnlyIndex, UnknownFieldWarning
from quarry.engine.cli.commands import main


@pytest.fixture(params=[None, 3], ids=["whole", "sharded"])
def index(request, tmp_path):
    docs = [Document(str(n), f"text {n}", f"title {n % 2}", {"n": n}) for n in range(12)]
    engine.build(docs, tmp_path / "index", encoder=ENCODER, shards=request.param)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as opened:
        yield opened


def ids(index):
    return sorted(index.ids(), key=lambda doc_id: (len(doc_id), doc_id))


def test_it_is_part_of_the_next_commit(index):
    assert index.delete(filter={"n": {"$lt": 10}}) == 10
    assert len(index) == 12
    index.commit()
    assert ids(index) == ["10", "11"]


def test_it_can_be_undone(index):
    assert index.delete(filter={"n": {"$exists": True}}) == 12
    index.rollback()
    assert index.delete(filter={"title": "title 1"}) == 6
    index.commit()
    assert len(index) == 6


def test_documents_that_are_not_committed_yet(index):
    index.add([{"id": "new", "text": "x", "metadata": {"n": 3}}, {"id": "3", "text": "y", "metadata": {"n": 100}}])
    index.delete("4")
    assert index.delete(filter={"n": {"$in": [3, 4]}}) == 1  # "3" was replaced, "4" is already deleted
    index.add([{"id": "later", "text": "x", "metadata": {"n": 3}}])
    index.commit()
    assert {"3", "later"} <= set(ids(index))
    assert not {"4", "new"} & set(ids(index))
    assert len(index) == 12


def test_documents_that_were_added_twice(index):
    index.add([{"id": "a", "text": "x", "metadata": {"n": 1}}, {"id": "a", "text": "y", "metadata": {"n": 2}}])
    assert index.delete(filter={"id": "a", "n": 1}) == 0
    assert index.delete(filter={"id": "a", "n": 2}) == 1
    index.commit()
    assert "a" not in index


def test_a_replaced_document_does_not_come_back(index):
    index.add(
        [{"id": "new", "text": "x", "metadata": {"n": 50}}, {"id": "new", "text": "y", "metadata": {"n": 51}}]
    )
    assert index.delete(filter={"n": 51}) == 1
    assert index.delete("new") == 0
    assert index.delete(filter={"n": 50}) == 0
    index.commit()
    assert "new" not in index


def test_nothing_to_delete(index):
    assert index.delete(filter={"n": 100}) == 0
    generation = index.commit()
    with pytest.warns(UnknownFieldWarning):
        assert index.delete(filter={"m": 1}) == 0
    assert index.commit() == generation


def test_a_field_of_uncommitted_documents_is_known(index):
    index.add([{"id": "new", "text": "x", "metadata": {"new": "a", "n": "text"}}])
    assert index.delete(filter={"new": "b"}) == 0
    assert index.delete(filter={"n": "text"}) == 1


def test_wrong_arguments(index, tmp_path):
    for wrong in ({}, {"ids": "1", "filter": {}}):
        with pytest.raises(InvalidSetting, match="ids or a filter"):
            index.delete(**wrong)
    with pytest.raises(InvalidFilter):
        index.delete(filter={"n": "text"})
    with pytest.raises(InvalidFilter):
        index.delete(filter={"n": {"$unheard": 1}})
    with Engine.open(tmp_path / "index", encoder=ENCODER) as reader, pytest.raises(ReadOnlyIndex):
        reader.delete(filter={"n": 1})


@pytest.mark.parametrize("shards", [None, 2])
def test_an_empty_filter_changes_nothing(shards, tmp_path, capsys):
    engine.build(
        [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}], tmp_path / "i", encoder=ENCODER, shards=shards
    )
    with Engine.open(tmp_path / "i", encoder=ENCODER, writable=True) as index:
        with pytest.raises(
            InvalidFilter, match=r"an empty filter matches every document.*delete\(index.ids\(\)\)"
        ):
            index.delete(filter={})
        with pytest.raises(InvalidFilter, match="an empty filter matches every document"):
            index.update_metadata(filter={}, changes={"a": 1})
        assert index.commit() == index.stats()["generation"]
        assert [(document.id, document.metadata) for document in index.get(["1", "2"])] == [("1", {}), ("2", {})]
    assert main(["delete", str(tmp_path / "i"), "--filter", "{}"]) != 0
    assert "an empty filter" in capsys.readouterr().err
    with Engine.open(tmp_path / "i", encoder=ENCODER, writable=True) as index:
        assert index.delete(index.ids()) == 2


def test_an_empty_index(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as index:
        assert index.delete(filter={"a": 1}) == 0


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abcdef"), titles, metadata),
        st.tuples(st.just("delete"), st.sampled_from("abcdef")),
        st.tuples(st.just("filter"), filters),
        st.tuples(st.just("commit")),
        st.tuples(st.just("merge")),
    ),
    min_size=3,
    max_size=14,
)


@settings(deadline=None, max_examples=20)
@given(changes, st.sampled_from([None, 2]))
@example([("add", "b", "", {"id": 0}), ("filter", {"id": 0})], None)
def test_any_order_of_changes(tmp_path_factory, steps, shards):
    path = tmp_path_factory.mktemp("steps") / "index"
    engine.build([], path, encoder=ENCODER, shards=shards, thresholds=SMALL_MERGED_OFTEN)
    kept: dict[str, dict[str, object]] = {}
    with (
        warnings.catch_warnings(),
        Engine.open(path, encoder=ENCODER, writable=True, threads=1, thresholds=SMALL_MERGED_OFTEN) as index,
    ):
        warnings.simplefilter("ignore", UnknownFieldWarning)
        for step, *given_ in steps:
            if step == "add":
                doc_id, title, values = given_
                index.add([Document(doc_id, "text", title, values)])
                kept[doc_id] = fields_of(doc_id, title, values)
            elif step == "delete":
                assert index.delete(given_[0]) == (kept.pop(given_[0], None) is not None)
            elif step == "filter" and (not given_[0] or clashes(kept.values(), given_[0])):
                with pytest.raises(InvalidFilter):
                    index.delete(filter=given_[0])
            elif step == "filter":
                found = [doc_id for doc_id, fields in kept.items() if passes(fields, given_[0])]
                assert index.delete(filter=given_[0]) == len(found)
                for doc_id in found:
                    del kept[doc_id]
            else:
                getattr(index, step)()
        index.commit()
        assert sorted(index.ids()) == sorted(kept)
