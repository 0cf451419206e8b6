"""`Engine.open` with `create` and `wait`."""

from __future__ import annotations

import threading
import time

import pytest
from support.indexes.changes import stray_files
from support.indexes.inside import view_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, IndexLocked, IndexNotFound, InvalidSetting, KMeans, ReadOnlyIndex
from quarry.formats.write_lock import WriteLock

ENCODER = WordEncoder(dim=16)


def opened(path, **options):
    return Engine.open(path, encoder=ENCODER, threads=1, **options)


@pytest.mark.parametrize("shards", [None, 3])
def test_a_created_index_is_usable_at_once(tmp_path, shards):
    path = tmp_path / "above" / "index"
    with opened(path, create=True, shards=shards) as index:
        assert len(index) == 0
        assert list(index.search("a text")) == []
        assert "nobody" not in index
        assert index.verify().n_documents == 0
        with pytest.raises(ReadOnlyIndex):
            index.add(["a text"])
    with opened(path, create=True, writable=True) as index:
        index.add([{"id": "first", "text": "a text"}])
        index.commit()
        assert [hit.id for hit in index.search("a text")] == ["first"]
    with opened(path) as index:
        assert len(index) == 1


def test_an_index_that_exists_is_opened(tmp_path):
    engine.build([{"id": "a", "text": "a text"}], tmp_path / "index", encoder=ENCODER, language="german", k1=2)
    with opened(tmp_path / "index", create=True, language="german", k1=2.0, code_bytes=None) as index:
        assert "a" in index
    assert not stray_files(tmp_path / "index")


def test_a_created_index_has_the_settings(tmp_path):
    wanted = {"language": "none", "b": 0.5, "seed": 7, "centroids": "float16", "code_bytes": 4}
    opened(tmp_path / "index", create=True, representation=KMeans(3), **wanted).close()
    with opened(tmp_path / "index", create=True, representation=KMeans(3), **wanted) as index:
        found = view_of(index).settings
        assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize(
    "wanted",
    [{"passage_words": 5, "passage_overlap": 2}, {"passage_words": None}, {"passage_overlap": 3}],
    ids=["both", "not cut", "overlap"],
)
def test_a_created_index_cuts_passages_as_given(tmp_path, wanted, shards):
    text = "one two three four five six seven"
    with opened(tmp_path / "index", create=True, writable=True, shards=shards, **wanted) as index:
        index.add([text])
        index.commit()
        assert index.stats()["n_passages"] == (1 if wanted.get("passage_words", 260) != 5 else 2)
    opened(tmp_path / "index", create=True, **wanted).close()
    with pytest.raises(InvalidSetting, match="another value of passage_words; expected 7"):
        opened(tmp_path / "index", create=True, passage_words=7)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"language": "english"}, "language; expected english; found german"),
        ({"k1": 3}, "k1; expected 3; found 1.2"),
        ({"centroids": "float16"}, "centroids; expected float16; found int8"),
        ({"representation": "kmeans"}, "representation; expected kmeans with .*; found pieces"),
        ({"representation": engine.Pieces(7)}, "representation; expected .*: 7}"),
        ({"shards": 2}, "shards; expected 2; found no shards"),
    ],
)
def test_an_index_with_other_settings_is_refused(tmp_path, given, named):
    path = tmp_path / "index"
    engine.build(["a text"], path, encoder=ENCODER, language="german")
    with pytest.raises(InvalidSetting, match=f"another value of {named}"):
        opened(path, create=True, writable=True, **given)
    opened(path, writable=True).close()  # the lock was released


def test_settings_of_shards_are_checked(tmp_path):
    opened(tmp_path / "index", create=True, shards=2, b=0.5).close()
    with pytest.raises(InvalidSetting, match="another value of shards; expected 3; found 2"):
        opened(tmp_path / "index", create=True, shards=3)
    with pytest.raises(InvalidSetting, match=r"another value of b; expected 0\.7; found 0\.5"):
        opened(tmp_path / "index", create=True, b=0.7)


@pytest.mark.parametrize("given", [{"k1": -1}, {"language": "klingon"}, {"shards": 0}, {"representation": "x"}])
def test_a_wrong_setting_creates_nothing(tmp_path, given):
    with pytest.raises(InvalidSetting):
        opened(tmp_path / "index", create=True, **given)
    assert not (tmp_path / "index").exists()


def test_settings_need_create(tmp_path):
    engine.build(["a text"], tmp_path / "index", encoder=ENCODER)
    for given in ({"k1": 1.2}, {"shards": 1}, {"dim": 3}):
        with pytest.raises(InvalidSetting, match="without create"):
            opened(tmp_path / "index", **given)
    with pytest.raises(IndexNotFound):
        opened(tmp_path / "missing", writable=True, wait=1)


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "1", True, 86_401])
def test_a_wrong_wait(tmp_path, wait):
    with pytest.raises(InvalidSetting, match="wait is out of range"):
        opened(tmp_path / "index", create=True, writable=True, wait=wait)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("shards", [None, 2])
def test_the_next_writer_continues_from_the_newest_generation(tmp_path, shards):
    path = tmp_path / "index"
    opened(path, create=True, shards=shards).close()
    seen = []
    first = opened(path, writable=True)

    def take_turn():
        with opened(path, writable=True, wait=60) as second:
            seen.extend(sorted(doc.id for doc in second.get(["a", "b"])))
            second.add([{"id": "b", "text": "a text"}])
            second.commit()

    thread = threading.Thread(target=take_turn)
    thread.start()
    time.sleep(0.05)  # so that it is probably waiting; the assertions do not depend on it
    first.add([{"id": "a", "text": "a text"}])
    first.commit()
    first.close()
    thread.join()
    assert seen == ["a"]
    with opened(path) as index:
        assert len(index) == 2


@pytest.mark.parametrize("wait", [None, 0, 0.05])
@pytest.mark.parametrize("shards", [None, 2])
def test_the_error_after_the_wait(tmp_path, shards, wait):
    path = tmp_path / "index"
    opened(path, create=True, shards=shards).close()
    with opened(path, writable=True):
        message = (
            r"also after a wait of 0\.05 s; found process" if wait else "another writer holds the index; found"
        )
        with pytest.raises(IndexLocked, match=message):
            opened(path, writable=True, wait=wait)
        with opened(path, wait=wait) as reader:  # readers do not wait
            assert len(reader) == 0


def test_waiting_is_not_busy(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="this system locks files otherwise")
    attempts = []
    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *arguments: (attempts.append(None), real(*arguments)))
    held = WriteLock(tmp_path)
    with pytest.raises(IndexLocked):
        WriteLock(tmp_path, 0.3)
    held.release()
    assert 3 < len(attempts) <= 16
