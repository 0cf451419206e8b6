"""The command ``quarry export-docs``."""

from __future__ import annotations

import json
from pydoc_data.topics import topics

import pytest
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import Document, Engine
from quarry.engine.cli.commands import main

DOCS = [
    Document(
        "a é\n",
        "line one\nline two \u2028 \N{HONEYBEE}",
        "title",
        {"n": 1 << 62, "f": 0.1, "l": [None, {"x": ""}]},
    ),
    Document("b", "", "only a title"),
    Document("c", "only a text"),
]


@pytest.fixture(params=[None, 2], ids=["whole", "sharded"])
def index(request, tmp_path):
    engine.build(DOCS, tmp_path / "index", encoder=ENCODER, shards=request.param)
    return tmp_path / "index"


def run(*words):
    return main([str(word) for word in words])


def content(path):
    with Engine.open(path, encoder=ENCODER) as index:
        return sorted((doc.id, doc.text, doc.title, repr(doc.metadata)) for doc in index)


def test_exported_documents_can_be_indexed_again(index, tmp_path, capsys):
    out = tmp_path / "docs.jsonl"
    assert run("export-docs", index, out) == 0
    assert len(out.read_bytes().splitlines()) == len(DOCS)
    capsys.readouterr()
    assert run("export-docs", index, out, "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"n_documents": 3, "has_vectors": False}
    engine.build(out, tmp_path / "again", encoder=ENCODER)
    assert content(tmp_path / "again") == content(index)


def test_standard_output(index, tmp_path, capfdbinary):
    assert run("export-docs", index) == 0
    out, err = capfdbinary.readouterr()
    assert (sorted(json.loads(line)["id"] for line in out.splitlines()), err) == (["a é\n", "b", "c"], b"")


def test_filters_and_ids(index, capfdbinary):
    assert run("export-docs", index, "--filter", '{"title": {"$exists": true}}', "--ids") == 0
    assert sorted(map(json.loads, capfdbinary.readouterr().out.splitlines())) == ["a é\n", "b"]


def test_a_file_is_replaced_only_on_request(index, tmp_path, capsys):
    out = tmp_path / "docs.jsonl"
    out.write_text("mine")
    assert run("export-docs", index, out) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert run("export-docs", index, out, "--overwrite") == 0
    assert out.read_text() != "mine"


def test_nothing_is_left_of_an_export_that_failed(index, tmp_path, capsys):
    before = sorted(tmp_path.iterdir())
    assert run("export-docs", index, tmp_path / "docs.jsonl", "--filter", '{"n": "text"}') == 1
    assert run("export-docs", index, tmp_path / "nowhere" / "docs.jsonl") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("settings", [{}, {"metric": "l2"}, {"centroids": "float16"}])
def test_given_vectors_come_back(tmp_path, capsys, shards, settings):
    rows = [
        {"id": "a", "text": "text", "vectors": [[1.0, 2, 3], [0, 1, 1]], "spans": [[0, 2], [2, 4]]},
        {"id": "b", "vectors": [1.0, 2, 3]},
        {"id": "c", "text": "w1", "vectors": [3.0, 2, 1]},
    ]
    engine.build(rows, tmp_path / "index", dim=3, shards=shards, **settings)
    assert run("export-docs", tmp_path / "index", tmp_path / "out.jsonl") == 0
    assert "with vectors" in capsys.readouterr().err
    more = ["--shards", shards] if shards else []
    assert run("build", tmp_path / "out.jsonl", tmp_path / "back", "--like", tmp_path / "index", *more) == 0
    with Engine.open(tmp_path / "index") as before, Engine.open(tmp_path / "back") as after:
        documents = (each.get(["a", "b", "c"], vectors=True) for each in (before, after))
        for old, new in zip(*documents, strict=True):
            assert (old, old.spans) == (new, new.spans)
            assert old.vectors == pytest.approx(new.vectors, abs=0.02)
    capsys.readouterr()
    assert run("export-docs", tmp_path / "index", "--ids") == 0
    assert capsys.readouterr().err == ""


def test_vectors_of_an_index_with_an_encoder(tmp_path, capsys):
    engine.build([{"id": "a", "text": "w1", "vectors": [1.0] * ENCODER.dim}], tmp_path / "index", encoder=ENCODER)
    assert run("export-docs", tmp_path / "index", tmp_path / "out.jsonl", "--vectors") == 0
    engine.build(tmp_path / "out.jsonl", tmp_path / "again", encoder=ENCODER)
    with Engine.open(tmp_path / "index") as before, Engine.open(tmp_path / "again") as after:
        old, new = (each.get("a", vectors=True)[0].vectors for each in (before, after))
        assert old == pytest.approx(new, abs=0.01)
    capsys.readouterr()


@pytest.mark.parametrize("centroids", ["int8", "none"])
def test_an_index_of_exported_vectors_gives_the_same_answers(tmp_path, centroids, capsys):
    """Answers are the same to the last bit, passages of long documents included."""
    names = ("assert", "power", "integers", "truth", "numbers")
    docs = [{"id": name, "text": topics[name] * n, "metadata": {"n": n}} for n, name in enumerate(names, 1)]
    engine.build(docs, tmp_path / "index", centroids=centroids)
    assert run("export-docs", tmp_path / "index", tmp_path / "out.jsonl", "--vectors") == 0
    assert run("build", tmp_path / "out.jsonl", tmp_path / "back", "--like", tmp_path / "index") == 0
    capsys.readouterr()
    for unit in ("document", "passage"):
        answers = []
        for folder in ("index", "back"):
            with Engine.open(tmp_path / folder) as index:
                hits = index.search("which numbers are true?", unit=unit)
                answers.append([(hit.id, hit.passage, hit.score, hit.relevance) for hit in hits])
        assert answers[0] == answers[1]
        assert len(answers[0]) >= len(names)


def test_control_characters_are_escaped(tmp_path, capfdbinary):
    text = "w1 \x1b[2J\x9b\x7f"
    engine.build([{"id": "a", "text": text}], tmp_path / "index", encoder=ENCODER)
    assert run("export-docs", tmp_path / "index") == 0
    out = capfdbinary.readouterr().out
    assert out[:-1].decode().isprintable()
    assert json.loads(out)["text"] == text
