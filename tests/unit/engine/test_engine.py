from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors
from support.indexes.inside import locks_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Document, Engine, KMeans, open_encoder
from quarry.engine.bundled import DEFAULT_NAME, default_bundle_path
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.errors import (
    ChecksumMismatch,
    CorruptFile,
    EncoderMismatch,
    FormatError,
    IndexClosed,
    IndexLocked,
    IndexNotFound,
    InvalidDocument,
    InvalidQuery,
    InvalidSetting,
    ReadOnlyIndex,
)
from quarry.formats.manifest import Manifest, find_latest_generation

ENCODER = WordEncoder(dim=64)
IDS = ["plain", "with space", "ünïcödé 文字 \N{HONEYBEE}", "../../etc/passwd", "a\x00b\nc", "x" * 4096]


def docs(*numbers):
    return [{"id": f"d{number}", "text": f"text{number} shared words"} for number in numbers]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "index"
    given = docs(*range(20))
    given += [
        {"id": doc_id, "title": f"T {n}", "text": f"odd{n}", "metadata": {"n": [n, None]}}
        for n, doc_id in enumerate(IDS)
    ]
    engine.build(given, path, encoder=ENCODER)
    return path


@pytest.fixture
def path(built, tmp_path):
    shutil.copytree(built, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def index(path):
    with Engine.open(path, writable=True, encoder=ENCODER) as opened:
        yield opened


@pytest.fixture
def reader(path):
    with Engine.open(path, encoder=ENCODER) as opened:
        yield opened


def names(path):
    return {file.name for file in path.iterdir()}


def found(index, text="shared words", k=100):
    return {hit.id for hit in index.search(text, k=k)}


class TestOpen:
    @pytest.mark.parametrize("name", ["nothing", "file", "empty"])
    def test_no_index(self, tmp_path, name):
        (tmp_path / "file").write_text("x")
        (tmp_path / "empty").mkdir()
        for writable in (False, True):
            with pytest.raises(IndexNotFound, match="no index here") as caught:
                Engine.open(tmp_path / name, writable=writable, encoder=ENCODER)
            assert caught.value.path == tmp_path / name
        assert names(tmp_path / "empty") == set()

    def test_a_path_may_be_a_str(self, path):
        with Engine.open(str(path)) as index:
            assert len(index) == 26

    def test_a_relative_path_stays_the_same_folder(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(path.parent)
        bundle = os.path.relpath(default_bundle_path())
        with (
            Engine.open(path.name, encoder=ENCODER) as reader,
            Engine.open(path.name, writable=True, encoder=ENCODER) as writer,
        ):
            encoder = open_encoder(bundle)
            (tmp_path / "elsewhere" / "index").mkdir(parents=True)
            monkeypatch.chdir(tmp_path / "elsewhere")
            writer.add(docs(20))
            writer.commit()
            writer.merge()
            assert reader.refresh()
            assert "d20" in reader
            assert reader.verify().n_documents == 27
            assert encoder.encode_query("a text").shape == (384,)
        assert names(tmp_path / "elsewhere" / "index") == set()

    @pytest.mark.parametrize(
        "options", [{"backend": "gpu9"}, {"backend": None}, {"threads": 0}, {"threads": 1.5}, {"encoder": 5}]
    )
    def test_bad_options(self, path, options):
        with pytest.raises(InvalidSetting):
            Engine.open(path, **options)

    def test_another_encoder(self, path):
        other = WordEncoder(dim=64, name="others")
        for writable in (False, True):
            with pytest.raises(EncoderMismatch, match=r"expected words .*; found others"):
                Engine.open(path, writable=writable, encoder=other)
        with Engine.open(path, writable=True, encoder=ENCODER):  # no lock was left
            pass

    def test_a_writer_without_the_encoder(self, path):
        """A writer without the encoder can do everything that needs no new vectors."""
        with Engine.open(path, writable=True) as index:
            with pytest.raises(EncoderMismatch, match="expected words"):
                index.add(docs(1))
            assert index.delete("d3") == 1
            index.commit()
            index.merge()
            assert "d3" not in index
            assert index.verify().n_documents == len(index)

    def test_without_the_encoder(self, path):
        """Without the encoder everything works but the encoding of texts."""
        with Engine.open(path) as index:
            with pytest.raises(EncoderMismatch, match=rf"open it with encoder=.*{DEFAULT_NAME}") as caught:
                index.search("text3")
            assert caught.value.path == path
            with pytest.raises(EncoderMismatch, match="open it with encoder="):
                index.check_encoder()
            assert index.search_vectors(ENCODER.encode_query("text3")[None])[0][0].id == "d3"
            assert "d3" in index

    def test_a_bundle_that_does_not_fit_is_named_with_its_folder(self, path):
        with pytest.raises(EncoderMismatch) as caught:
            Engine.open(path, encoder=default_bundle_path())
        assert str(default_bundle_path()) in str(caught.value)

    def test_an_equal_encoder_is_as_good(self, path):
        with Engine.open(path, encoder=WordEncoder(dim=64)) as index:
            assert index.search("text3", k=1)[0].id == "d3"

    def test_a_folder_that_cannot_be_written(self, path):
        """Readers create no file and need no write permission."""
        before = names(path)
        files = [path, *path.iterdir()]
        for file in files:
            file.chmod(stat.S_IMODE(file.stat().st_mode) & ~0o222)
        try:
            with Engine.open(path, encoder=ENCODER) as index:
                assert "d3" in found(index)
                index.refresh()
                index.stats()
                index.verify()
                index.get(["d3"])
            assert names(path) == before
        finally:
            for file in files:
                file.chmod(0o700)

    def test_opening_does_not_load_the_heavy_libraries(self, path):
        root = Path(__file__).resolve().parents[3]
        code = (
            "import sys, engine\n"
            f"index = engine.Engine.open({str(path)!r})\n"
            "assert len(index) == 26 and 'd3' in index\n"
            "heavy = {'onnxruntime', 'tokenizers', 'faiss', 'tqdm', 'onnx'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
        )
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(root)}, check=True)


