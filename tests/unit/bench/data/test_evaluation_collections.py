"""The collections that encoders and ranking are compared on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.training.tiny_run import write_collection

from bench.data.collections import Collection
from bench.data.evaluation_collections import (
    articles_by_title,
    held_out_articles,
    join_documents,
    pairs_collection,
)
from quarry.training.data.beir import draw_held_out_titles


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


def test_paragraphs_of_an_article_are_joined() -> None:
    documents = {"a": "one\nx", "b": "one\ny", "c": "one\nz", "d": "two\nu", "e": "one\nv"}
    qrels = {"q": {"b": 1, "c": 2}, "r": {"d": 1, "a": 0}}
    joined = join_documents(Collection("n", "dev", documents, {"q": "", "r": ""}, qrels), 2)
    assert joined.documents == {"a": "one\nx\ny", "c": "one\nz", "d": "two\nu", "e": "one\nv"}
    assert joined.qrels == {"q": {"a": 1, "c": 2}, "r": {"d": 1, "a": 0}}
    assert join_documents(joined, 1) == joined
