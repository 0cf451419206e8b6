"""Stage 2 with early stopping finds the same documents as without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.indexes import small_index
from support.indexes.one_segment import DIM, random_documents, segment_of

from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.aggregation import Rescorer, kth_largest
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

BETAS = [None, 0.5, 5.0, 100.0]
KINDS = ["int8", "float16"]


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    """Build segments of 300 documents: a third are duplicates, so that scores tie, and norms differ widely."""
    generator = np.random.default_rng(0)
    documents = random_documents(generator, 200)
    documents = [each * generator.uniform(0.2, 2) for each in documents]
    documents += documents[::2]
    return {kind: segment_of(Directory(tmp_path_factory.mktemp(kind)), documents, kind) for kind in KINDS}


def maxima(segment, query):
    """Return the largest score of each document's centroids."""
    return Rescorer(segment, None).scores(query, np.arange(segment.record.n_docs)).astype(np.float64)


def best(docs, scores, k):
    """Return the k best, with ties in the order of document numbers."""
    order = np.lexsort((docs, -scores))[:k]
    return docs[order].tolist(), scores[order].tolist()


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    kind=st.sampled_from(KINDS),
    beta=st.sampled_from(BETAS),
    k=st.sampled_from([1, 2, 10, 100, 299, 300, 1000]),
    n=st.integers(0, 300),
    loose=st.sampled_from([0, 0.01, 1, 100]),
)
def test_the_best_are_the_same(segments, seed, kind, beta, k, n, loose):
    generator = np.random.default_rng(seed)
    segment, query = segments[kind], generator.standard_normal(DIM).astype(np.float32)
    docs = generator.permutation(segment.record.n_docs)[:n]
    bounds = maxima(segment, query)[docs] + loose * generator.random(n)
    rescorer = Rescorer(segment, beta)
    found, scores = rescorer.best_scores(query, docs, bounds, k)
    assert best(found, scores, k) == best(docs, rescorer.scores(query, docs), k)
    left = np.isin(docs, found, invert=True)
    assert not left.any() or (bounds[left] < kth_largest(scores, k)).all()


@pytest.mark.parametrize("beta", BETAS)
def test_rescoring_stops_before_the_last_candidate(segments, beta):
    segment, n = segments["int8"], segments["int8"].record.n_docs
    query = np.random.default_rng(1).standard_normal(DIM).astype(np.float32)
    found, _ = Rescorer(segment, beta).best_scores(query, np.arange(n), maxima(segment, query), 3)
    assert 3 <= len(found) < n


def every_score(snapshot, query):
    """Return all live documents, with the number of the segment in the upper 32 bits, and their scores."""
    docs = [np.flatnonzero(segment.live) for segment in snapshot.segments]
    beta = snapshot.manifest.settings.beta
    scores = [Rescorer(each, beta).scores(query, its) for each, its in zip(snapshot.segments, docs, strict=True)]
    return np.concatenate([its + (number << 32) for number, its in enumerate(docs)]), np.concatenate(scores)


@pytest.mark.parametrize("backend", ["scan", "exact"])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_a_search_is_the_same_without_the_stop(tmp_path, backend, k):

    snapshot = Snapshot(small_index.build(tmp_path))
    queries = np.random.default_rng(2).standard_normal((8, small_index.DIM)).astype(np.float32)
    searcher = Searcher(snapshot, OpenOptions(backend=backend))
    for query, found in zip(queries, searcher.search(queries, SearchOptions(k=k, candidates=250)), strict=True):
        docs, scores = every_score(snapshot, query)
        order = np.lexsort((docs, -scores))[:k]
        assert [*zip(found.segments, found.docs, strict=True)] == [divmod(doc, 1 << 32) for doc in docs[order]]
        assert found.scores.tolist() == scores[order].tolist()
        assert found.exactness == "exact"
    snapshot.close()
