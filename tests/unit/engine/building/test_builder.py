from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Cls, Engine, FirstM, KMeans, Mean, Pieces
from quarry.engine.documents.document import Document
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    FormatError,
    IndexExists,
    IndexLocked,
    IndexNotFound,
    InvalidDocument,
    InvalidQuery,
    InvalidSetting,
)
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.write_lock import LOCK_NAME

ENCODER = WordEncoder(dim=16)
DOCS = [
    {"id": str(number), "text": f"word{number} and more", "title": f"Title {number % 3}"} for number in range(30)
]


def build(docs, path, **options):
    return engine.build(docs, path, encoder=ENCODER, **options)


def contents(path):
    with Engine.open(path, encoder=ENCODER) as index:
        return {doc.id: doc.text for doc in index.get([str(number) for number in range(30)])}


def files(path):
    return {file.name for file in path.iterdir()}


def files_of_the_index(path):
    directory = Directory(path)
    return Manifest.load(directory, find_latest_generation(directory)).file_names() | {"write.lock"}


EXPECTED = {doc["id"]: doc["text"] for doc in DOCS}


class TestSources:
    def test_list(self, tmp_path):
        report = build(DOCS, tmp_path / "index")
        assert contents(tmp_path / "index") == EXPECTED
        assert (report.n_documents, report.n_replaced, report.n_skipped, report.skipped) == (30, 0, 0, ())
        assert report.n_tokens == 30 * 5
        assert report.n_centroids == 30
        assert report.size_bytes == sum(
            (tmp_path / "index" / name).stat().st_size for name in files(tmp_path / "index") - {"write.lock"}
        )
        assert 0 < report.duration_s < 60
        assert files(tmp_path / "index") == files_of_the_index(tmp_path / "index")

    def test_generator(self, tmp_path):
        build((doc for doc in DOCS), tmp_path / "index")
        assert contents(tmp_path / "index") == EXPECTED

    def test_documents(self, tmp_path):
        build([Document(**doc) for doc in DOCS], tmp_path / "index")
        assert contents(tmp_path / "index") == EXPECTED

    def test_texts_get_ids(self, tmp_path):
        build(["one text", "another", "one text"], tmp_path / "index")
        with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
            hits = index.search("one text", k=5)
        assert sorted(hit.text for hit in hits) == ["another", "one text", "one text"]
        assert len({hit.id for hit in hits}) == 3
        assert hits[0].score == hits[1].score

    def test_json_lines(self, tmp_path):
        lines = "".join(json.dumps(doc) + "\n" for doc in DOCS)
        (tmp_path / "docs.jsonl").write_text(lines)
        with gzip.open(tmp_path / "docs.jsonl.gz", "wt") as file:
            file.write(lines)
        for name in ("docs.jsonl", "docs.jsonl.gz"):
            build(str(tmp_path / name), tmp_path / "index", overwrite=True)
            assert contents(tmp_path / "index") == EXPECTED

    def test_beir_folder(self, tmp_path):
        (tmp_path / "beir").mkdir()
        beir = [{"_id": doc["id"], "title": doc["title"], "text": doc["text"]} for doc in DOCS]
        (tmp_path / "beir" / "corpus.jsonl").write_text("\n".join(map(json.dumps, beir)))
        build(tmp_path / "beir", tmp_path / "index")
        assert contents(tmp_path / "index") == EXPECTED
        with Engine.open(tmp_path / "index") as index:
            assert index.get(["7"])[0].title == "Title 1"

    @pytest.mark.parametrize("docs", [[], (), iter(()), {}.values()])
    def test_no_documents(self, tmp_path, docs):
        assert build(docs, tmp_path / "index").n_documents == 0
        with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
            assert len(index) == 0
            assert index.search("anything") == []
            assert index.search(["anything", "else"]) == [[], []]
            assert index.verify().n_documents == 0

    @pytest.mark.parametrize("docs", [b"bytes", {"text": "one document"}, 7, None, "no/such/file.jsonl"])
    def test_no_source(self, tmp_path, docs):
        with pytest.raises(InvalidSetting, match="docs"):
            build(docs, tmp_path / "index")
        assert not (tmp_path / "index").exists()


