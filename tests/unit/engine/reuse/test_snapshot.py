"""`Engine.snapshot` makes complete copies of indexes that may be changing."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading

import pytest
from support.faults.system_calls import ReadOnlyMedium
from support.indexes.changes import OLD, SMALL, content, documents, open_index, options, prepare, stray_files
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import (
    AccessFailed,
    CorruptFile,
    Engine,
    FormatError,
    IndexClosed,
    IndexExists,
    IndexLocked,
    IndexNotFound,
    InvalidSetting,
)
from quarry.engine.cli.commands import main
from quarry.formats.write_lock import WriteLock


@pytest.fixture
def path(tmp_path):
    """Build an index with tombstones, a quantizer and a graph."""
    prepare("commit", tmp_path / "index")
    with open_index(tmp_path / "index", writable=True) as index:
        assert index.optimize()
    return tmp_path / "index"


@pytest.fixture
def no_links(monkeypatch):
    """Model file systems without hard links."""

    def refuse(*_, **__):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)


def kinds(folder):
    return sorted(file.suffix for file in folder.iterdir())


def check_equal(first, second):
    with open_index(first) as one, open_index(second) as other:
        for query in ("old text3", "text5"):
            assert columns(one.search(query)) == columns(other.search(query))
        assert one.verify() == other.verify()


@pytest.mark.parametrize("kind", ["links", "copies"])
def test_a_snapshot_is_a_whole_index(path, tmp_path, kind, request):
    if kind == "copies":
        request.getfixturevalue("no_links")
    with open_index(path) as index:
        report = index.snapshot(tmp_path / "above" / "copy")
        assert report.generation == index.stats()["generation"]
    assert report.n_linked == (report.n_files - 1 if kind == "links" else 0)  # the manifest is copied
    assert report.n_documents == len(OLD)
    assert kinds(tmp_path / "above" / "copy") == kinds(path)
    files = [file for file in path.iterdir() if file.name != "write.lock"]
    assert report.n_bytes == sum(file.stat().st_size for file in files)
    for file in files:
        copy = tmp_path / "above" / "copy" / file.name
        assert copy.read_bytes() == file.read_bytes()
        assert copy.samefile(file) == (kind == "links" and not file.name.startswith("MANIFEST"))
    check_equal(path, tmp_path / "above" / "copy")


@pytest.mark.parametrize("changed", ["source", "copy"])
def test_source_and_snapshot_live_by_themselves(path, tmp_path, changed):
    with open_index(path) as index:
        index.snapshot(tmp_path / "copy")
    first, second = (path, tmp_path / "copy") if changed == "source" else (tmp_path / "copy", path)
    with open_index(first, writable=True) as index:
        index.add(documents({"old0": "another", "more": "text"}))
        index.commit()
        index.merge(retrain=True)
    assert content(second) == OLD
    shutil.rmtree(first)
    assert content(second) == OLD


def test_changes_that_are_not_committed_are_left_out(path, tmp_path):
    with open_index(path, writable=True) as index:
        index.add(documents({"new": "text"}))
        index.delete("old0")
        index.snapshot(tmp_path / "copy")
        assert content(tmp_path / "copy") == OLD
        index.commit()
        index.snapshot(tmp_path / "later")
    with open_index(tmp_path / "later") as later:
        assert "new" in later
        assert "old0" not in later


@pytest.mark.parametrize("kind", ["links", "copies"])
def test_while_a_writer_commits_and_collects_garbage(tmp_path, kind, request):
    if kind == "copies":
        request.getfixturevalue("no_links")
    path = tmp_path / "index"
    engine.build(documents(OLD), path, **options())
    is_over = threading.Event()

    def change():
        with Engine.open(path, writable=True, encoder=options()["encoder"], thresholds=SMALL, threads=1) as writer:
            number = 0
            while not is_over.is_set():
                writer.add(documents({"turn": f"text{number}"}))
                writer.commit()
                writer.merge()
                number += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with open_index(path) as reader:  # of a generation whose files are deleted soon
            for number in range(10):
                reader.snapshot(tmp_path / str(number))
    finally:
        is_over.set()
        thread.join()
    for number in range(10):
        with open_index(tmp_path / str(number)) as index:
            index.verify()
            assert set(OLD) <= {doc.id for doc in index.get([*OLD, "turn"])}
        assert not stray_files(tmp_path / str(number))


def test_a_snapshot_of_shards(tmp_path):
    engine.build(random_documents(60), tmp_path / "index", encoder=ENCODER, shards=3)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as index:
        index.delete("document 0007")
        index.commit()
        report = index.snapshot(tmp_path / "copy")
        assert report.n_linked == report.n_files - 4  # manifests are copied, and the shard set names new folders
        assert report.n_documents == len(index) == 59
        expected = [columns(hits) for hits in index.search(random_queries(10))]
        index.delete("document 0008")
        index.commit()
    with Engine.open(tmp_path / "copy", encoder=ENCODER, writable=True) as copy:
        found = copy.verify()
        assert (found.n_files, found.n_bytes, found.n_documents) == (report.n_files, report.n_bytes, 59)
        assert [columns(hits) for hits in copy.search(random_queries(10))] == expected
        copy.delete("document 0009")
        copy.commit()
    with Engine.open(tmp_path / "index") as index:
        assert "document 0009" in index


@pytest.mark.parametrize("shards", [None, 2])
def test_a_snapshot_of_an_empty_index(tmp_path, shards):
    engine.build([], tmp_path / "index", shards=shards, **options())
    with open_index(tmp_path / "index") as index:
        assert index.snapshot(tmp_path / "copy").n_documents == 0
    with open_index(tmp_path / "copy", writable=True) as copy:
        copy.add(documents(OLD))
        copy.commit()
        assert len(copy) == len(OLD)


def test_an_index_in_the_way(path, tmp_path):
    engine.build(["mine"], tmp_path / "other", **options())
    with open_index(path) as index:
        for target in (path, tmp_path / "other"):
            with pytest.raises(IndexExists, match="does not exist, or is empty") as refused:
                index.snapshot(target)
            assert "overwrite" not in str(refused.value)
        (tmp_path / "file").write_text("mine")
        with pytest.raises(IndexExists, match="a file is in the way"):
            index.snapshot(tmp_path / "file")
        (tmp_path / "busy").mkdir()
        lock = WriteLock(tmp_path / "busy")
        with pytest.raises(IndexLocked):
            index.snapshot(tmp_path / "busy")
        lock.release()
        with pytest.raises(InvalidSetting):
            index.snapshot("")
    with pytest.raises(IndexClosed):
        index.snapshot(tmp_path / "copy")
    assert content(path) == OLD
    assert not (tmp_path / "copy").exists()


def test_a_relative_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_index("index") as index:
        index.snapshot("copy")
        index.snapshot("index/inside")
    check_equal(path, tmp_path / "copy")
    check_equal(path, path / "inside")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_a_missing_file_of_the_source(path, tmp_path):
    with open_index(path) as index:
        next(path.glob("*.seg")).unlink()
        with pytest.raises(CorruptFile, match="a file of the index is missing"):
            index.snapshot(tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_a_truncated_file_of_the_source(path, tmp_path):
    with open_index(path) as index:
        file = next(path.glob("*.seg"))
        content_before = file.read_bytes()
        file.unlink()
        file.write_bytes(content_before[:5000])
        with pytest.raises(FormatError):
            index.snapshot(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_an_index_that_was_deleted(path, tmp_path):
    with open_index(path) as index:
        shutil.rmtree(path)
        with pytest.raises(IndexNotFound):
            index.snapshot(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_medium_that_cannot_be_written(path, tmp_path):
    with (
        open_index(path) as index,
        ReadOnlyMedium().installed(),
        pytest.raises(AccessFailed, match="can be written"),
    ):
        index.snapshot(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_on_the_command_line(path, tmp_path, capsys):
    assert main(["snapshot", str(path), str(tmp_path / "copy")]) == 0
    assert "n_linked" in capsys.readouterr().out
    check_equal(path, tmp_path / "copy")
    assert main(["snapshot", str(path), str(tmp_path / "copy")]) == 1
    assert "there is an index already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mine.txt", "my notes.txt", "folder", "index.seg"])
def test_a_folder_with_other_files_is_refused_and_left_alone(path, tmp_path, name):
    target = tmp_path / "docs"
    target.mkdir()
    (target / name).mkdir() if name == "folder" else (target / name).write_text("mine")
    with open_index(path) as index:
        with pytest.raises(
            InvalidSetting, match=f"docs: the folder of the snapshot has other files.*found {name}"
        ):
            index.snapshot(target)
        assert [each.name for each in target.iterdir()] == [name]
        (target / name).rmdir() if name == "folder" else (target / name).unlink()
        (target / f"{'0' * 32}.seg").write_text("of a snapshot that was killed")
        (target / "write.lock").write_text("")
        index.snapshot(target)
    check_equal(path, target)
