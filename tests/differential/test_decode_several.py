"""Decoding the records of several terms at once is compared with decoding them one by one."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.formats.postings.elias_fano import Postings, decode, decode_several, encode


def random_terms(generator, n_docs, n_terms):
    counts, docs = [], []
    for _ in range(n_terms):
        share = generator.choice([0.001, 0.1, 0.7, 1.0])
        chosen = np.flatnonzero(generator.random(n_docs) < share)
        docs.append(chosen if len(chosen) else np.array([int(generator.integers(n_docs))]))
        counts.append(len(docs[-1]))
    frequencies = generator.geometric(0.4, sum(counts)).astype(np.uint32)
    return np.array(counts), Postings(np.concatenate(docs).astype(np.uint32), frequencies)


def one_by_one(records, lengths, counts, n_docs):
    ends = np.cumsum(lengths)
    parts = [
        decode(records[end - length : end], count, n_docs)
        for end, length, count in zip(ends.tolist(), lengths.tolist(), counts.tolist(), strict=True)
    ]
    return Postings(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@pytest.mark.parametrize("n_docs", [1, 2, 7, 1000, 40_000])
def test_the_same_postings(n_docs):
    generator = np.random.default_rng(n_docs)
    for n_terms in (1, 2, 30):
        counts, postings = random_terms(generator, n_docs, n_terms)
        records, lengths = encode(n_docs, counts, postings)
        for found in (
            decode_several(records, lengths, counts, n_docs),
            one_by_one(records, lengths, counts, n_docs),
        ):
            assert found.docs.dtype == found.frequencies.dtype == np.uint32
            np.testing.assert_array_equal(found.docs, postings.docs)
            np.testing.assert_array_equal(found.frequencies, postings.frequencies)


def outcome(decoder, *arguments):
    try:
        return [column.tolist() for column in decoder(*arguments)]
    except ValueError:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_the_same_refusals(seed):
    generator = np.random.default_rng(seed)
    n_docs, n_refused = 60, 0
    for _ in range(400):
        counts, postings = random_terms(generator, n_docs, 4)
        records, lengths = encode(n_docs, counts, postings)
        records, counts = records.copy(), counts.copy()
        if generator.random() < 0.2:
            counts[generator.integers(4)] = generator.integers(1, n_docs + 1)
        else:
            records[generator.integers(len(records))] ^= 1 << int(generator.integers(8))
        found = outcome(decode_several, records, lengths, counts, n_docs)
        assert found == outcome(one_by_one, records, lengths, counts, n_docs)
        n_refused += found is None
    assert 100 < n_refused < 400
