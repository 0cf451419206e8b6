"""An index that is changed at random behaves like a dictionary, and searches like a loop over it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.faults.system_calls import Killed, KilledAt, release_locks
from support.faults.torture import figure
from support.indexes.changes import stray_files
from support.indexes.word_encoder import TableEncoder, WordEncoder, table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.encoding.encoder import Encoder

IDS = st.sampled_from(["a", "b", "ä", "文", " ", "a/../b", "x" * 300, "0"])
WORDS = st.sampled_from(["red", "green", "blue", "one", "two"])
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
ENCODER = WordEncoder(dim=8)


def expected_score(text):
    """Return the score of the fixed query "red two" before centroids are quantized."""
    centroids = KMeans(3).represent(text, ENCODER.windows(text), normalize=True).values
    return float((centroids @ ENCODER.encode_query("red two")).max())


def metadata_of(text):
    """Return metadata that is derived from the document's text."""
    return {"words": text.split(), "deep": {"n": [len(text), {"first": text[0]}]}}


def reused(pairs):
    """Yield documents that reuse the same objects, which are changed after each document."""
    words, numbers, inner = [], [], {}
    doc = {"metadata": {"words": words, "deep": {"n": numbers}}}
    for doc_id, text in pairs:
        expected = metadata_of(text)
        words[:], numbers[:] = expected["words"], [len(text), inner]
        inner["first"] = text[0]
        doc |= {"id": doc_id, "text": text}
        yield doc
        inner[5] = 1 << 80
        words.append(float("nan"))
        del inner[5]
    inner[5] = doc["metadata"]["again"] = doc


