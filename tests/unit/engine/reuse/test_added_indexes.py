"""`Engine.add_indexes` adds whole segments of other indexes without encoding again."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
import threading

import pytest
from support.indexes.changes import OFTEN, SMALL, documents, open_index, options, stray_files
from support.indexes.inside import view_of, wait_for_merges
from support.indexes.sharded import columns, random_documents, random_queries
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import (
    CorruptFile,
    EncoderMismatch,
    Engine,
    FormatError,
    IndexNotFound,
    InvalidSetting,
    KMeans,
    ReadOnlyIndex,
)
from quarry.engine.cli.commands import main
from quarry.engine.thresholds import Thresholds

ENCODER = WordEncoder(dim=16)
LISTS = Thresholds(calibration_queries=64, list_rows=30, training_rows=30, graph_rows=8)
DOCUMENTS = random_documents(300)
QUERIES = random_queries(45)


def build(docs, path, **given):
    return engine.build(docs, path, **({"encoder": ENCODER, "thresholds": LISTS, "code_bytes": 4} | given))


def opened(path, **given):
    return Engine.open(path, **({"encoder": ENCODER, "thresholds": LISTS, "threads": 1} | given))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Build five indexes with the quantizer of the first, and one with the documents of all."""
    folder = tmp_path_factory.mktemp("parts")
    build(DOCUMENTS[:60], folder / "0")
    for number in range(1, 5):
        part = DOCUMENTS[60 * number : 60 * (number + 1)]
        build(part, folder / str(number), like=folder / "0", code_bytes=None)
    build(DOCUMENTS, folder / "whole", like=folder / "0", code_bytes=None)
    return folder


def copied(parts, tmp_path, name="0"):
    shutil.copytree(parts / name, tmp_path / "index")
    return tmp_path / "index"


def ids(index):
    return {document["id"] for document in DOCUMENTS if document["id"] in index}


@pytest.mark.parametrize("backend", ["exact", "cpu_faiss"])
def test_answers_are_those_of_one_build(parts, tmp_path, backend):
    path = copied(parts, tmp_path)
    with opened(path, writable=True) as index:
        report = index.add_indexes([parts / str(number) for number in range(1, 5)])
        assert (report.n_documents, report.n_replaced, report.n_segments) == (240, 0, 4)
        assert report.n_linked == 4
        assert report.generation == index.stats()["generation"]
        index.verify()
    with opened(parts / "whole", backend=backend) as whole, opened(path, backend=backend) as index:
        assert len(index) == len(whole) == 300
        for mode in ("hybrid", "dense", "lexical"):
            # segments have their own lists and candidates, so only searches of all of them agree
            everything = {} if backend == "exact" else {"nprobe": 1000, "candidates": 300}
            for query in QUERIES:
                expected = whole.search(query, mode=mode, **everything)
                assert columns(index.search(query, mode=mode, **everything)) == columns(expected)
    with opened(path, writable=True) as index:
        index.merge()
        assert index.stats()["n_segments"] == 1
    with opened(parts / "whole", backend=backend) as whole, opened(path, backend=backend) as index:
        assert [columns(index.search(query)) for query in QUERIES] == [
            columns(whole.search(query)) for query in QUERIES
        ]


def test_codes_alone(tmp_path):
    build(DOCUMENTS[:100], tmp_path / "a", centroids="none")
    build(DOCUMENTS[100:200], tmp_path / "b", like=tmp_path / "a", code_bytes=None)
    build(DOCUMENTS, tmp_path / "other", centroids="none", seed=3)  # another quantizer
    with opened(tmp_path / "a", writable=True) as index:
        index.add_indexes([tmp_path / "b"])
        assert len(list((tmp_path / "a").glob("*.quant"))) == 1
        index.add_indexes([tmp_path / "other"])
        assert len(index) == 300
        index.add([{"id": "new", "text": "w1"}])
        index.commit()
        index.merge()
        assert index.verify().n_documents == 301
        assert index.search("w1", k=300)