class TestSearch:
    def test_one_text_and_several(self, reader):
        one = reader.search("text3", k=4)
        assert one[0].id == "d3"
        assert len(one) == 4
        assert reader.search(["text3", "odd1"], k=4) == [one, reader.search("odd1", k=4)]
        assert reader.search(("text3",), k=4) == [one]
        assert reader.search(iter(["text3"]), k=4) == [one]
        assert reader.search([]) == []

    def test_ten_hits_by_default(self, reader):
        assert len(reader.search("text3")) == 10

    def test_a_hit_holds_the_document(self, reader):
        hit = reader.search("odd2", k=1)[0]
        assert (hit.id, hit.title, hit.text, hit.metadata) == (IDS[2], "T 2", "odd2", {"n": [2, None]})
        assert 0 < hit.score <= 1.01
        assert hit.matches == ()

    def test_a_hit_is_shown_in_a_line(self, path):
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.add([{"id": "long", "title": "a\ntitle", "text": "long\nwords " * 100_000}])
            index.commit()
            (hit,) = index.search("long", k=1)
        assert repr(hit).startswith("Hit(id='long', score=")
        assert "title='a title', text='long words long" in repr(hit)
        assert len(repr(hit)) < 250

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("", "query 0: the query has no token"),
            (" \n", "query 0: the query has no token"),
            ("\x00", "query 0: the query has no token"),
            ("a \ud800", "query 0: .*surrogate"),
            (["fine", "..."], "query 1: the query has no token"),
            (["fine", 7], "query 1 is not a text; expected str; found int"),
            ([None], "query 0 is not a text"),
            (b"bytes", "queries are not texts; expected a str or several; found bytes"),
            (None, "there is nothing to search for; expected queries, a vector, both, or like"),
            (7, "queries are not texts"),
            ({"text": "fine"}, "queries are not texts; expected a str or several; found dict"),
        ],
    )
    def test_queries_that_are_none(self, reader, query, message):
        with pytest.raises(InvalidQuery, match=message):
            reader.search(query)

    @pytest.mark.parametrize(
        "options", [{"k": 0}, {"k": "3"}, {"k": 5, "candidates": 4}, {"nprobe": 0}, {"k": 1 << 30}]
    )
    def test_bad_options(self, reader, options):
        with pytest.raises(InvalidSetting, match="out of range"):
            reader.search("text3", **options)
        with pytest.raises(InvalidSetting, match="out of range"):
            reader.search_vectors(np.zeros((1, 64)), **options)

    def test_an_option_that_there_is_not(self, reader):
        with pytest.raises(
            InvalidSetting, match=r"unknown setting; expected k, like, offset, candidates, .*; found limit, top_k"
        ):
            reader.search("text3", top_k=3, limit=3)
        with pytest.raises(InvalidSetting, match="found top_k"):
            reader.search_vectors(np.zeros((1, 64)), top_k=3)

    @pytest.mark.parametrize(
        "vector", [np.full(64, np.nan), np.full(64, np.inf), np.ones(63), np.ones(1), np.ones((1, 64))]
    )
    def test_an_encoder_that_gives_nonsense(self, path, vector):
        class Broken(WordEncoder):
            def encode_query(self, text):
                return vector.astype(np.float32)

        with Engine.open(path, encoder=Broken(dim=64)) as index, pytest.raises(InvalidQuery, match="vector"):
            index.search("text3")