class TestReplacing:
    def test_index_exists(self, tmp_path):
        build(DOCS, tmp_path / "index")
        before = files(tmp_path / "index")
        with pytest.raises(IndexExists, match="replaces it; found generation 1"):
            build(DOCS[:3], tmp_path / "index")
        assert files(tmp_path / "index") == before
        assert len(contents(tmp_path / "index")) == 30

    def test_a_file_is_in_the_way(self, tmp_path):
        (tmp_path / "index").write_text("mine")
        for overwrite in (False, True):
            with pytest.raises(IndexExists, match="a file is in the way"):
                build(DOCS, tmp_path / "index", overwrite=overwrite)
        assert (tmp_path / "index").read_text() == "mine"

    def test_a_folder_with_other_files(self, tmp_path):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "notes.txt").write_text("mine")
        build(DOCS, tmp_path / "index")
        assert (tmp_path / "index" / "notes.txt").read_text() == "mine"
        assert contents(tmp_path / "index") == EXPECTED

    def test_folders_above_are_made(self, tmp_path):
        build(DOCS, tmp_path / "one" / "two" / "index")
        assert contents(tmp_path / "one" / "two" / "index") == EXPECTED

    def test_folders_that_are_made_are_made_durable(self, tmp_path, monkeypatch):
        """The parents of all created folders are synced, because they contain their names."""
        synced, real = set(), os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), real(file)))
        build(DOCS, tmp_path / "one" / "two" / "index")
        above = {folder.stat().st_ino for folder in (tmp_path / "one" / "two", tmp_path / "one", tmp_path)}
        assert above <= synced
        synced.clear()
        build(DOCS, tmp_path / "one" / "two" / "index", overwrite=True)
        assert not above & synced

    def test_the_old_index_answers_until_the_new_one_is_there(self, tmp_path):
        path = tmp_path / "index"
        build(DOCS, path)
        with Engine.open(path, encoder=ENCODER) as reader:

            def replacements():
                for number in range(40):
                    if number == 35:
                        assert contents(path) == EXPECTED
                        assert not reader.refresh()
                    yield {"id": f"new{number}", "text": "new words"}

            build(replacements(), path, overwrite=True)
            assert len(reader) == 30
            assert reader.search("word3", k=1)[0].id == "3"
            assert reader.refresh()
            assert len(reader) == 40
            assert reader.search("new words", k=1)[0].id == "new0"
        assert files(path) == files_of_the_index(path)

    def test_another_encoder_and_other_settings(self, tmp_path):
        path = tmp_path / "index"
        build(DOCS, path)
        other = WordEncoder(dim=24, name="others")
        with Engine.open(path, encoder=ENCODER) as reader:
            engine.build(DOCS, path, encoder=other, representation=KMeans(2), centroids="float16", overwrite=True)
            reader.refresh()
            with pytest.raises(engine.EncoderMismatch):
                reader.search("word3")
            assert reader.stats()["dim"] == 24
            assert reader.search_vectors(other.encode_query("word3")[None], k=1)[0][0].id == "3"

    @pytest.mark.parametrize("damage", ["MANIFEST-*", "*.seg"])
    def test_a_damaged_index_can_be_replaced(self, tmp_path, damage):
        path = tmp_path / "index"
        build(DOCS, path)
        file = next(path.glob(damage))
        file.write_bytes(file.read_bytes()[:100])
        with pytest.raises(FormatError):
            contents(path)
        with pytest.raises(IndexExists):
            build(DOCS, path)
        build(DOCS, path, overwrite=True)
        assert contents(path) == EXPECTED
        assert files(path) == files_of_the_index(path)
        with Engine.open(path) as index:
            index.verify()

    def test_somebody_is_writing(self, tmp_path):
        path = tmp_path / "index"
        build(DOCS, path)
        with Engine.open(path, writable=True, encoder=ENCODER) as writer:
            with pytest.raises(IndexLocked):
                build(DOCS, path, overwrite=True)
            with pytest.raises(IndexExists):
                build(DOCS, path)
            writer.add(["one more"])
            writer.commit()
        assert len(contents(path)) == 30

    def test_a_build_at_the_same_time(self, tmp_path):
        path = tmp_path / "index"

        def docs():
            yield DOCS[0]
            with pytest.raises(IndexLocked) as caught:
                build(DOCS, path)
            assert "no index at" in caught.value.__notes__[0]
            yield from DOCS[1:]

        build(docs(), path)
        assert contents(path) == EXPECTED

    def test_a_build_that_was_quicker_is_not_replaced(self, tmp_path, monkeypatch):
        """A build raises IndexExists if another one finishes before it gets the lock."""
        path = tmp_path / "index"
        real = os.open

        def slow(name, *arguments, **options):
            if Path(name).name == LOCK_NAME:
                monkeypatch.setattr(os, "open", real)
                build(DOCS, path)
            return real(name, *arguments, **options)

        monkeypatch.setattr(os, "open", slow)
        with pytest.raises(IndexExists):
            build(DOCS[:2], path)
        assert contents(path) == EXPECTED