def test_the_newest_quantizer_of_the_index_stays(parts, tmp_path):
    build(DOCUMENTS[200:], tmp_path / "other", seed=5)
    path = copied(parts, tmp_path)
    with opened(path, writable=True) as index:
        before = view_of(index).partitions[0].snapshot.manifest.quantizers[-1]
        index.add_indexes(tmp_path / "other")
        after = view_of(index).partitions[0].snapshot.manifest.quantizers
        assert len(after) == 2
        assert after[-1] == before
        index.merge()
        assert view_of(index).partitions[0].snapshot.manifest.quantizers == (before,)


def test_equal_ids(tmp_path):
    """The last document with an id is kept; documents deleted in an added index are skipped and delete nothing."""
    contents = {
        "index": {"a": "this", "b": "this", "c": "this", "d": "this", "e": "this"},
        "first": {"b": "first", "c": "first", "d": "gone", "f": "first", "g": "first"},
        "second": {"c": "second", "f": "gone", "g": "second", "h": "second"},
    }
    for name, texts in contents.items():
        build(documents(texts), tmp_path / name)
    for name, doc_id in (("first", "d"), ("second", "f"), ("index", "e")):
        with opened(tmp_path / name, writable=True) as index:
            index.delete(doc_id)
            index.commit()
    with opened(tmp_path / "index", writable=True) as index:
        report = index.add_indexes([tmp_path / "first", tmp_path / "second"])
        assert (report.n_documents, report.n_replaced) == (7, 4)
        found = {doc.id: doc.text for doc in index.get(list("abcdefgh"))}
        assert found == {
            "a": "this", "b": "first", "c": "second", "d": "this", "f": "first", "g": "second", "h": "second"
        }  # fmt: skip
        assert len(index) == 7
        index.merge()
        assert {doc.id: doc.text for doc in index.get(list("abcdefgh"))} == found
        index.verify()
    for name in ("first", "second"):
        with opened(tmp_path / name) as other:
            assert other.verify().n_documents == len(contents[name]) - 1


def test_an_index_that_replaces_everything(tmp_path):
    build(documents({"a": "one", "b": "two"}), tmp_path / "index")
    build(documents({"a": "three", "b": "four", "c": "five"}), tmp_path / "other")
    with opened(tmp_path / "index", writable=True) as index:
        index.add_indexes(tmp_path / "other")
        assert index.stats()["n_segments"] == 1
        assert [doc.text for doc in index.get(list("abc"))] == ["three", "four", "five"]
        index.verify()
    assert not stray_files(tmp_path / "index")


@pytest.mark.parametrize("order", [["other", "other"], ["copy"], ["other", "copy", "other"]])
def test_a_segment_that_is_there_already(tmp_path, order):
    """If an index is added twice, or a snapshot of this one is added, its documents are live again."""
    build(documents({"a": "one", "b": "two"}), tmp_path / "index")
    build(documents({"b": "other", "c": "other"}), tmp_path / "other")
    with opened(tmp_path / "index", writable=True) as index:
        index.snapshot(tmp_path / "copy")
        index.delete("a")
        index.add(documents({"b": "newer"}))
        index.commit()
        index.add_indexes([tmp_path / name for name in order])
        expected = {"b": "newer"}
        for name in order:
            expected |= {"b": "other", "c": "other"} if name == "other" else {"a": "one", "b": "two"}
        assert {doc.id: doc.text for doc in index.get(list("abc"))} == expected
        assert len(index) == len(expected)
        index.verify()
        index.merge()
        assert {doc.id: doc.text for doc in index.get(list("abc"))} == expected


