"""`Engine.reencode` encodes the documents of an index with another encoder, `Engine.upgrade` divides them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from support.indexes.changes import stray_files
from support.indexes.inside import view_of
from support.indexes.sharded import columns, random_documents, random_queries
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import (
    EncoderMismatch,
    Engine,
    InvalidDocument,
    InvalidSetting,
    KMeans,
    ReadOnlyIndex,
)
from quarry.engine.bundled import default_bundle_path
from quarry.engine.cli.commands import main
from quarry.engine.thresholds import Thresholds

OLD, NEW = WordEncoder(dim=16), WordEncoder(dim=24)
LISTS = Thresholds(calibration_queries=64, list_rows=30, training_rows=30)
OFTEN = replace(LISTS, reencoding_s=0)  # committed after each document
DOCUMENTS = random_documents(80)
SETTINGS = {"language": "none", "k1": 2.0, "seed": 5, "code_bytes": 4}


class Counting(WordEncoder):
    """Counts the documents that it encodes, and fails at one of them."""

    def __init__(self, dim, fails_at=-1):
        super().__init__(dim=dim)
        self.texts, self.fails_at = [], fails_at

    def windows(self, text):
        if len(self.texts) == self.fails_at:
            raise InvalidDocument("this text is refused")
        self.texts.append(text)
        return super().windows(text)

    def encode_query(self, text):  # also for the calibration of a quantizer
        return WordEncoder(dim=self.dim).encode_query(text)


@pytest.fixture
def path(tmp_path):
    """Build an index of several segments, with deleted and replaced documents."""
    engine.build(DOCUMENTS[:60], tmp_path / "index", encoder=OLD, thresholds=LISTS, **SETTINGS)
    with opened(tmp_path / "index", writable=True) as index:
        index.add([*DOCUMENTS[60:], {"id": "document 0001", "title": "newer", "text": "w1 w2"}])
        index.delete("document 0002")
        index.commit()
    return tmp_path / "index"


def opened(path, encoder=OLD, thresholds=LISTS, **given):
    return Engine.open(path, encoder=encoder, thresholds=thresholds, threads=1, **given)


def content(index):
    return {doc.id: (doc.title, doc.text, dict(doc.metadata)) for doc in index.documents()}


def check_like_a_build(path, tmp_path, encoder=NEW, **settings):
    """Check that the index answers like one that is built of its documents with the encoder."""
    with opened(path, encoder, backend="exact") as index:
        docs = [{"id": d.id, "title": d.title, "text": d.text, "metadata": d.metadata} for d in index.documents()]
        engine.build(docs, tmp_path / "built", encoder=encoder, thresholds=LISTS, **settings)
        with opened(tmp_path / "built", encoder, backend="exact") as built:
            assert view_of(index).settings == view_of(built).settings
            for query in random_queries(20):
                assert columns(index.search(query)) == columns(built.search(query))


@pytest.mark.parametrize(("centroids", "passages"), [("int8", (9, 3)), ("float16", (None, 0)), ("none", (260, 0))])
def test_documents_stay_and_vectors_are_new(tmp_path, centroids, passages):
    settings = SETTINGS | {"centroids": centroids, "passage_words": passages[0], "passage_overlap": passages[1]}
    path = tmp_path / "index"
    engine.build(DOCUMENTS, path, encoder=OLD, thresholds=LISTS, **settings)
    with opened(path, writable=True) as index:
        index.delete("document 0002")
        index.commit()
        before = content(index)
        with opened(path) as reader:
            answers = [columns(reader.search(query)) for query in random_queries(5)]
            generation = index.reencode(NEW)
            assert index.stats()["generation"] == generation
            assert [columns(reader.search(query)) for query in random_queries(5)] == answers
            reader.refresh()
            with pytest.raises(EncoderMismatch):
                reader.search("w1")
        assert content(index) == before
        assert index.verify().n_documents == 79
        assert index.search("w1")  # with the new encoder
        assert index.stats()["dim"] == 24
    assert not stray_files(path)
    check_like_a_build(path, tmp_path, **settings)
    assert len(list(path.glob("*.quant"))) == 1


def test_the_writer_goes_on_with_the_new_encoder(path, tmp_path):
    with opened(path, writable=True) as index:
        index.reencode(NEW)
        index.add([{"id": "x", "text": "w3 w4", "metadata": {"a": 1}}])
        index.update_metadata("document 0005", {"b": 2})
        index.delete("document 0007")
        index.commit()
        index.merge()
        assert index.search("w3 w4", k=3)[0].id == "x"
        index.verify()
    check_like_a_build(path, tmp_path, **SETTINGS)


def test_several_segments_and_replaced_documents(path, tmp_path):
    with opened(path, writable=True) as index:
        before = content(index)
        index.reencode(NEW)
        assert content(index) == before
        assert index.get("document 0001")[0].title == "newer"
    check_like_a_build(path, tmp_path, **SETTINGS)


def test_what_was_finished_is_not_encoded_again(path, tmp_path):
    with opened(path) as index:
        before = content(index)
    first, second = Counting(24, fails_at=15), Counting(24)
    with opened(path, writable=True, thresholds=OFTEN) as index:
        with pytest.raises(InvalidDocument, match="refused"):
            index.reencode(first)
        assert content(index) == before
        assert index.search("w1")
        # other changes in between are kept
        index.add([{"id": "document 0003", "text": "w9 replaced"}])
        index.update_metadata("document 0004", {"number": True})
        index.delete("document 0005")
        index.commit()
        index.reencode(second)
        assert len(index) == 78
        assert index.get("document 0003")[0].text == "w9 replaced"
        assert index.get("document 0004")[0].metadata["number"] is True
        index.verify()
    assert len(second.texts) == 79 - 15 + 2  # two of the 15 have changed, and one was deleted
    assert not (path / "reencoding").exists()
    check_like_a_build(path, tmp_path, **SETTINGS)


def test_a_third_encoder_starts_over(path, tmp_path):
    with opened(path, writable=True, thresholds=OFTEN) as index:
        with pytest.raises(InvalidDocument):
            index.reencode(Counting(24, fails_at=5))
        third = Counting(8)
        index.reencode(third)
        assert len(third.texts) == 79
    check_like_a_build(path, tmp_path, WordEncoder(dim=8), **SETTINGS)


def test_a_damaged_work_index_is_discarded(path, tmp_path):
    with opened(path, writable=True, thresholds=OFTEN) as index:
        with pytest.raises(InvalidDocument):
            index.reencode(Counting(24, fails_at=5))
        for file in (path / "reencoding").glob("*.seg"):
            file.write_bytes(b"damage")
        index.reencode(NEW)
        index.verify()


def test_the_same_encoder_and_an_empty_index(path, tmp_path):
    with opened(path, writable=True) as index:
        generation = index.stats()["generation"]
        same = Counting(16)
        assert index.reencode(same) == generation
        assert same.texts == []
    with opened(tmp_path / "empty", create=True, writable=True) as index:
        index.reencode(NEW)
        index.add([{"id": "a", "text": "w1"}])
        index.commit()
        assert [hit.id for hit in index.search("w1")] == ["a"]


def test_progress(path):
    calls = []
    with opened(path, writable=True) as index:
        index.reencode(NEW, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (79, 79)
    assert calls == sorted(calls)


def test_what_is_refused(path, tmp_path):
    with opened(path) as index, pytest.raises(ReadOnlyIndex):
        index.reencode(NEW)
    with opened(path, writable=True) as index:
        index.add([{"id": "x", "text": "w1"}])
        with pytest.raises(InvalidSetting, match="not committed"):
            index.reencode(NEW)
        index.commit()
        with pytest.raises(InvalidSetting):
            index.reencode(5)
        index.reencode(NEW)
    with (
        opened(tmp_path / "shards", create=True, shards=2, writable=True) as index,
        pytest.raises(InvalidSetting, match="sharded"),
    ):
        index.reencode(NEW)


def test_the_representation(tmp_path):
    engine.build(DOCUMENTS[:9], tmp_path / "index", encoder=OLD, representation=KMeans(2))
    with opened(tmp_path / "index", writable=True) as index:
        index.reencode(NEW)
        settings = view_of(index).settings
        assert (settings.representation, settings.representation_settings) == (
            KMeans.name,
            KMeans(2).settings(),
        )


@pytest.mark.parametrize("settings", [{}, {"metric": "cosine"}, {"metric": "l2"}])
def test_given_vectors_are_replaced(tmp_path, settings):
    rows = [{"id": f"{n}", "text": f"w{n} w{n + 1}", "vectors": [[n + 1.0, 2, 3]]} for n in range(6)]
    engine.build(rows, tmp_path / "index", dim=3, **settings)
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.reencode(NEW)
        made = view_of(index).settings
        assert (made.representation, made.code_bytes) == ("pieces", 16 if settings == {"metric": "l2"} else 12)
        assert index.stats()["metric"] == settings.get("metric", "cosine")
        assert index.search("w3 w4")[0].id == "3"
        index.add([{"id": "new", "text": "w5 w6"}])
        index.commit()


def test_given_vectors_without_a_text(tmp_path):
    engine.build([{"id": "a", "vectors": [1.0, 2.0]}], tmp_path / "index", dim=2)
    with Engine.open(tmp_path / "index", writable=True) as index:
        with pytest.raises(InvalidDocument, match="document 'a' has no text"):
            index.reencode(NEW)
        assert index.stats()["dim"] == 2


def test_searches_and_a_commit_of_another_thread_meanwhile(path):
    began, may_go_on = threading.Event(), threading.Event()

    class Waiting(WordEncoder):
        def windows(self, text):
            began.set()
            assert may_go_on.wait(60)
            return super().windows(text)

    with opened(path, writable=True) as index:
        thread = threading.Thread(target=index.reencode, args=(Waiting(dim=24),))
        thread.start()
        assert began.wait(60)
        assert index.search("w1")
        index.add([{"id": "meanwhile", "text": "w5"}])
        index.commit()
        may_go_on.set()
        thread.join()
        assert "meanwhile" in index
        assert index.stats()["dim"] == 24
        assert len(index) == 80
        index.verify()


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "index"
    engine.build([{"id": "a", "text": "a text"}], path, encoder=OLD)
    bundle = str(default_bundle_path())
    assert main(["reencode", str(path), "--encoder", bundle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 2
    assert main(["search", str(path), "text"]) == 0
    assert "a text" in capsys.readouterr().out


LONG = [
    {
        "id": f"d{n}",
        "title": "w1 old" * (n % 2),
        "text": " ".join(f"w{(7 * n + i * i) % 50}{'.' * (i % 9 == 0)}" for i in range(1, 300 * n + 2)),
    }
    for n in range(4)
]


@pytest.fixture
def undivided(tmp_path):
    engine.build(LONG, tmp_path / "old", encoder=OLD, passage_words=None, centroids="float16")
    return tmp_path / "old"


def lexical(index, unit):
    hits = index.search("w3 w40 old", k=30, mode="lexical", unit=unit)
    return [(hit.id, hit.passage, hit.extent, hit.text, pytest.approx(hit.score)) for hit in hits]


def test_an_index_of_whole_documents_is_divided(undivided, tmp_path):
    engine.build(LONG, tmp_path / "new", encoder=OLD, centroids="float16")
    with opened(undivided, writable=True) as index, opened(tmp_path / "new") as new:
        before = content(index)
        index.add([LONG[3] | {"id": "later"}])
        with pytest.raises(InvalidSetting, match="not committed"):
            index.upgrade()
        index.rollback()
        generation = index.upgrade()
        assert index.upgrade() == generation == 2
        assert content(index) == before
        assert index.verify().n_documents == 4
        assert index.stats()["n_passages"] == new.stats()["n_passages"] > 8
        for unit in ("document", "passage"):
            assert lexical(index, unit) == lexical(new, unit)
        scores = [{hit.id: hit.dense_score for hit in each.search("w3 w40", k=4)} for each in (index, new)]
        assert scores[0]["d0"] == scores[1]["d0"]
        assert all(hit.passages for hit in index.search("w3 w40", k=30, unit="passage"))
        index.add([LONG[3] | {"id": "later"}])
        index.commit()
        assert [hit.passage for hit in index.search("w3", filter={"id": "later"}, unit="passage")]


def test_documents_with_vectors_are_divided_by_their_spans(tmp_path):
    vectors = np.eye(3, 16)[:, ::-1]
    docs = [{"id": "a", "text": "w1 w2 w3", "vectors": vectors, "spans": [(0, 2), (3, 5), (6, 8)]}]
    engine.build(docs, tmp_path / "own", dim=16, passage_words=None)
    with Engine.open(tmp_path / "own", writable=True) as index:
        index.upgrade()
        hits = [index.search(vector=vector, unit="passage")[0] for vector in vectors]
        assert [(hit.passage, hit.text) for hit in hits] == [(0, "w1"), (1, "w2"), (2, "w3")]


def test_an_upgrade_that_is_interrupted_is_continued(undivided):
    def stop(n_done, _):
        if n_done == 2:
            raise RuntimeError("stopped")

    with opened(undivided, thresholds=OFTEN, writable=True) as index:
        before = lexical(index, "document")
        with pytest.raises(RuntimeError, match="stopped"):
            index.upgrade(progress=stop)
        with opened(undivided) as reader:
            assert lexical(reader, "document") == lexical(index, "document") == before
    with opened(undivided / "reencoding") as work:
        done = len(work)
    with opened(undivided, writable=True) as index:
        with opened(undivided / "reencoding") as work:  # another writer keeps what was divided
            assert len(work) == done == 2
        assert index.upgrade() == 2
    assert not stray_files(undivided)


@pytest.mark.parametrize("given", [{"centroids": "none"}, {"representation": KMeans(2)}, {"shards": 2}])
def test_what_is_not_upgraded(tmp_path, given):
    engine.build(DOCUMENTS, tmp_path / "old", encoder=OLD, passage_words=None, thresholds=LISTS, **given)
    with opened(tmp_path / "old", writable=True) as index:
        with pytest.raises(InvalidSetting, match="build it again"):
            index.upgrade()
        assert index.verify().n_documents == 80


def test_an_upgrade_on_the_command_line(tmp_path, capsys):
    (tmp_path / "docs.jsonl").write_text(json.dumps(LONG[1]))
    main(["build", str(tmp_path / "docs.jsonl"), str(tmp_path / "index")])
    capsys.readouterr()
    assert main(["upgrade", str(tmp_path / "index"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"generation": 1, "n_passages": 2}
