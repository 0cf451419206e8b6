"""Ctrl-C while documents are encoded by a function: nothing hangs, and the documents can be added again."""

from __future__ import annotations

import shutil
import threading

import pytest
from support.faults.interrupts import Interrupt
from support.indexes.embedding_function import EmbeddingFunction

from quarry import engine
from quarry.engine import Engine, FunctionEncoder, IndexClosed

FILES = {
    "batch_encoder.py", "document_batches.py", "document_encoder.py", "function_encoder.py", "index_writer.py",
    "partition_writer.py",
    "passages.py", "results.py", "worker_pool.py",
}  # fmt: skip
DOCS = [{"id": f"d{n}", "text": " ".join(f"a{n} b{part} end." for part in range(n % 3 + 1))} for n in range(12)]
N_POINTS = 25


def encoder_of(function, in_flight):
    return FunctionEncoder(function, dim=8, name="words", batch_size=4, passage_words=3, max_in_flight=in_flight)


def embedding_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("quarry-embed")]


def interrupted_add(path, encoder, interrupt):
    """Add documents; after an interrupt add them again, with the same writer if it is still open."""
    with Engine.open(path, writable=True, encoder=encoder) as index:
        try:
            with interrupt.installed():
                index.add(iter(DOCS))
        except KeyboardInterrupt:
            pass
        try:
            index.add(DOCS)
            index.commit()
        except IndexClosed:
            assert interrupt.where
        else:
            return
    with Engine.open(path, writable=True, encoder=encoder) as index:
        index.add(DOCS)
        index.commit()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # errors in __del__ are ignored
@pytest.mark.parametrize("in_flight", [1, 3])
def test_interrupted_at_any_step(tmp_path, in_flight):
    encoder = encoder_of(EmbeddingFunction(8), in_flight)
    engine.build([], tmp_path / "before", encoder=encoder)
    moment, n_places, step, n_done = 0, 1, 1, 0
    while moment <= n_places:
        shutil.copytree(tmp_path / "before", tmp_path / "index")
        interrupt = Interrupt(moment, FILES)
        interrupted_add(tmp_path / "index", encoder, interrupt)
        assert embedding_threads() == [], interrupt.where
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            assert len(index) == len(DOCS), interrupt.where
            assert index.search("a5 b2 end.", k=1, mode="dense")[0].id == "d5"
        shutil.rmtree(tmp_path / "index")
        if moment == 0:
            n_places = interrupt.n_places
            step = max(1, n_places // N_POINTS)
            moment = 1 - step
        else:
            n_done += bool(interrupt.where)
        moment += step
    assert n_done >= N_POINTS


def test_an_interrupted_call_ends_the_add_and_keeps_what_came_before(tmp_path):
    """The function is called on the thread that adds documents, so that Ctrl-C interrupts it."""

    def interrupt(number, texts):
        if number == 6:
            raise KeyboardInterrupt

    function = EmbeddingFunction(8)
    encoder = encoder_of(function, 1)
    engine.build([], tmp_path / "index", encoder=encoder)
    function.fail = interrupt
    docs = [{"id": f"d{n}", "text": f"a{n} b end."} for n in range(40)]
    with Engine.open(tmp_path / "index", writable=True, encoder=encoder) as index:
        with pytest.raises(KeyboardInterrupt):
            index.add(docs)
        index.commit()
        n_kept = len(index)
        assert n_kept >= 12
        assert all(f"d{n}" in index for n in range(n_kept))
        index.add(docs[n_kept:])
        index.commit()
        assert len(index) == 40