class TestDocuments:
    def test_get(self, reader):
        wanted = [IDS[3], "d1", "nobody", "d1", IDS[2]]
        given = reader.get(wanted)
        assert [doc.id for doc in given] == [IDS[3], "d1", "d1", IDS[2]]
        assert given[0] == Document(IDS[3], "odd3", "T 3", {"n": [3, None]})
        assert reader.get("d1")[0].text == "text1 shared words"
        assert reader.get([]) == reader.get(["nobody"]) == []

    def test_ids_round_trip(self, reader):
        assert all(doc_id in reader for doc_id in IDS)
        assert [doc.id for doc in reader.get(IDS)] == IDS
        assert [hit.id for hit in reader.search([f"odd{n}" for n in range(6)], k=1)[4]] == [IDS[4]]

    @pytest.mark.parametrize("doc_id", ["", "nobody", "D1", "d1 ", "\ud800", "x" * 5000])
    def test_ids_that_are_not_there(self, index, doc_id):
        assert doc_id not in index
        assert index.get([doc_id]) == []
        assert index.delete([doc_id]) == 0

    @pytest.mark.parametrize("doc_id", [1, None, b"d1", ["d1"], ("d1",), {"d1": "d2"}, Document("d1", "x")])
    def test_an_id_is_a_str(self, index, doc_id):
        for call in (index.get, index.delete):
            with pytest.raises(InvalidSetting, match=r"ids\[1\] is not a str; expected a str; found "):
                call(iter(["d2", doc_id, "d3"]))
        with pytest.raises(InvalidSetting, match="the id is not a str"):
            assert doc_id in index
        index.commit()
        assert {"d1", "d2", "d3"} == {doc.id for doc in index.get(["d1", "d2", "d3"])}

    @pytest.mark.parametrize("ids", [{"d1": "d2"}, {"d1": {"$exists": True}}, 5, None, b"d1", Document("d1", "x")])
    def test_ids_are_a_str_or_several(self, index, ids):
        unreadable = "ids cannot be read; expected a str or"
        with pytest.raises(InvalidSetting, match=unreadable):
            index.get(ids)
        with pytest.raises(InvalidSetting, match="ids or a filter say what" if ids is None else unreadable):
            index.delete(ids)
        index.commit()
        assert "d1" in index

    def test_ids_of_any_iterable(self, index):
        for ids in (("d1", "d2"), {"d1", "d2"}, {"d1": 0, "d2": 0}.keys(), np.array(["d1", "d2"])):
            assert {doc.id for doc in index.get(ids)} == {"d1", "d2"}
        assert index.delete(np.array(["d1", "d2"])) == 2

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_a_column_of_ids_is_read_and_a_table_refused(self, index, library):
        table = pytest.importorskip(library).DataFrame({"d1": ["d3", "d4"]})
        for call in (index.get, index.delete):
            with pytest.raises(InvalidSetting, match=r"ids cannot be read.*DataFrame"):
                call(table)
        with pytest.raises(InvalidQuery, match=r"queries are not texts.*DataFrame"):
            index.search(table)
        assert [doc.id for doc in index.get(table["d1"])] == ["d3", "d4"]

    def test_documents_of_a_hit_can_be_added_again(self, index):
        given = index.get(["d1", IDS[2]])
        index.delete(["d1", IDS[2]])
        index.commit()
        index.add(given)
        index.commit()
        assert index.get(["d1", IDS[2]]) == given

    def test_stats_and_verify(self, path, reader):
        assert reader.stats()["n_documents"] == len(reader) == 26
        report = reader.verify()
        named = Manifest.load(Directory(path), 1).file_names()
        assert (report.n_files, report.n_documents) == (len(named), 26)
        assert report.n_bytes == sum((path / name).stat().st_size for name in named)

    def test_verify_reports_all_damages(self, path, reader):
        segment = next(path.glob("*.seg"))
        data = bytearray(segment.read_bytes())
        data[4096 + 5] ^= 1
        data[-200] ^= 1
        segment.unlink()
        segment.write_bytes(data)
        with pytest.raises(FormatError, match="errors") as caught:
            reader.verify()
        assert len(caught.value.findings) >= 1
        assert all(str(segment) in str(finding) for finding in caught.value.findings)
        assert isinstance(caught.value.findings[0], ChecksumMismatch | CorruptFile)

    def test_verify_while_others_commit(self, path, reader):
        """`verify` succeeds although the files of the reader's generation were deleted."""
        with Engine.open(path, writable=True, encoder=ENCODER) as writer:
            writer.delete([f"d{number}" for number in range(19)])
            writer.commit()
        engine.build(docs(1, 2, 3), path, encoder=ENCODER, overwrite=True)
        assert reader.verify().n_documents == 3
        assert len(reader) == 26


