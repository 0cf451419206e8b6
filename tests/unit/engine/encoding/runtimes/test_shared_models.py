"""Models are opened once for all users and closed after the last of them."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.indexes.inside import forget_shared_models
from support.indexes.word_encoder import WordEncoder
from support.models.tiny_checkpoint import random_weights, write_checkpoint, write_reranker_checkpoint

from quarry import engine
from quarry.engine import Engine, IndexClosed, InvalidSetting, open_encoder
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.process.per_process import SharedModels
from quarry.exporters.export import export, export_reranker

TEXT = "what keeps a loaf of bread fresh"


_sessions: weakref.WeakSet[object] = weakref.WeakSet()


def n_sessions() -> int:
    """Count the ONNX Runtime sessions that were opened since the test began and are still open.

    ``gc.get_objects`` cannot be used for that: it refers to tuples that other threads are filling, which makes
    their resizing fail.
    """
    gc.collect()
    return len(_sessions)


@pytest.fixture(autouse=True)
def no_model_is_shared_yet(monkeypatch):
    """Count sessions, and open models anew even if fixtures of other tests keep one open."""
    forget_shared_models(monkeypatch)
    session = import_onnxruntime().InferenceSession
    load = session.__init__

    def count(self, *args, **keywords):
        load(self, *args, **keywords)
        _sessions.add(self)

    _sessions.clear()
    monkeypatch.setattr(session, "__init__", count)


@pytest.fixture
def sessions_before(no_model_is_shared_yet):
    return n_sessions()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, small_corpus):
    """Create a folder with a checkpoint, its bundle, a bundle of a reranker, and an index of the first bundle."""
    folder = tmp_path_factory.mktemp("tiny")
    export(write_checkpoint(folder / "checkpoint"), folder / "bundle", "fp32")
    export_reranker(write_reranker_checkpoint(folder / "cross"), folder / "reranker", "fp32")
    engine.build(small_corpus, folder / "index", encoder=folder / "bundle")
    return folder


def open_index(tiny, **options):
    return Engine.open(tiny / "index", **{"encoder": tiny / "bundle"} | options)


class TestIndexes:
    def test_all_have_one_encoder_until_the_last_is_closed(self, tiny, sessions_before):
        indexes = [open_index(tiny) for _ in range(20)]
        answers = [[hit.id for hit in index.search(TEXT)] for index in indexes]
        assert answers == [answers[0]] * 20
        assert n_sessions() == sessions_before + 1
        for index in indexes[1:]:
            index.close()
        assert [hit.id for hit in indexes[0].search(TEXT)] == answers[0]
        assert n_sessions() == sessions_before + 1
        indexes[0].close()
        assert n_sessions() == sessions_before
        with pytest.raises(IndexClosed):
            indexes[0].search(TEXT)
        with open_index(tiny) as index:
            assert [hit.id for hit in index.search(TEXT)] == answers[0]

    def test_however_the_bundle_is_named(self, small_index, tmp_path, monkeypatch, sessions_before):
        folder = default_bundle_path()
        (tmp_path / "link").symlink_to(folder)
        monkeypatch.chdir(folder.parent)
        names = [None, folder, str(folder), folder.name, f"{folder}/../{folder.name}", tmp_path / "link"]
        indexes = [Engine.open(small_index, encoder=name) for name in names]
        encoder = open_encoder()
        for index in indexes:
            index.search(TEXT)
        encoder.encode_query(TEXT)
        assert n_sessions() == sessions_before + 1
        for index in indexes:
            index.close()

    def test_writers_and_builds_too(self, tiny, tmp_path, sessions_before):
        with open_index(tiny) as reader:
            reader.search(TEXT)
            engine.build([TEXT], tmp_path / "index", encoder=tiny / "bundle")
            with Engine.open(tmp_path / "index", encoder=tiny / "bundle", writable=True) as writer:
                writer.add(["another text"])
                writer.commit()
                assert n_sessions() == sessions_before + 1
        assert n_sessions() == sessions_before

    def test_one_that_is_dropped_without_being_closed(self, tiny, sessions_before):
        index = open_index(tiny, writable=False)
        index.search(TEXT)
        del index
        assert n_sessions() == sessions_before

    def test_an_error_keeps_no_encoder(self, tiny, sessions_before):
        with pytest.raises(InvalidSetting):
            open_index(tiny, reranker=tiny / "index")
        assert n_sessions() == sessions_before

    def test_an_encoder_of_the_callers_stays_the_callers(self, tiny, sessions_before):
        encoder = open_encoder(tiny / "bundle", lean=True)
        for _ in range(2):
            with open_index(tiny, encoder=encoder) as index:
                index.search(TEXT)
        assert n_sessions() == sessions_before + 1
        assert encoder.encode_query(TEXT).shape == (encoder.dim,)
        words = WordEncoder(dim=16)
        reference = weakref.ref(words)
        with pytest.raises(engine.EncoderMismatch):
            open_index(tiny, encoder=words)
        del words
        gc.collect()
        assert reference() is None

    def test_opened_and_closed_by_many_threads_at_once(self, tiny, sessions_before):
        most, start = [], threading.Barrier(4)

        def work(_: int) -> list[str]:
            start.wait()
            for _ in range(2):
                with open_index(tiny) as index:
                    found = [hit.id for hit in index.search(TEXT)]
                    most.append(n_sessions())
            return found

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(work, range(4)))
        assert answers == [answers[0]] * 4
        assert set(most) == {sessions_before + 1}
        assert n_sessions() == sessions_before

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_opens_its_own(self, tiny):
        with open_index(tiny) as index:
            expected = [hit.id for hit in index.search(TEXT)]
            child = os.fork()
            if not child:
                try:
                    with open_index(tiny) as own:
                        os._exit(0 if [hit.id for hit in own.search(TEXT)] == expected else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert [hit.id for hit in index.search(TEXT)] == expected


class TestSettings:
    def test_other_settings_are_another_encoder(self, tiny, sessions_before):
        encoders = [open_encoder(tiny / "bundle", lean=lean) for lean in (False, True, False)]
        assert encoders[0] is encoders[2]
        assert encoders[0] is not encoders[1]
        for encoder in encoders:
            encoder.encode_query("a")
        assert n_sessions() == sessions_before + 2

    def test_another_bundle_at_the_same_place_is_another_encoder(self, tiny, tmp_path):
        place = tmp_path / "bundle"
        shutil.copytree(tiny / "bundle", place)
        first = open_encoder(place)
        shutil.rmtree(place)
        export(write_checkpoint(tmp_path / "checkpoint", weights=random_weights(5)), place, "fp32")
        second = open_encoder(place)
        assert second.identity != first.identity
        assert (second.encode_query("a") != open_encoder(tiny / "bundle").encode_query("a")).any()

    def test_rerankers_of_one_bundle_have_one_model(self, tiny, sessions_before):
        indexes = [open_index(tiny, reranker=tiny / "reranker", threads=n) for n in (1, 2, 2)]
        for index in indexes:
            assert len(index.search("bread", k=3, mode="lexical", rerank=3)) > 0
        assert n_sessions() == sessions_before + 1
        for index in indexes:
            index.close()
        assert n_sessions() == sessions_before


class Model:
    pass


class TestSharedModels:
    def test_each_key_has_a_model_while_it_is_used(self):
        models, made = SharedModels(), []

        def make() -> Model:
            made.append(1)
            return Model()

        one, again, other = models.get("one", make), models.get("one", make), models.get("other", make)
        assert one is again
        assert one is not other
        assert len(made) == 2
        del one, again
        gc.collect()
        models.get("one", make)
        assert len(made) == 3
        assert models.get("other", make) is other

    def test_one_that_cannot_be_made_is_tried_again(self):
        models = SharedModels()

        def fail() -> Model:
            raise OSError("no such file")

        with pytest.raises(OSError, match="no such file"):
            models.get("key", fail)
        assert isinstance(models.get("key", Model), Model)

    def test_threads_that_ask_at_once_get_the_same(self):
        models, start = SharedModels(), threading.Barrier(4)

        def ask(_: int) -> Model:
            start.wait()
            return models.get("key", Model)

        with ThreadPoolExecutor(8) as pool:
            assert len({id(model) for model in list(pool.map(ask, range(8)))}) == 1