class TestDuplicates:
    def test_the_last_one_stays(self, tmp_path):
        docs = [{"id": str(number % 10), "text": f"version{number}"} for number in range(30)]
        report = build(docs, tmp_path / "index")
        assert (report.n_documents, report.n_replaced) == (10, 20)
        assert contents(tmp_path / "index") == {str(number): f"version{number + 20}" for number in range(10)}
        with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
            assert len(index) == 10
            hits = index.search("version3", k=30)
        assert sorted(hit.id for hit in hits) == sorted(map(str, range(10)))
        assert all(int(hit.text.removeprefix("version")) >= 20 for hit in hits)


class TestInvalidDocuments:
    BAD = (
        ("", "blank"),
        (" \n\t", "blank"),
        ("\x00\x01", "no token"),
        ("... !", "no token"),
        ("a \ud800 b", "lone surrogate"),
    )

    @pytest.mark.parametrize(("text", "message"), BAD)
    def test_the_document_is_named(self, tmp_path, text, message):
        docs = [*DOCS[:20], {"id": "the bad one", "text": text}, *DOCS[20:]]
        with pytest.raises(InvalidDocument, match=f"(?s)the bad one.*{message}") as caught:
            build(docs, tmp_path / "index")
        assert caught.value.__notes__ == [
            f"The build was not completed; there is no index at {tmp_path / 'index'}."
        ]
        assert not (tmp_path / "index").exists()

    def test_one_without_an_id_is_named_by_its_place(self, tmp_path):
        with pytest.raises(InvalidDocument, match=r"^document 2: the document has no token"):
            build(["fine", "..."], tmp_path / "index")
        source = tmp_path / "docs.jsonl"
        source.write_text('{"text": "fine"}\n\n{"text": "..."}\n')
        with pytest.raises(InvalidDocument, match=r"docs\.jsonl: line 3: the document has no token"):
            build(source, tmp_path / "index")

    def test_they_can_be_skipped(self, tmp_path):
        docs = [
            *DOCS[:5],
            *({"id": f"bad{n}", "text": text} for n, (text, _) in enumerate(self.BAD)),
            *DOCS[5:],
            7,
        ]
        report = build(docs, tmp_path / "index", skip_invalid=True)
        assert contents(tmp_path / "index") == EXPECTED
        assert (report.n_documents, report.n_skipped) == (30, 6)
        assert len(report.skipped) == 6
        skipped = "\n".join(report.skipped)
        assert all(name in skipped for name in ("bad0", "bad1", "bad2", "bad3", "bad4", "document 36"))

    def test_ten_errors_are_reported(self, tmp_path):
        docs = [{"id": f"bad{number}", "text": "..."} for number in range(25)] + [None] * 10
        report = build(docs, tmp_path / "index", skip_invalid=True)
        assert (report.n_documents, report.n_skipped, len(report.skipped)) == (0, 35, 10)

    def test_long_words_and_one_character(self, tmp_path):
        docs = [{"id": "0", "text": "x"}, {"id": "1", "text": "y" * 5000}, {"id": "2", "text": "文"}]
        build(docs, tmp_path / "index")
        assert contents(tmp_path / "index") == {doc["id"]: doc["text"] for doc in docs}


