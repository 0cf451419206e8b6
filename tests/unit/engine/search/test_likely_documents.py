"""Stage 2 rescores only likely documents if the scores of some centroids are known."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes import small_index
from support.indexes.one_segment import DIM, random_documents, random_quantizer, segment_of

from quarry.engine.scoring.aggregation import Rescorer, aggregate
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

ALWAYS = -(1 << 40)  # rows to save


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    snapshot = Snapshot(small_index.build(tmp_path_factory.mktemp("index")))
    yield snapshot
    snapshot.close()


def queries(n):
    return np.random.default_rng(5).standard_normal((n, small_index.DIM)).astype(np.float32)


def exact_scores(segment, query, beta=None):
    table = segment.reader.centroids
    scores = StoredVectors(segment).scores(query, np.arange(table.n_rows))
    return scores, aggregate(scores, table.offsets, beta)


def some_rows(segment, generator):
    """Return a row or two of some documents, and these documents."""
    table = segment.reader.centroids
    docs = np.sort(generator.choice(segment.record.n_docs, 150, replace=False))
    firsts, ends = table.offsets[docs], table.offsets[docs + 1]
    rows = generator.integers(firsts, ends), generator.integers(firsts, ends)
    return docs, np.unique(np.concatenate(rows))


@pytest.mark.parametrize("beta", [None, 5.0])
def test_those_with_the_best_of_the_rows_are_rescored(snapshot, beta):
    segment, generator = snapshot.segments[0], np.random.default_rng(0)
    for query in queries(20):
        docs, rows = some_rows(segment, generator)
        row_scores, doc_scores = exact_scores(segment, query, beta)
        best = [row_scores[rows[(rows >= low) & (rows < high)]].max() for low, high in bounds_of(segment, docs)]
        n = 20 if beta is None else 10  # twice as many are rescored
        found, scores = Rescorer(segment, beta).likely_scores(query, docs, rows, n, ALWAYS)
        expected = docs[np.sort(np.argsort(-np.array(best), kind="stable")[:20])]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(scores, doc_scores[expected])


def test_twice_as_many_if_the_mean_is_a_part_of_scores(tmp_path):
    generator = np.random.default_rng(6)
    quantizer = random_quantizer(generator, 8, 4, True, False, False, unit_length=True)
    documents = random_documents(generator)
    segment = segment_of(Directory(tmp_path), documents, quantizer=quantizer, keep_centroids=False)
    docs, rows = np.arange(60), np.arange(segment.reader.n_rows)
    query = generator.standard_normal(DIM).astype(np.float32)
    rescorer = Rescorer(segment, None)
    found, scores = rescorer.likely_scores(query, docs, rows, 10, ALWAYS)
    row_scores = StoredVectors(segment).scores(query, rows)
    best = np.maximum.reduceat(row_scores, segment.reader.centroids.offsets[:-1])
    assert found.tolist() == sorted(np.argsort(-best, kind="stable")[:20].tolist())
    assert scores.tolist() == rescorer.scores(query, found).tolist()


def bounds_of(segment, docs):
    offsets = segment.reader.centroids.offsets
    return zip(offsets[docs].tolist(), offsets[docs + 1].tolist(), strict=True)


def test_all_are_rescored_where_little_would_be_saved(snapshot):
    segment = snapshot.segments[0]
    docs, rows = some_rows(segment, np.random.default_rng(0))
    query = queries(1)[0]
    found, scores = Rescorer(segment, None).likely_scores(query, docs, rows, 1)
    np.testing.assert_array_equal(found, docs)
    np.testing.assert_array_equal(scores, exact_scores(segment, query)[1][docs])


def test_no_more_than_there_are(snapshot):
    segment = snapshot.segments[0]
    docs, rows = some_rows(segment, np.random.default_rng(0))
    for n in (len(docs), len(docs) + 1):
        found, _ = Rescorer(segment, None).likely_scores(queries(1)[0], docs, rows, n, ALWAYS)
        np.testing.assert_array_equal(found, docs)
