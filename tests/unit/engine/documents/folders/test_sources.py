"""Files and folders as sources of documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarry.engine.documents.entries import ReadyEntry, RefusedEntry
from quarry.engine.documents.folders.sources import FileDocuments, FolderDocuments
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidSetting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"b.txt": "on bread", "a/c.md": "# Tea\n\nIt is brewed.", "x.bin": "no document"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_folder_yields_the_documents_of_its_files(folder: Path) -> None:
    source = FolderDocuments(folder, Columns())
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
    kinds = [type(entry) for entry in FolderDocuments(folder, Columns())]
    assert kinds == [RefusedEntry, ReadyEntry, ReadyEntry]


def test_one_file(folder: Path) -> None:
    source = FileDocuments(folder / "b.txt", "text", Columns())
    assert source.fraction_read() == 0
    (entry,) = source
    assert isinstance(entry, ReadyEntry)
    assert entry.document().id == "b.txt"
    assert source.fraction_read() == 1


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(InvalidSetting, match="without a file that is read"):
        FolderDocuments(tmp_path, Columns())
