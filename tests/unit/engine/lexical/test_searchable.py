"""Fields of metadata that are found by words."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidSetting, KMeans
from quarry.engine.cli import commands

ENCODER, OTHER = WordEncoder(), WordEncoder(name="others")
DOCUMENTS = [
    {
        "id": "P-1001",
        "text": "a kettle of steel",
        "metadata": {"brand": "Zenith", "sku": 4711, "hidden": "secret"},
    },
    {"id": "P-1002", "text": "a pan of iron", "metadata": {"brand": ["Acme", "Corp"], "size": {"name": "Grande"}}},
    {"id": "P-1003", "text": "a lid", "metadata": {"price": 2.5}},
]
PATHS = ["sku", "brand", "size.name", "id", "brand", "price"]


def build(path, documents=DOCUMENTS, **settings):
    settings = {"searchable": PATHS, **settings}
    engine.build(documents, path, encoder=ENCODER, representation=KMeans(2), **settings)
    return path


def found(index, query, **options):
    return [hit.id for hit in index.search(query, mode="lexical", typos=False, **options)]


@pytest.mark.parametrize("shards", [None, 2])
def test_fields_are_found_after_all_changes(tmp_path, shards):
    """Terms of fields follow additions, changes of metadata, merges and another encoder."""
    with Engine.open(build(tmp_path / "index", shards=shards), writable=True, encoder=ENCODER) as index:
        assert found(index, "zenith") == found(index, "4711") == found(index, "P-1001")[:1] == ["P-1001"]
        assert found(index, "acme kettle") in (["P-1001", "P-1002"], ["P-1002", "P-1001"])
        assert found(index, "grande") == ["P-1002"]
        assert found(index, "2.5") == ["P-1003"]
        assert found(index, "secret") == []
        index.add([{"id": "new", "text": "cup", "metadata": {"brand": "Zenith"}}])
        index.update_metadata("P-1002", {"brand": "Nadir"})
        index.commit()
        assert set(found(index, "zenith")) == {"P-1001", "new"}
        assert (found(index, "acme"), found(index, "nadir")) == ([], ["P-1002"])
        index.merge()
        assert (found(index, "acme"), found(index, "nadir")) == ([], ["P-1002"])
        assert found(index, "nadir iron", explain=True) == ["P-1002"]
        encoder = ENCODER if shards else OTHER
        if not shards:
            index.reencode(OTHER)
            assert found(index, "nadir") == ["P-1002"]
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        assert found(index, "nad*", operators=True) == ["P-1002"]
        assert found(index, '"P-1001" steel', operators=True) == ["P-1001"]
        assert found(index, '"1001 P"', operators=True) == []
        assert set(found(index, "zenith")) == {"P-1001", "new"}


def test_all_passages_have_the_terms_of_fields(tmp_path):
    text = " ".join(f"word{number}" for number in range(60))
    documents = [{"id": "long", "text": text, "metadata": {"brand": "Zenith", "sku": "x " * 600 + "end"}}]
    with Engine.open(build(tmp_path / "index", documents, passage_words=10), encoder=ENCODER) as index:
        hits = index.search("zenith word55", mode="lexical", unit="passage", explain=True)
        assert set(hits[0].terms) == {"word55"}  # the values of all fields together are long
    documents = [{"id": "long", "text": text, "metadata": {"brand": "Zenith"}}]
    with Engine.open(build(tmp_path / "other", documents, passage_words=10), encoder=ENCODER) as index:
        hits = index.search("zenith word55", mode="lexical", unit="passage", explain=True)
        assert set(hits[0].terms) == {"word55", "zenith"}


def test_documents_with_vectors_and_columns_have_them_too(tmp_path):
    documents = [{"id": "a", "vectors": [1.0, 0.0], "text": "cup", "metadata": {"brand": "Zenith"}}]
    engine.build(documents, tmp_path / "index", dim=2, searchable=["brand", "id"])
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add_columns(ids=["b7"], vectors=np.float32([[0, 1]]), metadata=[{"brand": "Nadir"}])
        index.commit()
        assert (found(index, "zenith"), found(index, "nadir"), found(index, "b7")) == (["a"], ["b7"], ["b7"])


@pytest.mark.parametrize("wrong", ["sku", {"sku": 1}, [1], [""], ["text"], ["x" * 256], 3, map(str, range(65))])
def test_wrong_fields_are_refused(tmp_path, wrong):
    with pytest.raises(InvalidSetting, match="searchable"):
        build(tmp_path / "index", searchable=wrong)


def test_the_command_names_fields(tmp_path):
    file = tmp_path / "goods.jsonl"
    file.write_text('{"id": "a", "text": "cup", "metadata": {"brand": "Zenith"}}\n')
    index, fields = str(tmp_path / "index"), ["--searchable", "brand", "--searchable", "id"]
    assert commands.main(["build", str(file), index, *fields]) == 0
    with Engine.open(index) as opened:
        assert found(opened, "zenith") == ["a"]


def test_an_index_that_exists_must_have_the_fields(tmp_path):
    path = build(tmp_path / "index")
    options = {"create": True, "encoder": ENCODER, "representation": KMeans(2)}
    Engine.open(path, searchable=PATHS, **options).close()
    with pytest.raises(InvalidSetting, match="another value of searchable"):
        Engine.open(path, searchable=["sku"], **options)


def test_files_are_found_by_their_names_and_mail_by_its_addresses(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    front = (
        '---\ntitle: "Tides: a note"\ntags:\n  - sea\n  - "#moon"\ndate: 2025-01-02 10:30\nother: x\n---\nWater.\n'
    )
    (folder / "budget-2025.md").write_text("Numbers alone.")
    (folder / "tides.md").write_text(front)
    (folder / "a.eml").write_text("From: Ann Lee <ann.lee@example.com>\nTo: bob@example.org\nSubject: Hi\n\nWater")
    engine.build(folder, tmp_path / "index", encoder=ENCODER, representation=KMeans(2))
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        assert found(index, "budget") == ["budget-2025.md"]
        assert found(index, "ann.lee@example.com")[0] == found(index, "bob@example.org")[0] == "a.eml"
        (tides,) = index.search("tides", mode="lexical", typos=False)
        assert (tides.title, tides.metadata["tags"]) == ("Tides: a note", ["sea", "moon"])
        assert tides.metadata["date"] == "2025-01-02T10:30:00"
        (folder / "ledger.md").write_text("Numbers alone.")
        index.sync(folder)
        assert found(index, "ledger") == ["ledger.md"]