class TestChanges:
    def test_add_commit(self, index, reader):
        assert index.add(docs(30, 31)) == 2
        assert "d30" not in index
        assert "d30" not in found(index)
        assert index.commit() == 2
        assert {"d30", "d31"} <= found(index)
        assert len(index) == 28
        assert index.search("text31", k=1)[0].id == "d31"
        assert "d30" not in reader
        assert reader.refresh()
        assert not reader.refresh()
        assert {"d30", "d31"} <= found(reader)

    def test_upsert(self, index):
        index.add([{"id": "d3", "text": "entirely new"}, {"id": "d4", "text": "one"}, {"id": "d4", "text": "two"}])
        index.commit()
        assert len(index) == 26
        assert [doc.text for doc in index.get(["d3", "d4"])] == ["entirely new", "two"]
        assert index.search("entirely new", k=1)[0].id == "d3"
        assert "text3" not in {hit.text.split()[0] for hit in index.search("text3", k=100)}
        index.add([{"id": "d3", "text": "once more"}])
        index.commit()
        assert [doc.text for doc in index.get(["d3"])] == ["once more"]
        assert len(index) == 26
        assert index.stats()["n_segments"] == 3

    def test_delete(self, index, reader):
        assert index.delete(["d1", "nobody"]) == 1
        assert index.delete("d2") == 1
        assert index.delete(doc_id for doc_id in ["d1"]) == 0
        assert "d1" in index
        index.commit()
        assert "d1" not in index
        assert not {"d1", "d2"} & found(index)
        assert len(found(index)) == len(index) == 24
        assert "d1" in found(reader)

    def test_delete_and_add_again_in_one_commit(self, index):
        index.delete("d1")
        index.add([{"id": "d1", "text": "again"}])
        index.commit()
        assert index.get(["d1"])[0].text == "again"
        assert len(index) == 26

    def test_add_and_delete_in_one_commit(self, index):
        index.add(docs(30))
        assert index.delete("d30") == 1
        index.commit()
        assert "d30" not in index
        assert len(index) == 26

    def test_rollback(self, index):
        index.add(docs(30))
        index.delete("d1")
        index.rollback()
        assert index.commit() == 1
        assert len(index) == 26
        assert "d1" in index

    def test_nothing_to_commit(self, index):
        assert index.commit() == index.commit() == 1

    def test_deleting_everything(self, index, path):
        index.delete([hit.id for hit in index.search("text3", k=100)])
        index.commit()
        assert len(index) == 0
        assert index.search("text3") == []
        assert index.search(["text3", "odd1"], explain=True) == [[], []]
        assert index.search_vectors(np.ones((2, 64))) == [[], []]
        assert index.get(["d1"]) == []
        assert index.verify().n_documents == 0
        assert not list(path.glob("*.seg"))
        index.add(docs(5))
        index.commit()
        assert found(index) == {"d5"}

    def test_any_source_of_documents(self, index, tmp_path):
        (tmp_path / "more.jsonl").write_text('{"id": "from a file", "text": "file text"}\n')
        assert index.add(tmp_path / "more.jsonl") == 1
        assert index.add(["a text"]) == 1
        assert index.add(doc for doc in docs(40)) == 1
        index.commit()
        assert len(index) == 29
        with pytest.raises(InvalidSetting):
            index.add(7)

    def test_an_invalid_document(self, index):
        given = [*docs(30, 31), {"id": "bad", "text": 5}, *docs(32)]
        with pytest.raises(InvalidDocument, match=r"document 3.*bad.*text"):
            index.add(given)
        index.rollback()
        with pytest.raises(InvalidDocument, match=r"document 2 \(id 'none'\): the document has no token"):
            index.add([*docs(30), {"id": "none", "text": "..."}])
        index.commit()
        assert len(index) == 27
        assert "d30" in index

    def test_read_only(self, reader):
        for action in (lambda: reader.add(docs(1)), lambda: reader.delete("d1"), reader.commit, reader.rollback):
            with pytest.raises(ReadOnlyIndex, match="writable=True"):
                action()

    def test_many_commits(self, index, path):
        for number in range(30, 42):
            index.add(docs(number))
            index.delete(f"d{number - 30}")
            index.commit()
        assert len(index) == 26
        assert found(index) >= {f"d{number}" for number in (*range(12, 20), *range(30, 42))}
        assert index.search("text33", k=1)[0].id == "d33"
        index.verify()
        named = Manifest.load(Directory(path), find_latest_generation(Directory(path))).file_names()
        assert names(path) == named | {"write.lock"}


