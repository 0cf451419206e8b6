"""`Engine.update_metadata` changes metadata and keeps vectors."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest
from support.indexes.changes import OFTEN, stray_files
from support.indexes.inside import wait_for_merges, writer_of
from support.indexes.sharded import columns, random_documents, random_queries
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidDocument, InvalidFilter, InvalidSetting, ReadOnlyIndex
from quarry.engine.thresholds import MergeLimits, Thresholds

ENCODER = WordEncoder(dim=16)
LISTS = Thresholds(calibration_queries=64, list_rows=30, training_rows=30)
DOCUMENTS = random_documents(80)
QUERIES = random_queries(12)
NEVER = MergeLimits(width=1000, dead_bytes=1 << 40, dead_share=1.0)


class OnlyQueries(WordEncoder):
    """An encoder with the same identity that encodes no documents."""

    def windows(self, text):
        raise AssertionError("a document was encoded")

    def encode_query(self, text):
        return ENCODER.encode_query(text)


@pytest.fixture(scope="module", params=["int8", "float16", "none", "shards", "no lists"])
def built(request, tmp_path_factory):
    given = {"shards": {"shards": 3}, "no lists": {"code_bytes": 0}}.get(
        request.param, {"centroids": request.param}
    )
    given = {"code_bytes": 4} | given
    path = tmp_path_factory.mktemp("updates") / "index"
    engine.build(DOCUMENTS[:60], path, encoder=ENCODER, thresholds=LISTS, **given)
    with opened(path, writable=True) as index:
        index.add([{"title": "a title", **document} for document in DOCUMENTS[60:]])
        index.delete("document 0001")
        index.commit()
    return path


@pytest.fixture
def path(built, tmp_path):
    return shutil.copytree(built, tmp_path / "index")


def opened(path, **given):
    encoder = OnlyQueries(dim=16) if given.pop("is_mute", False) else ENCODER
    thresholds = Thresholds(
        calibration_queries=64, list_rows=30, training_rows=30, merging=given.pop("merging", NEVER)
    )
    return Engine.open(path, encoder=encoder, thresholds=thresholds, threads=1, **given)


def stored(path):
    with opened(path) as index:
        return {doc.id: (doc.title, doc.text, dict(doc.metadata)) for doc in index.documents()}


def answers(path, backend="exact"):
    with opened(path, backend=backend) as index:
        return [
            sorted(columns(index.search(query, k=100, mode=mode)))
            for query in QUERIES
            for mode in ("dense", "lexical", "hybrid")
        ]


def test_only_metadata_changes(path):
    before, scores = stored(path), answers(path)
    changed = ["document 0003", "document 0065", "document 0004"]
    with opened(path, writable=True, is_mute=True) as index:
        assert (
            index.update_metadata([*changed, "document 0001", "nobody"], {"new": {"x": [1]}, "number": None}) == 3
        )
        index.commit()
        assert index.count({"new.x": 1}) == 3
        assert index.count({"number": {"$exists": False}}) == 3
        index.verify()
    expected = dict(before)
    for doc_id in changed:
        title, text, metadata = before[doc_id]
        expected[doc_id] = (title, text, {"mixed": metadata["mixed"], "new": {"x": [1]}})
    assert stored(path) == expected
    assert answers(path) == scores
    with opened(path, writable=True) as index:
        index.merge()
        index.verify()
    assert stored(path) == expected
    assert answers(path) == scores


def test_by_filter_in_one_commit_with_other_changes(path):
    before = stored(path)
    with opened(path, writable=True) as index:
        index.add(
            [{"id": "document 0002", "text": "w1 again", "metadata": {"number": 2}}, {"id": "x", "text": "w1"}]
        )
        index.delete("document 0009")
        n_changed = index.update_metadata(filter={"number": 2}, changes={"number": 200})
        assert n_changed == sum(each[2].get("number") == 2 for each in before.values()) - 2
        assert stored(path) == before
        index.commit()
        assert len(index) == len(before)
        assert index.count({"number": 200}) == n_changed
        assert index.get("document 0002")[0].metadata == {"number": 2}  # it was added after the last commit
        assert index.get("document 0009") == []
        index.verify()


def test_everything_at_once(path):
    before, scores = stored(path), answers(path)
    with opened(path, writable=True, is_mute=True) as index:
        assert index.update_metadata(index.ids(), {"mark": True}) == len(before)
        index.commit()
    assert stored(path) == {
        doc_id: (title, text, metadata | {"mark": True}) for doc_id, (title, text, metadata) in before.items()
    }
    assert answers(path) == scores


def test_what_is_pending(path):
    """Later uncommitted changes of a document are applied: of its metadata, its deletion, its replacement."""
    with opened(path, writable=True) as index:
        ids = [f"document 000{number}" for number in range(2, 6)]
        index.update_metadata(ids, {"a": 1, "b": 1})
        index.update_metadata(ids[0], {"a": None, "c": 2})
        index.delete(ids[1])
        index.add([{"id": ids[2], "text": "w1", "metadata": {"d": 4}}])
        with pytest.raises(InvalidSetting, match="document 0004' was added and is not committed"):
            index.update_metadata(ids[2:], {"a": 5})
        assert index.update_metadata(ids[1], {"a": 1}) == 0
        index.commit()
        found = {doc.id: {k: v for k, v in doc.metadata.items() if k in "abcd"} for doc in index.get(ids)}
        assert found == {ids[0]: {"b": 1, "c": 2}, ids[2]: {"d": 4}, ids[3]: {"a": 1, "b": 1}}
        before = stored(path)
        index.update_metadata(ids[3], {"a": 7})
        index.rollback()
        index.commit()
    assert stored(path) == before


def test_a_commit_without_changes(path):
    with opened(path, writable=True) as index:
        generation = index.stats()["generation"]
        assert index.update_metadata("nobody", {"a": 1}) == 0
        index.commit()
        assert index.stats()["generation"] == generation
        assert index.update_metadata([], {"a": 1}) == 0


@pytest.mark.parametrize(
    "wrong", [{}, None, [], "a", 5, {5: 1}, {"a": object()}, {"a": float("nan")}, {"a": 1 << 70}]
)
def test_wrong_changes(path, wrong):
    with opened(path, writable=True) as index:
        with pytest.raises((InvalidSetting, InvalidDocument)) as raised:
            index.update_metadata("document 0002", wrong)
        if not isinstance(wrong, dict) or not wrong:
            assert raised.value.actual == repr(wrong)
        assert not writer_of(index).has_changes()


def test_wrong_selections(path):
    with opened(path, writable=True) as index:
        for given in ({}, {"ids": "a", "filter": {}}, {"ids": 5}, {"ids": {"a": 1}}):
            with pytest.raises(InvalidSetting):
                index.update_metadata(changes={"a": 1}, **given)
        with pytest.raises(InvalidFilter):
            index.update_metadata(filter={"a": {"$no": 1}}, changes={"a": 1})
    with opened(path) as index, pytest.raises(ReadOnlyIndex):
        index.update_metadata("document 0002", {"a": 1})


def test_metadata_that_becomes_too_large(tmp_path):
    docs = [{"id": str(n), "text": "w1", "metadata": {"a": "x" * (40_000 * n)}} for n in range(2)]
    engine.build(docs, tmp_path / "index", encoder=ENCODER)
    with opened(tmp_path / "index", writable=True) as index:
        with pytest.raises(InvalidDocument, match="document '1': field 'metadata' is too large"):
            index.update_metadata(["0", "1"], {"b": "x" * 30_000})
        assert not writer_of(index).has_changes()
        index.update_metadata(["0", "1"], {"a": "x" * 60_000})
        index.commit()


def test_changes_are_copied(tmp_path):
    engine.build([{"id": "a", "text": "w1"}], tmp_path / "index", encoder=ENCODER)
    with opened(tmp_path / "index", writable=True) as index:
        changes = {"list": [1]}
        index.update_metadata("a", changes)
        changes["list"].append(2)
        changes["more"] = np.array(1)
        index.commit()
        assert index.get("a")[0].metadata == {"list": [1]}


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_against_a_dictionary(tmp_path, seed):
    generator = random.Random(seed)
    expected = {document["id"]: (document["text"], document["metadata"]) for document in DOCUMENTS}
    centroids = ["int8", "none"][seed % 2]
    engine.build(
        DOCUMENTS, tmp_path / "index", encoder=ENCODER, thresholds=LISTS, centroids=centroids, code_bytes=4
    )
    with opened(tmp_path / "index", writable=True, merging=OFTEN) as index:
        for turn in range(12):
            for doc_id in generator.sample(sorted(expected), 3):
                changes = {generator.choice("abc"): generator.choice([None, turn, "x"]) for _ in range(2)}
                assert index.update_metadata(doc_id, changes) == 1
                text, metadata = expected[doc_id]
                metadata = metadata | changes
                expected[doc_id] = text, {key: value for key, value in metadata.items() if value is not None}
            if generator.random() < 0.5:
                gone = generator.choice(sorted(expected))
                index.delete(gone)
                del expected[gone]
            if generator.random() < 0.5:
                index.add([{"id": f"new {turn}", "text": f"w{turn}"}])
                expected[f"new {turn}"] = f"w{turn}", {}
            index.commit()
        wait_for_merges(index)
        index.verify()
        assert {doc.id: (doc.text, dict(doc.metadata)) for doc in index.documents()} == expected
    assert not stray_files(tmp_path / "index")


@pytest.mark.parametrize("shards", [None, 2])
def test_names_with_dots_are_paths(tmp_path, shards):
    docs = [
        {"id": "nested", "text": "a", "metadata": {"author": {"name": "Ann", "age": 40}, "year": 2020}},
        {"id": "dotted", "text": "b", "metadata": {"author.name": "Bob"}},
        {"id": "empty", "text": "c"},
    ]
    engine.build(docs, tmp_path / "index", encoder=ENCODER, shards=shards)
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        for wrong in (["nested"], ["dotted", "nested"]):
            with pytest.raises(InvalidSetting, match=r"'nested': the path 'year.month' leads through a value"):
                index.update_metadata(wrong, {"year.month": 5})
        assert index.update_metadata(index.ids(), {"author.name": "Eve", "a.b.c": [1]}) == 3
        index.update_metadata(["nested"], {"author.age": 41})
        index.update_metadata(["nested"], {"author": {"age": 1}})
        index.update_metadata(["nested"], {"author.name": "Zoe", "a.b": None, "nothing.a": None})
        index.commit()
        found = {each.id: each.metadata for each in index.documents()}
    made = {"a": {"b": {"c": [1]}}}
    assert found == {
        "nested": {"author": {"age": 1, "name": "Zoe"}, "year": 2020, "a": {}},
        "dotted": {"author.name": "Eve", **made},
        "empty": {"author": {"name": "Eve"}, **made},
    }


@pytest.mark.parametrize("shards", [None, 2])
def test_each_document_has_changes_of_its_own(tmp_path, shards):
    docs = [{"id": str(number), "text": "w1", "metadata": {"price": number}} for number in range(6)]
    engine.build(docs, tmp_path / "index", encoder=ENCODER, shards=shards)
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        changes = {str(number): {"price": 10 * number, "stock.count": number} for number in range(4)}
        for wrong in (changes | {"5": {"title": "no"}}, changes | {"5": {}}, changes | {"5": 3}, {5: {"a": 1}}):
            with pytest.raises(InvalidSetting):
                index.update_metadata(wrong)
        with pytest.raises(InvalidSetting, match="changes are given twice"):
            index.update_metadata(changes, {"a": 1})
        index.commit()
        assert index.count({"price": {"$gt": 5}}) == 0
        assert index.update_metadata(changes | {"nobody": {"price": 1}}) == 4
        index.commit()
        prices = {each.id: each.metadata["price"] for each in index.documents()}
        assert prices == {"0": 0, "1": 10, "2": 20, "3": 30, "4": 4, "5": 5}
        assert index.count({"stock.count": {"$gte": 1}}) == 3


@pytest.mark.parametrize("name", ["title", "text", "id"])
def test_parts_of_a_document_are_no_metadata(tmp_path, name):
    docs = [{"id": "a", "title": "t", "text": "w1"}, {"id": "b", "text": "w1", "metadata": {name: "old"}}]
    engine.build(docs, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        for given in ({"ids": ["b", "a"]}, {"filter": {"id": {"$prefix": "a"}}}):
            with pytest.raises(InvalidSetting, match=f"'a' has no metadata field '{name}', and only metadata"):
                index.update_metadata(changes={name: None}, **given)
        assert index.update_metadata(["b"], {name: "new"}) == 1
        index.commit()
        assert index.get("b")[0].metadata == {name: "new"}