@pytest.mark.parametrize("seed", range(3))
def test_random_indexes_against_a_dictionary(tmp_path, seed):
    generator = random.Random(seed)
    expected, paths = {}, []
    for number in range(4):
        path = tmp_path / str(number)
        texts = {f"d{generator.randrange(30)}": f"text{generator.randrange(99)}" for _ in range(20)}
        build(documents(texts), path, thresholds=LISTS)
        with opened(path, writable=True) as index:
            for _ in range(generator.randrange(3)):
                changed = {f"d{generator.randrange(30)}": f"newer{generator.randrange(99)}" for _ in range(3)}
                gone = [doc_id for doc_id in generator.sample(sorted(texts), 3) if doc_id not in changed]
                index.add(documents(changed))
                index.delete(gone)
                index.commit()
                texts = {doc_id: text for doc_id, text in (texts | changed).items() if doc_id not in gone}
            if generator.random() < 0.5:
                index.snapshot(tmp_path / f"{number} copy")
        expected |= texts
        paths.append(path)
    with opened(
        paths[0], writable=True, thresholds=Thresholds(calibration_queries=64, list_rows=30, merging=OFTEN)
    ) as index:
        index.add_indexes(paths[1:])
        assert {doc.id: doc.text for doc in index.get([f"d{n}" for n in range(30)])} == expected
        wait_for_merges(index)
        assert {doc.id: doc.text for doc in index.get([f"d{n}" for n in range(30)])} == expected
        assert index.verify().n_documents == len(expected)
    assert not stray_files(paths[0])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_the_others_may_be_deleted_and_live_on(parts, tmp_path):
    path = copied(parts, tmp_path)
    shutil.copytree(parts / "1", tmp_path / "one")
    shutil.copytree(parts / "2", tmp_path / "two")
    with opened(path, writable=True) as index:
        index.add_indexes([tmp_path / "one", tmp_path / "two"])
        shutil.rmtree(tmp_path / "one")
        index.merge(retrain=True)  # deletes the segments' files here
        assert index.verify().n_documents == 180
    with opened(tmp_path / "two", writable=True) as other:
        assert other.verify().n_documents == 60
        other.delete(DOCUMENTS[130]["id"])
        other.commit()
        other.merge()
    with opened(path) as index:
        assert DOCUMENTS[130]["id"] in index


def test_files_are_copied_if_they_cannot_be_linked(parts, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    path = copied(parts, tmp_path)
    monkeypatch.setattr(os, "link", refuse)
    with opened(path, writable=True) as index:
        report = index.add_indexes(parts / "1")
        assert (report.n_segments, report.n_linked) == (1, 0)
        assert index.verify().n_documents == 120


def test_graphs_are_taken_over(parts, tmp_path):
    shutil.copytree(parts / "1", tmp_path / "other")
    with opened(tmp_path / "other", writable=True) as other:
        assert other.optimize() == 1
    with opened(copied(parts, tmp_path), writable=True) as index:
        index.add_indexes(tmp_path / "other")
        assert index.optimize() == 1  # the graph of its own segment
        index.verify()


def test_shards_of_another_index(parts, tmp_path):
    build(DOCUMENTS[60:], tmp_path / "shards", like=parts / "0", code_bytes=None, shards=3)
    with opened(copied(parts, tmp_path), writable=True) as index:
        assert index.add_indexes(tmp_path / "shards").n_segments == 3
        assert ids(index) == {document["id"] for document in DOCUMENTS}
        index.verify()


def test_a_sharded_index_refuses(parts, tmp_path):
    build(DOCUMENTS[:20], tmp_path / "shards", shards=2)
    with (
        opened(tmp_path / "shards", writable=True) as index,
        pytest.raises(InvalidSetting, match="cannot be added to a sharded index"),
    ):
        index.add_indexes(parts / "1")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"language": "german"}, "language than .* expected english; found german"),
        ({"centroids": "float16"}, "centroids"),
        ({"code_bytes": 2}, "code_bytes than .* expected 4; found 2"),
        ({"representation": KMeans(2)}, "representation than .* expected pieces; found kmeans"),
        ({"representation": engine.Pieces(7)}, "representation_settings"),
    ],
)
def test_other_settings_are_refused(parts, tmp_path, given, named):
    build(["a text"], tmp_path / "other", **given)
    path = copied(parts, tmp_path)
    with opened(path, writable=True) as index:
        with pytest.raises(InvalidSetting, match=f"other: this index has another value of {named}"):
            index.add_indexes([parts / "1", tmp_path / "other"])
        assert len(index) == 60
        assert index.add_indexes(parts / "1").n_documents == 60  # the writer still works
    assert not stray_files(path)