class TestLock:
    def test_a_refused_writer_leaves_nothing_open(self, index, path):
        before = n_descriptors()
        with pytest.raises(IndexLocked) as caught:
            Engine.open(path, writable=True, encoder=ENCODER)
        assert caught.value.__traceback__ is not None
        assert n_descriptors() == before

    def test_one_writer(self, index, path):
        with pytest.raises(IndexLocked, match=f"another writer holds the index; found process {os.getpid()}"):
            Engine.open(path, writable=True, encoder=ENCODER)
        with Engine.open(path, encoder=ENCODER) as reader:
            assert "d3" in found(reader)
        index.close()
        Engine.open(path, writable=True, encoder=ENCODER).close()

    def test_a_writer_of_another_process(self, path):
        """The lock of another process is respected, and released when that process ends."""
        root = Path(__file__).resolve().parents[3]
        code = (
            "import sys; from quarry import Engine; from support.indexes.word_encoder import WordEncoder\n"
            f"index = Engine.open({str(path)!r}, writable=True, encoder=WordEncoder(dim=64))\n"
            "index.add(['never committed'])\n"
            "print('ready', flush=True); sys.stdin.read()\n"
        )
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            try:
                assert other.stdout.readline() == b"ready\n"
                with pytest.raises(IndexLocked, match=f"process {other.pid}"):
                    Engine.open(path, writable=True, encoder=ENCODER)
            finally:
                other.kill()
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            assert len(index) == 26

    def test_a_writer_sees_what_was_committed_before_it_had_the_lock(self, path, monkeypatch):
        """A writer uses the index that was committed while it waited for the lock."""
        real = os.open

        def slow(name, *arguments, **options):
            if Path(name).name == "write.lock":
                monkeypatch.setattr(os, "open", real)
                other = WordEncoder(dim=8, name="words")
                engine.build(docs(1, 2), path, encoder=other, representation=KMeans(2), overwrite=True)
            return real(name, *arguments, **options)

        monkeypatch.setattr(os, "open", slow)
        with pytest.raises(EncoderMismatch):
            Engine.open(path, writable=True, encoder=ENCODER)
        with Engine.open(path, writable=True, encoder=WordEncoder(dim=8)) as index:
            index.add(docs(3))
            index.commit()
            assert len(index) == 3
            index.verify()