class TestReusedObjects:
    """Documents that are encoded later than they are read."""

    UNSTORABLE = (math.nan, (1, 2), 1 << 80, {1}, "\ud800", "x" * 200_000, {5: 6})

    @pytest.mark.parametrize("threads", [1, 4])
    def test_a_generator_may_use_its_objects_again(self, tmp_path, threads):
        def docs():
            doc = {"metadata": {"deep": {"list": []}}}
            deep = doc["metadata"]["deep"]["list"]
            for number in range(200):
                doc |= {"id": str(number), "text": f"word{number}", "title": f"title {number}"}
                deep[:] = [number, {"again": [number]}]
                yield doc
            deep.clear()

        build(docs(), tmp_path / "index", threads=threads)
        with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
            found = index.get(str(number) for number in range(200))
            assert [(doc.text, doc.title) for doc in found] == [(f"word{n}", f"title {n}") for n in range(200)]
            assert [doc.metadata for doc in found] == [
                {"deep": {"list": [number, {"again": [number]}]}} for number in range(200)
            ]
            for number in (0, 77, 199):
                assert index.count({"deep.list": number}) == index.count({"deep.list.again": number}) == 1
            index.verify()

    @pytest.mark.parametrize("number", range(len(UNSTORABLE)))
    def test_changes_after_the_checks_have_no_effect(self, tmp_path, number):
        def docs():
            for n in range(20):
                deep = {"list": [n]}
                doc = {"id": str(n), "text": f"word{n}", "metadata": {"deep": deep}}
                yield Document(**doc) if n % 2 else doc
                deep["list"][0] = self.UNSTORABLE[number]
                doc["metadata"][3] = doc["text"] = doc["id"] = self.UNSTORABLE[number]

        build(docs(), tmp_path / "index")
        with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
            index.verify()
            expected = {str(n): {"deep": {"list": [n]}} for n in range(20)}
            assert {doc.id: doc.metadata for doc in index.get(expected.keys())} == expected
            index.add({**doc, "id": doc["id"] + "b"} for doc in docs() if isinstance(doc, dict))
            index.commit()
            assert index.get("4b")[0].metadata == {"deep": {"list": [4]}}

    @pytest.mark.parametrize("number", range(len(UNSTORABLE)))
    def test_what_is_wrong_from_the_beginning_is_named(self, tmp_path, number):
        doc = {"id": "bad", "text": "word", "metadata": {"deep": [self.UNSTORABLE[number]]}}
        with pytest.raises(InvalidDocument, match=r"document 2 \(id 'bad'\): field 'metadata"):
            build(["fine", doc], tmp_path / "index")


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"centroids": "int4"}, "int8 or float16 or none"),
            ({"code_bytes": 5}, "half a divisor of 16; found 5"),
            ({"code_bytes": 9}, "code_bytes is out of range"),
            ({"code_bytes": 0, "centroids": "none"}, "centroids or codes"),
            ({"seed": -1}, "seed"),
            (
                {"clusters": 3, "colour": 1},
                r"unknown setting; expected centroids, .*; found clusters, colour",
            ),
            ({"representation": "piece"}, "unknown representation"),
            ({"representation": 3}, "not a representation"),
            ({"threads": 0}, "threads"),
            ({"threads": "2"}, "threads"),
        ],
    )
    def test_bad_settings(self, tmp_path, settings, message):
        with pytest.raises(InvalidSetting, match=message):
            build(DOCS, tmp_path / "index", **settings)
        assert not (tmp_path / "index").exists()

    @pytest.mark.parametrize("encoder", ["/no/such/bundle", 3, object()])
    def test_bad_encoders(self, tmp_path, encoder):
        with pytest.raises(InvalidSetting):
            engine.build(DOCS, tmp_path / "index", encoder=encoder)
        assert not (tmp_path / "index").exists()

    @pytest.mark.parametrize(
        "representation", [Pieces(3), KMeans(3), FirstM(3), Mean(), Cls()], ids=lambda r: r.name
    )
    @pytest.mark.parametrize("beta", [None, 2.0])
    def test_representations(self, tmp_path, representation, beta):
        encoder = WordEncoder(dim=256, beta=beta)
        for chosen in (representation, representation.name):
            engine.build(DOCS, tmp_path / "index", encoder=encoder, representation=chosen, overwrite=True)
            with Engine.open(tmp_path / "index", writable=True, encoder=encoder) as index:
                assert index.stats()["representation"]["name"] == representation.name
                assert index.search("word7", k=3)[0].id == "7"
                index.add([{"id": "new", "text": "something else"}])
                index.commit()
                assert index.search("something else", k=3)[0].id == "new"

    @pytest.mark.parametrize("centroids", ["int8", "float16", "none"])
    @pytest.mark.parametrize("dim", [1, 7, 16])
    def test_any_dim(self, tmp_path, centroids, dim):
        encoder = WordEncoder(dim=dim)
        if dim % 2 and centroids == "none":
            with pytest.raises(InvalidSetting, match="even dim"):
                engine.build(DOCS, tmp_path / "index", encoder=encoder, centroids=centroids)
            return
        engine.build(DOCS, tmp_path / "index", encoder=encoder, centroids=centroids)
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            assert len(index.search("word3", k=100)) == 30

    def test_progress(self, tmp_path):
        seen = []
        build(DOCS, tmp_path / "index", progress=lambda done, total: seen.append((done, total)))
        assert seen[-1] == (30, 30)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


