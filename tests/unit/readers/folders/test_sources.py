"""Files and folders as sources of documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.engine import Engine, build
from quarry.engine.documents.entries import ReadyEntry, RefusedEntry
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.readers.folders.sources import open_file, open_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"b.txt": "on bread", "a/c.md": "# Tea\n\nIt is brewed.", "x.bin": "no document"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_folder_yields_the_documents_of_its_files(folder: Path) -> None:
    source = open_folder(folder, Columns(), None)
    assert len(source) == 2
    assert source.fraction_read() == 0
    entries = iter(source)
    first = next(entries)
    assert isinstance(first, ReadyEntry)
    assert (first.document().id, "brewed" in first.document().text) == ("a/c.md", True)
    (second,) = entries
    assert isinstance(second, ReadyEntry)
    assert (second.document().id, second.document().text) == ("b.txt", "on bread")
    assert source.fraction_read() == 1


def test_a_file_that_is_refused_does_not_stop_the_others(folder: Path) -> None:
    (folder / "a" / "bad.txt").write_bytes(b"\x00\x01\x02 no text")
    kinds = [type(entry) for entry in open_folder(folder, Columns(), None)]
    assert kinds == [RefusedEntry, ReadyEntry, ReadyEntry]


def test_a_second_document_with_the_same_id_is_refused_as_by_sync(folder: Path, tmp_path_factory) -> None:
    (folder / "t.csv").write_text("id,text\n7,one\n8,two\n7,three\n", encoding="utf-8")
    (folder / "u.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', encoding="utf-8")
    problems = r"t.csv: row 3.*'t.csv#7', which a document of 't.csv' has too.*u.jsonl: row 2.*'u.jsonl#a'"
    index = tmp_path_factory.mktemp("index") / "index"
    report = build(folder, index, encoder=WordEncoder(), skip_invalid=True)
    assert report.n_skipped == 2
    assert report.n_replaced == 0
    assert re.search(problems, " ".join(report.skipped))
    with Engine.open(index, encoder=WordEncoder(), writable=True) as opened:
        assert [each.text for each in opened.get(["t.csv#7", "u.jsonl#a"])] == ["one", "x"]
        opened.delete(opened.ids())
        opened.commit()
        assert set(opened.sync(folder).failed) == {"t.csv", "u.jsonl"}
        with pytest.raises(InvalidDocument, match=r"row 3.*which a document of 't.csv' has too"):
            opened.add(folder)
    with pytest.raises(InvalidDocument, match=r"row 3.*which a document of 't.csv' has too"):
        build(folder, index, encoder=WordEncoder(), overwrite=True)


def test_one_file(folder: Path) -> None:
    source = open_file(folder / "b.txt", Columns(), None)
    assert source.fraction_read() == 0
    (entry,) = source
    assert isinstance(entry, ReadyEntry)
    assert entry.document().id == "b.txt"
    assert source.fraction_read() == 1


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(InvalidSetting, match="without a file that is read"):
        open_folder(tmp_path, Columns(), None)