class TestDropped:
    def test_an_index_without_references_releases_the_lock(self, path):
        gc.collect()
        gc.disable()
        try:
            index = Engine.open(path, writable=True, encoder=ENCODER)
            index.add(docs(20))
            index.commit()
            index.add(docs(21))
            found(index)
            index.merge()
            del index
            with Engine.open(path, writable=True, encoder=ENCODER) as index:
                assert len(index) == 27
        finally:
            gc.enable()
        assert len([name for name in names(path) if name.endswith(".seg")]) == 1

    def test_it_cannot_be_sent_to_another_process(self, reader):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="each process opens the index itself"):
                use(reader)


class TestClosed:
    def test_every_method_of_a_closed_index_raises(self, path):
        index = Engine.open(path, writable=True, encoder=ENCODER)
        index.close()
        index.close()
        actions = [
            lambda: index.search("text3"),
            lambda: index.search_vectors(np.zeros((1, 64))),
            lambda: index.add(docs(1)),
            lambda: index.delete("d1"),
            index.commit,
            index.rollback,
            index.refresh,
            lambda: index.get(["d1"]),
            lambda: "d1" in index,
            lambda: len(index),
            index.stats,
            index.verify,
        ]
        for action in actions:
            with pytest.raises(IndexClosed, match="the index is closed") as caught:
                action()
            assert caught.value.path == path

    def test_what_was_not_committed_is_forgotten(self, path, caplog):
        before = names(path)
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.add(docs(30))
            index.delete("d1")
        assert f"{path}', writable=True): closed without a commit" in caplog.text
        with Engine.open(path) as index:
            assert len(index) == 26
        assert names(path) == before | {"write.lock"}

    @pytest.mark.parametrize("change", [Engine.commit, Engine.rollback, lambda _: 1 / 0])
    def test_no_warning_without_uncommitted_changes(self, path, caplog, change):
        with suppress(ZeroDivisionError), Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.add(docs(30))
            index.delete("d1")
            change(index)
        assert not caplog.records

    def test_an_error_within_the_block(self, path):
        with pytest.raises(ZeroDivisionError), Engine.open(path, writable=True, encoder=ENCODER):
            raise ZeroDivisionError
        Engine.open(path, writable=True, encoder=ENCODER).close()

    def test_hits_stay_usable(self, path):
        with Engine.open(path, encoder=ENCODER) as index:
            hits = index.search("odd2", k=26, explain=True)
            documents = index.get([IDS[2]])
        shutil.rmtree(path)
        assert (hits[0].text, hits[0].title, hits[0].metadata) == ("odd2", "T 2", {"n": [2, None]})
        assert {hit.text for hit in hits} >= {f"odd{number}" for number in range(6)}
        assert hits[0].matches[0].weight == 1
        assert documents[0].text == "odd2"
        again = pickle.loads(pickle.dumps(hits))
        assert [(hit, hit.text) for hit in again] == [(hit, hit.text) for hit in hits]

    def test_after_a_failed_commit_searching_goes_on(self, index, monkeypatch):
        index.add(docs(30))
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(engine.CommitFailed):
                index.commit()
        assert "d3" in found(index)
        assert len(index) == 26
        assert index.commit() == 2
        assert len(index) == 27


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
class TestFork:
    def in_child(self, action):
        """Run an action in a forked child; return its printed result, or its error."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, str(action()).encode())
            except BaseException as error:
                os.write(write, repr(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            output = pipe.read()
        os.waitpid(child, 0)
        return output

    def test_a_child_must_open_its_own(self, path):
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.add(docs(30))
            for action in (
                lambda: index.search("text3"),
                lambda: len(index),
                index.commit,
                lambda: index.delete("d1"),
            ):
                error = self.in_child(action)
                assert error.startswith("IndexClosed")
                assert "open it again after a fork" in error

            def own():
                with Engine.open(path, encoder=ENCODER) as other:
                    return other.search("text3", k=1)[0].id

            assert self.in_child(own) == "d3"
            index.commit()
            assert len(index) == 27

    def test_closing_in_a_child_does_not_affect_the_parent(self, path):
        """A child that closes an index keeps the parent's lock and temporary files."""
        spilling = Thresholds(writing=WriterLimits(section_bytes=16))
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=spilling) as index:
            index.add(docs(30, 31, 32))
            before = names(path)
            assert any(name.endswith(".tmp") for name in before)
            assert self.in_child(index.close) == "None"
            assert names(path) == before
            error = self.in_child(lambda: Engine.open(path, writable=True, encoder=ENCODER))
            assert error.startswith("IndexLocked")
            index.add(docs(33))
            index.commit()
            assert len(index) == 30
            index.verify()

    def test_a_child_is_not_stopped_by_what_the_parents_threads_hold(self, path):
        """A child can use an index whose locks other threads of the parent held at the fork."""
        index = Engine.open(path, writable=True, encoder=ENCODER)
        locks = locks_of(index)
        held, done = threading.Barrier(2, timeout=60), threading.Event()

        def hold():
            with contextlib.ExitStack() as stack:
                for lock in locks:
                    stack.enter_context(lock)
                held.wait()
                done.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()

        def own():
            signal.alarm(20)
            index.close()
            with Engine.open(path, encoder=ENCODER) as other:
                return other.search("text3", k=1)[0].id

        output = self.in_child(own)
        done.set()
        thread.join()
        assert output == "d3"
        index.add(docs(30))
        index.commit()
        index.close()

    def test_a_child_may_use_what_the_parent_used_with_several_threads(self, tmp_path):
        """A child can search and build with FAISS although OpenMP's threads do not survive a fork."""
        given = [{"id": str(number), "text": f"text{number} word{number % 9}"} for number in range(600)]
        options = {"encoder": ENCODER, "representation": KMeans(2), "centroids": "none", "threads": 2}
        engine.build(given, tmp_path / "index", **options)
        queries = [f"text{number}" for number in range(50)]

        def search():
            with Engine.open(tmp_path / "index", backend="cpu_faiss", encoder=ENCODER, threads=2) as index:
                return [hit.id for hits in index.search(queries, k=2) for hit in hits]

        def search_and_build():
            signal.alarm(30)
            engine.build(given, tmp_path / "child", **options)
            return search()

        expected = search()
        assert self.in_child(search_and_build) == str(expected)
        assert any((tmp_path / "child").glob("*.quant"))


