"""Hits that claim to be exact are exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults.torture import figure
from support.indexes.word_encoder import table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

DIM = 16
EVERYTHING = 1 << 20


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """Build two segments with inverted lists and one without: {beta: (path, documents by number)}."""
    generator = np.random.default_rng(0)
    documents = [generator.standard_normal((n, DIM)) for n in generator.integers(1, 6, 1500)]
    documents = [(each / np.linalg.norm(each, axis=1, keepdims=True)).astype(np.float32) for each in documents]
    made = {}
    small = Thresholds(calibration_queries=64, list_rows=1024)
    for beta in (None, 5.0):
        path = tmp_path_factory.mktemp("index")
        encoder, docs = table_of(documents, beta)
        how = {"representation": KMeans(4096), "code_bytes": 8, "thresholds": small}
        engine.build(docs[:700], path, encoder=encoder, **how)
        with Engine.open(path, writable=True, encoder=encoder, thresholds=small) as writer:
            writer.add(docs[700:1400])
            writer.commit()
            writer.add(docs[1400:])
            writer.commit()
        made[beta] = path
    return made


class Oracle:
    """Holds the vectors of all documents and the lists of their rows, and scores them in float64."""

    def __init__(self, path):
        snapshot = Snapshot(Directory(path))
        self.beta = snapshot.manifest.settings.beta
        self.parts = [self._part(segment) for segment in snapshot.segments]
        snapshot.close()

    @staticmethod
    def _part(segment):
        table, lists = segment.reader.centroids, segment.reader.lists
        values, scales = table.stored_slice(0, table.n_rows)
        vectors = values.astype(np.float64) * scales[:, None]
        numbers = None
        if lists is not None:
            numbers = np.empty(table.n_rows, np.int64)
            numbers[lists.rows()] = np.repeat(np.arange(len(lists.offsets) - 1), np.diff(lists.offsets))
        ids = [segment.reader.ids[doc] for doc in range(segment.reader.n_docs)]
        coarse = None if lists is None else segment.quantizer.coarse.astype(np.float64)
        return ids, np.array(table.offsets), vectors, numbers, coarse

    def scores(self, query, nprobe=None):
        """Return scores by id; with nprobe only of documents in one of the nearest lists."""
        found = {}
        for ids, offsets, vectors, numbers, coarse in self.parts:
            probed = None
            if nprobe is not None and coarse is not None:
                probed = np.argsort(-(coarse @ query))[:nprobe]
            for doc, (low, high) in enumerate(pairwise(offsets)):
                if probed is None or np.isin(numbers[low:high], probed).any():
                    found[ids[doc]] = self._aggregated(vectors[low:high] @ query)
        return found

    def _aggregated(self, scores):
        if self.beta is None:
            return scores.max()
        weights = np.exp(self.beta * (scores - scores.max()))
        return (weights * scores).sum() / weights.sum()


@pytest.fixture(scope="module")
def oracles(indexes):
    return {beta: Oracle(path) for beta, path in indexes.items()}


@settings(max_examples=figure(30, 1000), deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    beta=st.sampled_from([None, 5.0]),
    backend=st.sampled_from(["auto", "cpu_faiss", "scan", "exact"]),
    k=st.sampled_from([1, 10, 60, 1500]),
    candidates=st.sampled_from([0, 100, 700, EVERYTHING]),
    nprobe=st.sampled_from([None, 1, 3, 1000]),
)
def test_exact_hits_are_exact(indexes, oracles, seed, beta, backend, k, candidates, nprobe):
    query = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    with Engine.open(indexes[beta], backend=backend) as index:
        (hits,) = index.search_vectors(query[None], k=k, candidates=max(k, candidates), nprobe=nprobe)
    if backend in ("scan", "exact"):
        assert hits.exactness == "exact"
    if hits.exactness == "approximate":
        return
    scores = oracles[beta].scores(query, None if hits.exactness == "exact" else nprobe)
    found = {hit.id for hit in hits}
    missed = max((score for doc_id, score in scores.items() if doc_id not in found), default=-np.inf)
    assert missed <= hits[-1].score + 1e-5


@pytest.mark.parametrize("beta", [None, 5.0])
@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        ({}, "approximate"),
        ({"candidates": 690, "nprobe": 1}, "exact over probed lists"),
        ({"candidates": EVERYTHING}, "exact"),
        ({"candidates": EVERYTHING, "nprobe": 1}, "exact"),
    ],
)
def test_exactness_of_settings(indexes, beta, settings_, expected):
    query = np.random.default_rng(3).standard_normal((2, DIM)).astype(np.float32)
    with Engine.open(indexes[beta], backend="cpu_faiss") as index:
        assert {hits.exactness.value for hits in index.search_vectors(query, k=5, **settings_)} == {expected}


def test_modes(indexes):
    with Engine.open(indexes[None]) as index:
        assert index.search("17", mode="lexical").exactness == "exact"


def test_an_answer_of_parts_is_as_exact_as_its_least_exact_part():
    exact, lists, approximate, partial = Exactness
    assert Exactness.weakest([exact, lists]) == lists
    assert Exactness.weakest([approximate, lists, exact]) == approximate
    assert Exactness.weakest([approximate, partial, exact]) == partial
    assert Exactness.weakest([]) == exact
