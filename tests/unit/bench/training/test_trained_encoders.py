"""The comparison of trained encoders: its collections, and all ways to search."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.training.tiny_run import write_collection

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import encoders
from bench.training.collections import articles_by_title, held_out_articles, pairs_collection
from quarry.engine.bundled import DEFAULT_NAME
from quarry.engine.encoding.opening import open_encoder
from quarry.training.data.beir import draw_held_out_titles

SEARCHES = ["dense", "hybrid", "codes 24", "codes 8", "hybrid codes 24", "hybrid codes 8", "one vector"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUARRY_DATA", str(tmp_path))
    return tmp_path


def test_the_held_out_articles_are_those_that_training_leaves_out(data: Path) -> None:
    folder = write_collection(data / "letters")
    collection = held_out_articles("letters", 2, 5)
    titles = {text.partition("\n")[0] for text in collection.documents.values()}
    assert titles == draw_held_out_titles(folder, 2, ("Egypt", "London", "Melbourne"))
    assert (len(collection.documents), len(collection.queries)) == (8, 5)
    assert all(scores.keys() <= collection.documents.keys() for scores in collection.qrels.values())


def test_pairs_are_a_collection(data: Path) -> None:
    (data / "pairs").mkdir()
    lines = "".join(json.dumps({"q": f"question {each}", "d": f"answer {each}"}) + "\n" for each in range(5))
    (data / "pairs" / "few.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    collection = pairs_collection("few", 3)
    assert collection.queries == {"q0": "question 0", "q1": "question 1", "q2": "question 2"}
    assert collection.documents["d2"] == "answer 2"
    assert collection.qrels["q2"] == {"d2": 1}


def test_titles_are_queries_for_the_passages_of_their_articles(data: Path) -> None:
    (data / "all").mkdir()
    rows = [
        ("wiki-1-0", "Tides", "The sea rises."),
        ("wiki-1-1", "Tides", "It falls."),
        ("other", "Bread", "Rye."),
    ]
    rows += [("wiki-2-0", "", "No title."), ("wiki-3-0", "Yeast", "A fungus."), ("wiki-4-0", "Salt", "A mineral.")]
    lines = (json.dumps({"_id": key, "title": title, "text": text}) + "\n" for key, title, text in rows)
    (data / "all" / "corpus.jsonl").write_text("".join(lines))
    collection = articles_by_title("all", "wiki-", 2)
    assert collection.queries == {"q0": "Tides", "q1": "Yeast"}
    assert collection.documents == {"wiki-1-0": "The sea rises.", "wiki-1-1": "It falls.", "wiki-3-0": "A fungus."}
    assert collection.qrels == {"q0": {"wiki-1-0": 1, "wiki-1-1": 1}, "q1": {"wiki-3-0": 1}}


@pytest.fixture
def collection(small_corpus: list[dict[str, object]]) -> Collection:
    """Return a collection in which every fourth document is also a query."""
    documents = {str(each["id"]): str(each["text"]) for each in small_corpus}
    first = [str(each["id"]) for each in small_corpus[::4]]
    queries = {f"q{name}": documents[name] for name in first}
    return Collection("small", "test", documents, queries, {f"q{name}": {name: 1} for name in first})


def test_every_way_to_search_is_measured(collection: Collection) -> None:
    found = {search: quality for search, _, quality in encoders.measure(collection, open_encoder())}
    assert list(found) == SEARCHES
    assert found["dense"].ndcg_10 == found["one vector"].ndcg_10 == 1
    assert found["hybrid"].ndcg_10 == 1


def test_the_command_records_every_way_to_search(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["trained_encoders"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    monkeypatch.setitem(encoders.COLLECTIONS, "cranfield", lambda: collection)
    out = tmp_path / "results.jsonl"
    arguments = ["trained_encoders", "bundled", "--on", "cranfield", "--seeds", "0", "1", "--out", str(out)]
    assert main(arguments) == 0
    records = read_records(out)
    measured = [(each["search"], each["seed"]) for each in records]
    assert sorted(measured) == sorted(
        [(each, 0) for each in SEARCHES] + [(each, 1) for each in SEARCHES if each.startswith("codes")]
    )
    assert records[0]["ndcg_10"] == 1
    assert records[0]["encoder"] == DEFAULT_NAME
