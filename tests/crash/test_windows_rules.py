"""All changes of an index succeed under the rules of Windows for open files, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
import sys

import pytest
from support.faults.windows_rules import WindowsRules
from support.indexes.changes import (
    AFTER,
    CHANGES,
    NEW,
    OLD,
    SMALL,
    SMALL_MERGED_OFTEN,
    content,
    documents,
    open_index,
    options,
    prepare,
    stray_files,
    work,
)
from support.indexes.sharded import ENCODER, random_documents
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import AccessFailed, Engine
from quarry.formats.container.directory import Directory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the lists of open files")


@pytest.fixture
def rules(tmp_path):
    with WindowsRules(tmp_path).installed() as rules:
        yield rules


def test_the_rules(tmp_path, rules):
    """What Windows refuses is refused, for every way to make the call, and nothing else."""
    folder = tmp_path / "folder"
    folder.mkdir()
    opened, free, link = folder / "opened", folder / "free", folder / "link"
    for path in (opened, free):
        path.write_bytes(b"content")
    mapped = Directory(folder).map("opened")
    os.link(opened, link)
    refused = [
        opened.unlink,
        lambda: link.rename(folder / "other"),
        lambda: free.replace(opened),
        lambda: shutil.rmtree(folder),
        lambda: folder.rename(tmp_path / "other"),
    ]
    for call in refused:
        with pytest.raises(PermissionError) as caught:
            call()
        assert caught.value.errno == errno.EACCES
    free.write_bytes(b"content")
    with pytest.raises(FileExistsError):
        free.rename(opened)
    mapped.close()
    free.replace(opened)
    folder.rename(tmp_path / "other")
    shutil.rmtree(tmp_path / "other")
    assert not hasattr(os, "fork")


@pytest.mark.parametrize("change", CHANGES)
def test_a_change(tmp_path, rules, change):
    path = tmp_path / "index"
    prepare(change, path, SMALL_MERGED_OFTEN if change == "background merge" else SMALL)
    work(change, path)
    assert content(path) == AFTER[change]
    assert not stray_files(path)


def test_a_change_beside_a_reader_of_the_same_process(tmp_path, rules):
    """A reader keeps its files, and a later writer deletes them."""
    path = tmp_path / "index"
    prepare("commit", path)
    with open_index(path) as reader:
        work("overwrite", path)
        assert {doc.text for doc in reader.documents()} == set(OLD.values())
        assert stray_files(path)
        reader.refresh()
        assert {doc.text for doc in reader.documents()} == set(NEW.values())
    open_index(path, writable=True).close()
    assert not stray_files(path)


def test_an_engine_deletes_when_it_closes_what_it_had_open(tmp_path, rules):
    path = tmp_path / "index"
    engine.build(documents(OLD), path, **options())
    with open_index(path, writable=True) as index:
        index.search("old text1")
        index.add(documents(NEW))
        index.commit()
        index.merge()
        index.delete(["old1"])
        index.commit()
        assert any(each.startswith("unlink") for each in rules.refused)
    assert not stray_files(path)


def test_a_segment_that_was_deleted_and_is_added_again(tmp_path, rules):
    """Its file is still open in the index, where it cannot be replaced."""
    path = tmp_path / "index"
    engine.build(documents(OLD), path, **options())
    with open_index(path, writable=True) as index:
        index.snapshot(tmp_path / "copy")
        index.add(documents(NEW))
        index.delete(list(OLD))
        index.commit()
        index.add_indexes([tmp_path / "copy"])
        assert {doc.text for doc in index.get(list(OLD))} == set(OLD.values())
        index.verify()
    with open_index(path) as index:
        assert len(index) == len({**OLD, **NEW})
    assert not stray_files(path)


@pytest.mark.parametrize("shards", [None, 2])
def test_snapshot(tmp_path, rules, shards):
    engine.build(random_documents(20), tmp_path / "index", encoder=ENCODER, shards=shards)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        report = index.snapshot(tmp_path / "copy")
    assert 0 < report.n_linked < report.n_files
    with Engine.open(tmp_path / "copy", encoder=ENCODER) as copy:
        assert copy.verify().n_documents == 20


def test_shards(tmp_path, rules):
    path = tmp_path / "index"
    for n_shards in (2, 3):
        engine.build(random_documents(20), path, encoder=ENCODER, shards=n_shards, overwrite=True)
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.delete(["document 0001"])
            index.commit()
            index.merge()
            assert index.verify().n_documents == 19
    assert len([each for each in path.iterdir() if each.is_dir()]) == 3


def test_reencode(tmp_path, rules):
    """The work index is deleted when its files are closed; what a process left of one, by the next writer."""
    path, work = tmp_path / "index", tmp_path / "index" / "reencoding"
    engine.build(documents(OLD), path, encoder=WordEncoder(dim=16), threads=1)
    with Engine.open(path, writable=True, encoder=WordEncoder(dim=16)) as index:
        index.reencode(WordEncoder(dim=8))
        assert index.search("old text1", k=1)[0].id == "old1"
        assert list(work.glob("*.seg"))
    assert not stray_files(path)
    work.mkdir()
    (work / f"{0:032d}.seg").write_bytes(b"without a manifest")
    Engine.open(path, writable=True).close()
    assert not stray_files(path)
    work.mkdir()
    (work / "notes.txt").write_bytes(b"of someone else")
    Engine.open(path, writable=True).close()
    assert (work / "notes.txt").exists()


def test_sync(tmp_path, rules):
    path, folder = tmp_path / "index", tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("an apple", "utf-8")
    (folder / "b.txt").write_text("a pear", "utf-8")
    with Engine.open(path, create=True, writable=True, encoder=ENCODER) as index:
        index.sync(folder)
        (folder / "a.txt").unlink()
        (folder / "b.txt").write_text("a plum", "utf-8")
        index.sync(folder)
        assert [doc.text for doc in index.documents()] == ["a plum"]
    assert not stray_files(path)


def test_a_failed_build_leaves_no_folder(tmp_path, rules):
    def broken():
        yield {"id": "a", "text": "a"}
        raise KeyError

    with pytest.raises(KeyError):
        engine.build(broken(), tmp_path / "index", encoder=ENCODER)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("is_soon_gone", [True, False])
def test_a_reader_beside_a_commit(tmp_path, rules, is_soon_gone):
    """A manifest that is being deleted refuses to open: the reader opens the next one."""
    path = tmp_path / "index"
    prepare("commit", path)
    with open_index(path, writable=True) as writer:
        writer.delete(["old1"])

        def commit():
            writer.commit()
            if is_soon_gone:
                rules.changing.clear()

        rules.changing.add(max(path.glob("MANIFEST-*")).name)
        rules.when_refused = commit
        with open_index(path) as reader:
            assert len(reader) == len(OLD) - 1


def test_a_rename_waits_for_others(tmp_path, rules):
    """Scanners of viruses open new files for a moment."""
    directory = Directory(tmp_path)
    directory.create("a.tmp").close()
    rules.when_refused = (tmp_path / "a.tmp").open("rb").close
    directory.rename("a.tmp", "a.seg")
    assert (directory.names(), rules.refused) == (["a.seg"], ["rename a.tmp"])


def test_what_stays_closed_is_an_error(tmp_path, rules):
    path = tmp_path / "index"
    prepare("commit", path)
    rules.changing.add(max(path.glob("*.seg")).name)
    with pytest.raises(AccessFailed) as caught:
        open_index(path)
    assert caught.value.errno == errno.EACCES