def test_settings_that_may_differ(parts, tmp_path):
    build([{"id": "a", "text": "a text"}], tmp_path / "other", k1=2.0, b=0.1, seed=9)
    with opened(copied(parts, tmp_path), writable=True) as index:
        index.add_indexes(tmp_path / "other")
        assert "a" in index
        assert view_of(index).settings.k1 == 1.2


def test_another_encoder_is_refused(parts, tmp_path):
    build(["a text"], tmp_path / "other", encoder=WordEncoder(dim=16, name="another"))
    with opened(copied(parts, tmp_path), writable=True) as index:
        with pytest.raises(EncoderMismatch, match="other: the vectors of this index"):
            index.add_indexes(tmp_path / "other")
        assert len(index) == 60


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_wrong_paths(parts, tmp_path, monkeypatch):
    path = copied(parts, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(path)
    with opened(path, writable=True) as index:
        for itself in (path, "index", "./index/../index", tmp_path / "link"):
            with pytest.raises(InvalidSetting, match="cannot be added to itself"):
                index.add_indexes(itself)
        (tmp_path / "empty").mkdir()
        for missing in ("missing", "empty"):
            with pytest.raises(IndexNotFound):
                index.add_indexes([parts / "1", missing])
        for wrong in (5, None, b"index", [5], ["", parts / "1"]):
            with pytest.raises(InvalidSetting):
                index.add_indexes(wrong)
        before = index.stats()["generation"]
        assert index.add_indexes([]).generation == before
        assert len(index) == 60
    with opened(path) as index, pytest.raises(ReadOnlyIndex):
        index.add_indexes(parts / "1")


def test_empty_indexes(parts, tmp_path):
    build([], tmp_path / "empty")
    build([], tmp_path / "target")
    with opened(tmp_path / "target", writable=True) as index:
        assert index.add_indexes(tmp_path / "empty").n_documents == 0
        assert index.add_indexes([tmp_path / "empty", parts / "1"]).n_documents == 60
        assert len(index) == 60
        index.verify()


def test_changes_that_are_not_committed(parts, tmp_path):
    with opened(copied(parts, tmp_path), writable=True) as index:
        index.add(["a text"])
        with pytest.raises(InvalidSetting, match="not committed"):
            index.add_indexes(parts / "1")
        index.commit()
        assert index.add_indexes(parts / "1").n_documents == 60
        assert len(index) == 121


@pytest.mark.parametrize("damage", ["missing", "truncated", "changed"])
def test_a_damaged_index_is_refused(parts, tmp_path, damage):
    shutil.copytree(parts / "1", tmp_path / "other")
    file = next((tmp_path / "other").glob("*.seg"))
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[:-100])
    else:
        content[-200] ^= 255
        file.write_bytes(content)
    path = copied(parts, tmp_path)
    with opened(path, writable=True) as index:
        with pytest.raises(CorruptFile if damage == "missing" else FormatError, match="other"):
            index.add_indexes([parts / "2", tmp_path / "other"])
        assert index.verify().n_documents == 60
        index.add(["a text"])
        index.commit()
    assert not stray_files(path)


def test_while_the_other_is_changed(tmp_path):
    engine.build(documents({"same": "text"}), tmp_path / "other", **options())
    engine.build(documents({"mine": "text"}), tmp_path / "index", **options())
    is_over = threading.Event()

    def change():
        with open_index(tmp_path / "other", writable=True, thresholds=SMALL) as writer:
            number = 0
            while not is_over.is_set():
                writer.add(documents({"same": f"text{number}"}))
                writer.commit()
                number += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with open_index(tmp_path / "index", writable=True) as index:
            for _ in range(10):
                index.add_indexes(tmp_path / "other")
                assert index.verify().n_documents == 2
    finally:
        is_over.set()
        thread.join()
    assert not stray_files(tmp_path / "index")


def test_on_the_command_line(parts, tmp_path, capsys):
    path = copied(parts, tmp_path)
    assert main(["add-indexes", str(path), str(parts / "1"), str(parts / "2"), "--wait", "1"]) == 0
    assert "n_documents                  120" in capsys.readouterr().out
    assert main(["add-indexes", str(path), str(tmp_path / "nothing")]) == 1