class ChangingIndex(RuleBasedStateMachine):
    """Changes an index at random; `committed` and `pending` are its expected contents for readers and writer."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    @initialize(first=st.lists(st.tuples(IDS, TEXTS), max_size=5), stored=st.sampled_from(["int8", "float16"]))
    def build(self, first, stored):
        engine.build(
            reused(first), self.folder / "index", encoder=ENCODER, representation=KMeans(3), centroids=stored
        )
        self.index = Engine.open(self.folder / "index", writable=True, encoder=ENCODER)
        self.reader = Engine.open(self.folder / "index", encoder=ENCODER)
        self.committed = dict(first)
        self.pending = dict(first)
        self.seen = dict(first)

    @rule(docs=st.lists(st.tuples(IDS, TEXTS), max_size=5))
    def add(self, docs):
        assert self.index.add(reused(docs)) == len(docs)
        self.pending.update(docs)

    @rule(ids=st.lists(IDS, max_size=4))
    def delete(self, ids):
        assert self.index.delete(ids) == len(self.pending.keys() & set(ids))
        for doc_id in ids:
            self.pending.pop(doc_id, None)

    @rule()
    def commit(self):
        before = self.index.stats()["generation"]
        changed = self.pending != self.committed
        after = self.index.commit()
        assert after > before or not changed
        self.committed = dict(self.pending)

    @rule()
    def roll_back(self):
        self.index.rollback()
        self.pending = dict(self.committed)

    @rule()
    def refresh(self):
        self.reader.refresh()
        self.seen = dict(self.committed)

    @rule()
    def open_again(self):
        self.index.close()
        self.index = Engine.open(self.folder / "index", writable=True, encoder=ENCODER)
        self.pending = dict(self.committed)

    @rule(retrain=st.booleans())
    def merge(self, retrain):
        self.index.merge(retrain)

    @rule(moment=st.integers(1, 60))
    def die_in_a_commit(self, moment):
        """A process killed during a commit leaves the contents before or after it."""
        with KilledAt(moment).installed(), contextlib.suppress(Killed):
            self.index.commit()
            self.index.close()
        release_locks()
        self.index = Engine.open(self.folder / "index", writable=True, encoder=ENCODER)
        found = {doc.id: doc.text for doc in self.index.get([*self.committed, *self.pending])}
        assert found in (self.committed, self.pending)
        assert not stray_files(self.folder / "index")
        self.committed, self.pending = found, dict(found)
        self.refresh()

    @precondition(lambda self: hasattr(self, "index"))
    @invariant()
    def holds_what_it_should(self):
        for index, expected in ((self.index, self.committed), (self.reader, self.seen)):
            assert len(index) == len(expected)
            found = index.get([*expected, "nobody"])
            assert {doc.id: doc.text for doc in found} == expected
            assert all(doc.metadata == metadata_of(doc.text) for doc in found)
            assert index.count({"words": "red"}) == sum("red" in text.split() for text in expected.values())
            assert all(doc_id in index for doc_id in expected)
            assert "nobody" not in index
            hits = index.search("red two", k=20, mode="dense")
            assert {hit.id: hit.text for hit in hits} == expected
            assert all(abs(hit.score - expected_score(hit.text)) < 0.02 for hit in hits)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def teardown(self):
        if hasattr(self, "index"):
            self.index.verify()
            self.index.close()
            self.reader.close()
            names = {path.name for path in (self.folder / "index").iterdir()}
            assert not [name for name in names if name.endswith(".tmp")]
        shutil.rmtree(self.folder)


def test_a_changing_index(torture):
    torture.add(rounds=figure(25, 1000))
    rounds = settings(max_examples=figure(25, 1000), stateful_step_count=15, deadline=None)
    run_state_machine_as_test(ChangingIndex, settings=rounds)


@st.composite
def collections(draw):
    """Draw documents and queries of integers from -2 to 2, so that many scores are equal."""
    dim = draw(st.integers(1, 5))
    number = st.integers(-2, 2)
    vector = st.lists(number, min_size=dim, max_size=dim)
    documents = draw(st.lists(st.lists(vector, min_size=1, max_size=4, unique_by=tuple), min_size=1, max_size=30))
    queries = draw(st.lists(vector, min_size=1, max_size=3))
    return [np.array(doc, np.float32) for doc in documents], np.array(queries, np.float32)


@settings(max_examples=60, deadline=None)
@given(
    case=collections(),
    k=st.integers(1, 35),
    beta=st.sampled_from([None, 0.5]),
    backend=st.sampled_from(["exact", "scan"]),
    stored=st.sampled_from(["int8", "float16"]),
    deleted=st.sets(st.integers(0, 29)),
)
def test_search_is_a_sort(case, k, beta, backend, stored, deleted):
    documents, queries = case
    encoder, docs = table_of(documents, beta)
    folder = Path(tempfile.mkdtemp())
    try:
        engine.build(docs, folder / "index", encoder=encoder, representation=KMeans(4096), centroids=stored)
        gone = {str(number) for number in deleted if number < len(docs)}
        with Engine.open(folder / "index", writable=True, encoder=encoder, backend=backend) as index:
            assert index.delete(gone) == len(gone)
            index.commit()
            found = index.search_vectors(queries, k=k)
    finally:
        shutil.rmtree(folder)
    for query, hits in zip(queries, found, strict=True):
        scores = {
            str(number): score_of(vectors, query, beta)
            for number, vectors in enumerate(documents)
            if str(number) not in gone
        }
        assert len(hits) == min(k, len(scores))
        best = sorted(scores.values(), reverse=True)[:k]
        np.testing.assert_allclose([hit.score for hit in hits], best, atol=0.1)
        np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=0.1)
        order = [(-hit.score, hit.id) for hit in hits]
        assert order == sorted(order)


def score_of(vectors, query, beta):
    scores = (vectors @ query).astype(np.float64)
    if beta is None:
        return scores.max()
    weights = np.exp(beta * scores)
    return (weights * scores).sum() / weights.sum()


@settings(max_examples=30, deadline=None)
@given(text=st.text(min_size=1, max_size=300), title=st.text(max_size=40))
def test_whatever_can_be_indexed_comes_back(text, title):
    """Documents with any characters are stored and found unchanged, or are refused by name."""
    folder = Path(tempfile.mkdtemp())
    doc = {"id": text[:50], "text": text, "title": title}
    try:
        report = engine.build([doc], folder / "index", encoder=ENCODER, skip_invalid=True)
        if report.n_skipped:
            assert "document 1" in report.skipped[0] or repr(text[:50]) in report.skipped[0]
            return
        with Engine.open(folder / "index", encoder=ENCODER) as index:
            found = index.get([text[:50]])[0]
            assert (found.id, found.text, found.title) == (text[:50], text, title)
            hit = index.search("anything", explain=True)[0]
            full = f"{title}\n{text}" if title else text
            assert all(full[low:high] for match in hit.matches for low, high in match.spans)
    finally:
        shutil.rmtree(folder)


def test_the_table_encoder_is_an_encoder():
    assert isinstance(TableEncoder(np.eye(3, dtype=np.float32)), Encoder)
    assert isinstance(ENCODER, Encoder)
