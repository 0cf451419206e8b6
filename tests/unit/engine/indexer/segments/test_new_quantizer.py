"""Rows of several segments are joined to train one quantizer."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.indexer.segments.new_quantizer import TrainingRows, join_rows

DIM = 4


def part(n_docs, rows_per_doc, name):
    """Return rows in batches of five with their document numbers, and a text for each document, at most 512."""
    n_rows = n_docs * rows_per_doc
    vectors = np.random.default_rng(n_rows).standard_normal((n_rows, DIM)).astype(np.float32)
    owners = np.repeat(np.arange(n_docs), rows_per_doc)
    starts = range(0, n_rows, 5)
    return TrainingRows(
        n_docs,
        n_rows,
        lambda: (vectors[low : low + 5] for low in starts),
        lambda: ((vectors[low : low + 5], owners[low : low + 5]) for low in starts),
        lambda: [f"{name}{number}" for number in range(min(n_docs, 512))],
    )


def test_rows_and_documents_are_numbered_over_all_parts():
    parts = [part(3, 2, "a"), part(0, 1, "b"), part(7, 3, "c")]
    joined = join_rows(parts)
    assert (joined.n_passages, joined.n_rows) == (10, 27)
    expected = np.concatenate([batch for each in parts for batch in each.batches()])
    assert np.array_equal(np.concatenate(list(joined.batches())), expected)
    vectors, owners = zip(*joined.owned_batches(), strict=True)
    assert np.array_equal(np.concatenate(vectors), expected)
    assert np.concatenate(owners).tolist() == [*np.repeat(range(3), 2), *np.repeat(range(3, 10), 3)]
    assert joined.texts() == [f"a{number}" for number in range(3)] + [f"c{number}" for number in range(7)]


@pytest.mark.parametrize("sizes", [(3000, 1000), (600, 10), (512,), (2000, 0, 1)])
def test_texts_are_in_proportion_to_documents(sizes):
    """The number of texts is about that of one sample, 512, and proportional to the documents."""
    names = "abc"[: len(sizes)]
    texts = join_rows([part(size, 1, name) for size, name in zip(sizes, names, strict=True)]).texts()
    assert 512 <= len(texts) <= 512 + len(sizes)
    for size, name in zip(sizes, names, strict=True):
        n_texts = sum(text.startswith(name) for text in texts)
        assert 0 <= n_texts - 512 * size / sum(sizes) < 1


def test_nothing_to_join():
    joined = join_rows([])
    assert (joined.n_passages, joined.n_rows, joined.texts(), list(joined.owned_batches())) == (0, 0, [], [])
