"""`build(..., workers=)` writes the same index as one process, and ends its processes."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import SpawnProcess

import numpy as np
import pytest
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries
from support.indexes.striking_encoder import StrikingEncoder

from quarry import engine
from quarry.engine import Engine, InvalidDocument, InvalidSetting, WorkerFailed
from quarry.engine.documents.document import Document
from quarry.engine.thresholds import Thresholds

DOCUMENTS = random_documents(300)
QUERIES = random_queries(20)

needs_sigkill = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")


def hits(path, **options):
    with Engine.open(path, encoder=ENCODER, backend="exact") as index:
        assert index.verify().n_documents == len(index)
        return [
            [columns(each) for each in index.search(QUERIES, k=20, mode=mode, **options)]
            for mode in ("dense", "lexical", "hybrid")
        ]


@pytest.mark.parametrize("shards", [None, 3])
def test_the_index_is_that_of_one_process(tmp_path, shards):
    """The index is the same also if later batches replace documents of earlier ones."""
    documents = [*DOCUMENTS, {"id": "document 0003", "text": "w1 w2"}, {"id": "document 0007", "text": "w3"}]
    one = engine.build(documents, tmp_path / "one", encoder=ENCODER, shards=shards)
    several = engine.build(documents, tmp_path / "several", encoder=ENCODER, shards=shards, workers=2)
    for name in ("n_documents", "n_replaced", "n_skipped", "n_tokens"):
        assert getattr(several, name) == getattr(one, name)
    assert several.n_replaced == 2
    assert hits(tmp_path / "several") == hits(tmp_path / "one")
    wanted = {"number": 3}
    assert hits(tmp_path / "several", filter=wanted) == hits(tmp_path / "one", filter=wanted)
    assert {each.name for each in tmp_path.iterdir()} == {"one", "several"}


@pytest.mark.parametrize(("metric", "shards"), [("ip", None), ("cosine", 2), (None, 2)])
def test_vectors_of_the_caller(tmp_path, metric, shards):
    """Vectors of an index without an encoder are stored with its own metric, also by other processes."""
    rows = np.random.default_rng(0).normal(size=(50, 4)) * np.arange(1, 51)[:, None]
    documents = [{"id": str(number), "vectors": row} for number, row in enumerate(rows)]
    if metric != "cosine":
        documents.append({"id": "zeros", "vectors": np.zeros(4)})
    options = {"metric": metric} if metric else {}
    engine.build(documents, tmp_path / "one", dim=4, shards=shards, **options)
    engine.build(documents, tmp_path / "several", dim=4, shards=shards, workers=2, **options)
    engine.build(documents, tmp_path / "like", like=tmp_path / "one", shards=shards, workers=1)
    found = {}
    for name in ("one", "several", "like"):
        with Engine.open(tmp_path / name, backend="exact") as index:
            stored = {
                doc.id: doc.vectors.tolist() for doc in index.get([each["id"] for each in documents], vectors=True)
            }
            found[name] = stored, [columns(each) for each in index.search(vector=rows[:5], k=20)]
    assert found["several"] == found["one"]
    assert found["like"] == found["one"]


def test_one_quantizer_is_trained_on_all_documents(tmp_path):
    """Workers encode with one quantizer of all documents, so that codes give the same scores."""
    options = {
        "shards": 2,
        "centroids": "none",
        "code_bytes": 4,
        "thresholds": Thresholds(calibration_queries=64, training_rows=250),
    }
    for path, workers in (("one", None), ("two", 1)):
        engine.build(DOCUMENTS, tmp_path / path, encoder=ENCODER, workers=workers, **options)
    with Engine.open(tmp_path / "two", encoder=ENCODER) as index:
        assert index.stats()["stored"] == "none"
        assert index.stats()["bytes"]["codes"]
    assert hits(tmp_path / "two") == hits(tmp_path / "one")


def test_documents_that_cannot_be_encoded(tmp_path):
    documents = [Document("good", "w1"), Document("bad", "\ud800"), Document("punctuation", "...")]
    with pytest.raises(InvalidDocument, match="bad"):
        engine.build(documents, tmp_path / "idx", encoder=ENCODER, workers=1)
    assert not list(tmp_path.iterdir())
    documents = ["w1", "...", "w2", "?"]
    report = engine.build(documents, tmp_path / "idx", encoder=ENCODER, workers=1, skip_invalid=True)
    assert (report.n_documents, report.n_skipped, len(report.skipped)) == (2, 2, 2)


@needs_sigkill
def test_a_document_that_always_ends_its_process(tmp_path):
    """A document that kills its process every time is named, and the old index stays without orphan files."""
    engine.build(["old"], tmp_path / "idx", encoder=ENCODER)
    documents = [*DOCUMENTS, {"id": "the culprit", "text": "deadly"}]
    with pytest.raises(WorkerFailed, match=r"documents 257 to 301 .*'the culprit'.*SIGKILL"):
        engine.build(documents, tmp_path / "idx", encoder=StrikingEncoder(), workers=2, overwrite=True)
    assert not multiprocessing.active_children()
    assert [each.name for each in tmp_path.iterdir()] == ["idx"]
    with Engine.open(tmp_path / "idx", encoder=ENCODER) as index:
        assert len(index) == 1


@needs_sigkill
def test_a_process_that_ends_once(tmp_path):
    documents = [*DOCUMENTS, {"id": "survivor", "text": "dangerous"}]
    encoder = StrikingEncoder(once=str(tmp_path / "once"))
    report = engine.build(documents, tmp_path / "idx", encoder=encoder, workers=1)
    assert (tmp_path / "once").exists()
    assert report.n_documents == len(documents)
    with Engine.open(tmp_path / "idx", encoder=encoder) as index:
        assert index.verify().n_documents == len(documents)


def test_an_error_of_the_source(tmp_path):
    def documents():
        yield from DOCUMENTS[:100]
        raise RuntimeError("the source")

    with pytest.raises(RuntimeError, match="the source"):
        engine.build(documents(), tmp_path / "idx", encoder=ENCODER, workers=1)
    assert not multiprocessing.active_children()
    assert not list(tmp_path.iterdir())


def test_no_documents(tmp_path):
    assert engine.build([], tmp_path / "idx", encoder=ENCODER, workers=2).n_documents == 0


class _Unpicklable(type(ENCODER)):
    def __init__(self, failure):
        super().__init__()
        object.__setattr__(self, "failure", failure)

    def __reduce__(self):
        raise self.failure("a handle of a device")


class _Unloadable(type(ENCODER)):
    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2", 1 << 20])
def test_invalid_numbers(tmp_path, workers):
    with pytest.raises(InvalidSetting, match="workers"):
        engine.build(["a"], tmp_path / "idx", encoder=ENCODER, workers=workers)
    assert not list(tmp_path.iterdir())


def test_a_process_that_may_not_start_others(tmp_path):
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(InvalidSetting, match="daemonic process cannot start others"),
    ):
        pool.apply(engine.build, (["a"], tmp_path / "idx"), {"encoder": ENCODER, "workers": 1})
    assert not list(tmp_path.iterdir())


def test_an_embedding_function_that_cannot_be_sent(tmp_path):
    encoder = engine.FunctionEncoder(lambda texts: [[1.0, 0.0] for _ in texts], dim=2, name="local")
    with pytest.raises(InvalidSetting, match=r"cannot be sent to other processes.*lambda"):
        engine.build(["a"], tmp_path / "idx", encoder=encoder, workers=1)
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_cannot_be_sent(tmp_path):
    for failure in (TypeError, ValueError, RecursionError):
        with pytest.raises(InvalidSetting, match=r"cannot be sent to other processes.*a handle of a device"):
            engine.build(["a"], tmp_path / "idx", encoder=_Unpicklable(failure), workers=1)
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_another_process_cannot_load(tmp_path):
    with pytest.raises(InvalidSetting, match=r"cannot be loaded in another process.*found ValueError"):
        engine.build(["a"], tmp_path / "idx", encoder=_Unloadable(), workers=1)
    assert not list(tmp_path.iterdir())


@needs_sigkill
@pytest.mark.parametrize("n_killed", [1, 3])
def test_a_process_that_is_killed_before_it_is_ready(tmp_path, monkeypatch, n_killed):
    """A process that is killed before it is ready is replaced; three in a row for one batch are an error."""
    start, killed = SpawnProcess.start, []

    def start_and_kill(process):
        start(process)
        if len(killed) < n_killed:
            killed.append(process.pid)
            process.kill()

    monkeypatch.setattr(SpawnProcess, "start", start_and_kill)
    if n_killed == 3:
        with pytest.raises(WorkerFailed, match=r"3 processes ended.*SIGKILL"):
            engine.build(DOCUMENTS, tmp_path / "idx", encoder=ENCODER, workers=1)
    else:
        report = engine.build(DOCUMENTS, tmp_path / "idx", encoder=ENCODER, workers=1)
        assert report.n_documents == len(DOCUMENTS)
    assert len(killed) == n_killed
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("n_bytes", [0, 1 << 20], ids=["short", "more than a pipe holds"])
def test_a_process_that_exits_before_it_is_ready(tmp_path, monkeypatch, n_bytes):
    """A process that exits before it is ready is not replaced; the error mentions the ``__main__`` module."""
    encoder = type(ENCODER)()
    object.__setattr__(encoder, "weights", bytes(n_bytes))
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    with pytest.raises(WorkerFailed, match=r"__main__.*exit code 3"):
        engine.build(DOCUMENTS, tmp_path / "idx", encoder=encoder, workers=1)