class TestThreads:
    def run(self, *actions):
        """Run all actions at once, and raise the first error."""
        errors = []

        def guarded(action):
            try:
                action()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        for error in errors:
            raise error

    def test_searching_while_another_commits(self, index, path):
        done = threading.Event()
        reader = Engine.open(path, encoder=ENCODER)

        def search(searched):
            while not done.is_set():
                hits = searched.search(["shared words", "text7"], k=10)
                assert [len(each) for each in hits] == [10, 10]
                assert hits[1][0].id == "d7"
                assert {"d7", "d8"} <= {doc.id for doc in searched.get(["d7", "d8"])}
                assert len(searched) >= 26

        def search_and_refresh():
            while not done.is_set():
                reader.refresh()
                assert reader.search("text7", k=1)[0].id == "d7"

        def write():
            try:
                for number in range(100, 130):
                    index.add(docs(number))
                    index.delete([f"d{number - 1}"] if number % 3 else [])
                    index.commit()
            finally:
                done.set()

        self.run(write, lambda: search(index), lambda: search(index), lambda: search(reader), search_and_refresh)
        reader.refresh()
        assert found(reader) == found(index)
        reader.close()

    def test_several_threads_write(self, path):
        """Concurrent writers lose no document, and a commit includes what was added before it."""
        given = {f"{thread}-{number}": f"text of {thread}-{number}" for thread in range(4) for number in range(60)}

        def write(index, ids):
            for low in range(0, len(ids), 6):
                index.add({"id": doc_id, "text": given[doc_id]} for doc_id in ids[low : low + 6])
                index.delete("nobody")
                index.commit()

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with Engine.open(path, writable=True, encoder=ENCODER) as index:
                parts = [[doc_id for doc_id in given if doc_id.startswith(f"{thread}-")] for thread in range(4)]
                self.run(*[functools.partial(write, index, part) for part in parts])
                assert {doc.id: doc.text for doc in index.get(given.keys())} == given
                assert len(index) == 26 + len(given)
                index.verify()
        finally:
            sys.setswitchinterval(interval)

    def test_answers_do_not_depend_on_threads(self, path):
        queries = [f"text{number % 20} shared" for number in range(40)]
        with Engine.open(path, encoder=ENCODER) as index:
            expected = [index.search(query, k=5) for query in queries]

        def search_all(opened):
            for query, hits in zip(queries, expected, strict=True):
                assert opened.search(query, k=5) == hits

        with Engine.open(path, encoder=ENCODER) as index:
            self.run(*[lambda: search_all(index)] * 6)

    def test_closing_in_the_middle_of_a_search(self, path):
        """A search that is running when the index is closed finishes."""

        class Closing(WordEncoder):
            def encode_query(self, text):
                index.close()
                return super().encode_query(text)

        index = Engine.open(path, encoder=Closing(dim=64))
        hits = index.search("text7", k=3, explain=True)
        assert (hits[0].id, hits[0].text, len(hits)) == ("d7", "text7 shared words", 3)
        with pytest.raises(IndexClosed):
            index.search("text7")

    def test_committing_in_the_middle_of_a_search(self, path):
        """A search uses the generation it began with."""

        class Committing(WordEncoder):
            def encode_query(self, text):
                index.delete("d7")
                index.commit()
                return super().encode_query(text)

        with Engine.open(path, writable=True, encoder=Committing(dim=64)) as index:
            assert index.search("text7", k=1)[0].text == "text7 shared words"
            assert index.search("text7", k=1)[0].id != "d7"

    def test_closing_while_others_search(self, path):
        """A search either finishes or raises IndexClosed."""
        for _ in range(10):
            index = Engine.open(path, encoder=ENCODER)
            started = threading.Barrier(4)

            def search(index=index, started=started):
                started.wait()
                try:
                    while True:
                        assert index.search("text7", k=3, explain=True)[0].text == "text7 shared words"
                except IndexClosed:
                    pass

            def close(index=index, started=started):
                started.wait()
                index.close()

            self.run(search, search, search, close)