class TestFailures:
    class Trouble(Exception):
        pass

    def failing(self, n):
        yield from DOCS[:n]
        raise self.Trouble("the source is broken")

    @pytest.mark.parametrize("n", [0, 1, 29])
    def test_a_source_that_fails(self, tmp_path, n):
        path = tmp_path / "index"
        with pytest.raises(self.Trouble) as caught:
            build(self.failing(n), path)
        assert caught.value.__notes__ == [f"The build was not completed; there is no index at {path}."]
        assert not path.exists()
        build(DOCS, path)
        with pytest.raises(self.Trouble) as caught:
            build(self.failing(n), path, overwrite=True)
        assert caught.value.__notes__ == [f"The build was not completed; {path} is as it was, at generation 1."]
        assert contents(path) == EXPECTED
        assert files(path) == files_of_the_index(path)
        build(DOCS, path, overwrite=True)
        assert files(path) == files_of_the_index(path)

    def test_a_folder_that_was_there_stays(self, tmp_path):
        (tmp_path / "index").mkdir()
        with pytest.raises(self.Trouble):
            build(self.failing(3), tmp_path / "index")
        assert files(tmp_path / "index") <= {"write.lock"}
        with pytest.raises(IndexNotFound):
            Engine.open(tmp_path / "index")
        build(DOCS, tmp_path / "index")
        assert contents(tmp_path / "index") == EXPECTED

    def test_an_encoder_that_fails(self, tmp_path):
        class Failing(WordEncoder):
            def vector(self, word):
                if word == "word17":
                    raise TestFailures.Trouble("no vector")
                return super().vector(word)

        with pytest.raises(self.Trouble) as caught:
            engine.build(DOCS, tmp_path / "index", encoder=Failing(dim=16))
        assert "there is no index" in caught.value.__notes__[0]
        assert not (tmp_path / "index").exists()

    def test_the_note_is_correct_after_the_commit(self, tmp_path, monkeypatch):
        """A failure after the commit, when the new manifest is read, is reported with the new generation."""
        build(DOCS, tmp_path / "index")
        real = os.open

        def opened(name, flags, *mode):
            if Path(name).name.endswith("00002") and not flags & os.O_CREAT:
                raise self.Trouble("too late")
            return real(name, flags, *mode)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opened)
            with pytest.raises(self.Trouble) as caught:
                build(DOCS[:9], tmp_path / "index", overwrite=True)
        assert caught.value.__notes__ == [f"{tmp_path / 'index'} was changed nevertheless: it is at generation 2."]
        assert len(contents(tmp_path / "index")) == 9

    def test_a_disk_that_is_full(self, tmp_path):
        """A build fails cleanly if the system refuses to write beyond a file size limit."""
        resource = pytest.importorskip("resource")
        docs = [{"id": str(n), "text": f"word{n} " + "x" * 200} for n in range(300)]
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in (0, 100, 5000, 20_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            try:
                with pytest.raises((engine.CommitFailed, engine.AccessFailed)) as caught:
                    build(docs, tmp_path / "index")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert "there is no index" in caught.value.__notes__[0]
            assert not (tmp_path / "index").exists()
        assert build(docs, tmp_path / "index").n_documents == 300


class TestBundledEncoder:
    def test_hard_texts(self, tmp_path, small_corpus):
        """Each text is indexed or refused by name, and so are queries."""
        texts = {
            "one token": "bread",
            "one letter": "a",
            "cjk": "月は地球の周りを回る。",
            "emoji": "\N{HONEYBEE}\N{HONEY POT}\N{HONEYBEE}",
            "controls around": "\x00\x07bread\x1b[31m\x7f",
            "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd",
            "combining": "e\u0301" * 50,
            "long word": "pneumono" * 500,
            "long": "The queen lays eggs. " * 2500,
        }
        refused = {"controls": "\x00\x01\x02", "soft": "\u200b\u200d"}
        docs = [{"id": name, "text": text} for name, text in (texts | refused).items()]
        report = engine.build([*small_corpus, *docs], tmp_path / "index", skip_invalid=True)
        assert report.n_documents == 40 + len(texts)
        assert all(any(repr(name) in message for message in report.skipped) for name in refused)
        with Engine.open(tmp_path / "index") as index:
            assert {doc.id: doc.text for doc in index.get(texts.keys())} == texts
            for name in ("cjk", "emoji", "long"):
                assert index.search(texts[name][:400], k=1)[0].id == name
            for query in ("", "  ", "\x00\x01", "\ud800", "a\udfffb"):
                with pytest.raises(InvalidQuery, match="query 0"):
                    index.search(query)
            with pytest.raises(InvalidQuery, match="query 1: the query has no token"):
                index.search(["bread", ""])
            assert len(index.search("the queen " * 3000, k=3)) == 3
            hit = index.search("queen lays eggs", k=1, explain=True)[0]
            assert "queen lays" in hit.matches[0].text


MEASURE = """
import sys
import tracemalloc
from quarry.engine.building.builder import build
from quarry.formats.container import sections, spool, writer
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import WriterLimits
from support.indexes.word_encoder import WordEncoder

n, path, code_bytes = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
small = dict.fromkeys(("section_bytes", "posting_bytes", "sample_bytes"), 1 << 16)
limits = Thresholds(writing=WriterLimits(**small, page_postings=1 << 6, batch_postings=1 << 10))
spool.CHUNK_BYTES = sections.CHUNK_BYTES = writer.CHUNK_BYTES = 1 << 14
encoder = WordEncoder(dim=16)
docs = ({"id": str(number), "text": "word%d" % (number % 50)} for number in range(n))
build([{"text": "warm up"}], path + "-", encoder=encoder, threads=1, thresholds=limits)
tracemalloc.start()
build(docs, path, encoder=encoder, code_bytes=code_bytes, threads=1, thresholds=limits)
print(tracemalloc.get_traced_memory()[1])
"""


class TestMemory:
    def peak(self, n, path, code_bytes):
        root = Path(__file__).resolve().parents[3]
        found = subprocess.run(
            [sys.executable, "-c", MEASURE, str(n), str(path), str(code_bytes)],
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(found.stdout)

    def test_less_than_32_bytes_a_document(self, tmp_path):
        """A build takes fewer than 32 bytes per additional document, between 4,000 and 10,000 documents.

        Buffers of fixed size are reduced below the needs of both builds. The difference of the peaks of memory
        that Python and numpy allocate is 23 to 30 bytes per document.
        """
        few, many = (self.peak(n, tmp_path / f"{n}", 0) for n in (4_000, 10_000))
        assert (many - few) / 6_000 < 32
