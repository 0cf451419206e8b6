"""The command ``quarry export-docs``."""

from __future__ import annotations

import json

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


def test_exported_documents_can_be_indexed_again(index, tmp_path):
    out = tmp_path / "docs.jsonl"
    assert run("export-docs", index, out) == 0
    assert len(out.read_bytes().splitlines()) == len(DOCS)
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