class TestBundledEncoder:
    def test_from_texts_to_hits(self, tmp_path, small_corpus):
        engine.build(small_corpus, tmp_path / "index")
        with Engine.open(tmp_path / "index", writable=True) as index:
            assert len(index) == 40
            hits = index.search("How do I bake a loaf with a crust?", k=4)
            assert {hit.metadata["subject"] for hit in hits[:2]} == {"bread"}
            index.add([{"id": "new", "text": "A neural network is trained by gradient descent."}])
            index.commit()
            hit = index.search("machine learning", k=1, explain=True)[0]
            assert hit.id == "new"
            assert hit.matches[0].text == hit.text
            assert index.stats()["dim"] == 384


@pytest.mark.parametrize("shards", [None, 2])
def test_a_commit_tells_how_many_added_documents_were_replaced(tmp_path, shards):
    engine.build([{"id": "a", "text": "one"}], tmp_path / "ix", encoder=WordEncoder(), shards=shards)
    with Engine.open(tmp_path / "ix", writable=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "two"}, {"id": "b", "text": "three"}, {"id": "b", "text": "four"}])
        generation = index.commit()
        assert (len(index), generation.n_replaced) == (2, 1)  # "a" replaces a document of an earlier commit
        assert shards or generation == index.stats()["generation"]
        assert pickle.loads(pickle.dumps(generation)).n_replaced == 1
        assert index.commit().n_replaced == 0
