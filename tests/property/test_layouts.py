"""Answers, errors and warnings do not depend on the distribution of documents over segments or on deletions.

An index with any history of additions, replacements, deletions, commits and merges answers like one that was built
of its live documents in one step.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import warnings
from pathlib import Path

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.faults.torture import figure
from support.indexes.metadata_oracle import filters, metadata, titles
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidFilter, KMeans
from quarry.engine.thresholds import MergeLimits, Thresholds

ENCODER = WordEncoder(dim=8)
WORDS = ("red", "green", "blue", "one", "two", "three")
QUERIES = ["red", "two red two", "green blue three", "nothing of it"]
SEARCHES = [
    {"mode": "lexical", "explain": True},
    {"mode": "dense"},
    {"mode": "hybrid"},
    {"mode": "hybrid", "fusion": "rrf"},
]
LAYOUTS = [  # of background merges: the default, rare, frequent
    MergeLimits(),
    MergeLimits(width=1000, dead_share=1.0),
    MergeLimits(width=2, dead_bytes=0, dead_share=0.01),
]
documents = st.builds(
    lambda doc_id, title, words, metadata: {"id": doc_id, "title": title, "text": words, "metadata": metadata},
    st.sampled_from(["a", "b", "c", "d", "0", "1", "é"]),
    titles,
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join),
    metadata,
)
batches = st.lists(documents, max_size=5)


def outcome(ask):
    """Return the result of a call, or the message of its error, with the warnings it issues."""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        try:
            answer = ask()
        except InvalidFilter as error:
            answer = str(error)
    return answer, [str(each.message) for each in issued]


def scores(index, only):
    """Return all hits of each search with all their scores; check that equal scores are in the order of ids."""
    found = [hits for options in SEARCHES for hits in index.search(QUERIES, k=100, filter=only, **options)]
    for each in found:
        assert [(-hit.score, hit.id) for hit in each] == sorted((-hit.score, hit.id) for hit in each)
    return [[(hit.id, hit.score, hit.dense_score, hit.lexical_score, hit.terms) for hit in each] for each in found]


def answers(path, conditions):
    """Return the counts of all filters, and all hits with each filter and without one."""
    with Engine.open(path, encoder=ENCODER, threads=1) as index:
        counts = [outcome(functools.partial(index.count, condition)) for condition in conditions]
    with Engine.open(path, encoder=ENCODER, threads=1) as index:  # a new engine, which has issued no warning yet
        return counts, [outcome(functools.partial(scores, index, only)) for only in (None, *conditions)]


class Histories(RuleBasedStateMachine):
    """Changes an index at random; `pending` has the contents after the next commit, in the order of addition."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "index"

    @initialize(
        first=st.lists(documents, min_size=4, max_size=9),
        limits=st.sampled_from(LAYOUTS),
        stored=st.sampled_from(["int8", "float16"]),
    )
    def build(self, first, limits, stored):
        self.thresholds = Thresholds(merging=limits)
        self.stored = stored
        self.pending = {}
        self.take(first)
        self.made(first, self.path)
        self.index = Engine.open(self.path, writable=True, encoder=ENCODER, threads=1, thresholds=self.thresholds)

    def made(self, docs, path):
        how = {"representation": KMeans(3), "centroids": self.stored, "threads": 1}
        engine.build(docs, path, encoder=ENCODER, overwrite=True, **how)

    def take(self, docs):
        for document in docs:
            self.pending.pop(document["id"], None)
            self.pending[document["id"]] = document

    @rule(docs=batches)
    def add(self, docs):
        self.index.add(docs)
        self.take(docs)

    @rule(data=st.data())
    def delete(self, data):
        ids = data.draw(st.sets(st.sampled_from(sorted(self.pending)))) if self.pending else set()
        assert self.index.delete(ids) == len(ids)
        for doc_id in ids:
            del self.pending[doc_id]

    @rule()
    def commit(self):
        self.index.commit()

    @rule(conditions=st.lists(filters, max_size=3), retrain=st.booleans())
    def merge_moves_nothing(self, conditions, retrain):
        before = answers(self.path, conditions)
        self.index.merge(retrain)
        assert answers(self.path, conditions) == before

    @precondition(lambda self: hasattr(self, "index"))
    @rule(conditions=st.lists(filters, max_size=4))
    def answers_like_a_new_index(self, conditions):
        self.index.commit()
        event(f"{self.index.stats()['n_segments']} segments")
        event("deletions" if self.index.stats()["n_deleted"] else "no deletions")
        self.made(self.pending.values(), self.folder / "new")
        assert answers(self.path, conditions) == answers(self.folder / "new", conditions)

    def teardown(self):
        if hasattr(self, "index"):
            self.answers_like_a_new_index([])
            self.index.close()
        shutil.rmtree(self.folder)


def test_an_index_shows_nothing_of_its_history(torture):
    torture.add(rounds=figure(8, 1000))
    rounds = settings(max_examples=figure(8, 1000), stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Histories, settings=rounds)
