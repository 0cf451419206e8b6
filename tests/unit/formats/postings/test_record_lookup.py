"""Documents looked up in a record have the frequencies of the decoded record."""

import numpy as np
import pytest

from quarry.formats.postings.elias_fano import Postings, decode, encode
from quarry.formats.postings.record_lookup import RecordLookup


def make(n_docs, n, seed, how="random", most=5):
    """Return the record of n postings, and the frequency of each document."""
    generator = np.random.default_rng(seed)
    if how == "random":
        docs = np.sort(generator.choice(n_docs, n, replace=False))
    elif how == "first":
        docs = np.arange(n)
    elif how == "last":
        docs = np.arange(n_docs - n, n_docs)
    else:
        docs = np.concatenate([np.arange(n // 2), np.arange(n_docs - (n - n // 2), n_docs)])
    frequencies = generator.integers(1, most + 1, n)
    postings = Postings(docs.astype(np.uint32), frequencies.astype(np.uint32))
    record, _ = encode(n_docs, np.array([n]), postings)
    every = np.zeros(n_docs, np.uint32)
    every[docs] = frequencies
    assert decode(record, n, n_docs).docs.tolist() == docs.tolist()
    return record, every


@pytest.mark.parametrize("how", ["random", "first", "last", "both ends"])
@pytest.mark.parametrize(
    ("n_docs", "n"), [(64, 64), (100, 64), (5000, 64), (5000, 2499), (5000, 4999), (40_000, 313), (40_001, 20_000)]
)
def test_every_document(n_docs, n, how):
    for most in (1, 3, 200):
        record, every = make(n_docs, n, n_docs + n + most, how, most)
        lookup, docs = RecordLookup(record, n, n_docs), np.arange(n_docs)
        np.testing.assert_array_equal(lookup.frequencies(docs), every)
        np.testing.assert_array_equal(lookup.contains(docs), every > 0)
        assert lookup.largest_frequency(500) == every.max()
        assert lookup.largest_frequency(2) == min(3, every.max())
        some = np.random.default_rng(n).permutation(n_docs)[:50]
        np.testing.assert_array_equal(lookup.frequencies(some), every[some])
        assert lookup.frequencies(docs[:0]).tolist() == []


def test_records_that_are_not_valid():
    record, _ = make(5000, 300, 0)
    with pytest.raises(ValueError, match="ones"):
        RecordLookup(record | np.uint8(128), 300, 5000)
    with pytest.raises(ValueError, match="short"):
        RecordLookup(record[:100], 300, 5000)


def test_damaged_records_are_refused_or_give_some_answer():
    """A record whose bits were moved has no documents out of bounds, and ends no process."""
    record, _ = make(5000, 300, 1)
    generator = np.random.default_rng(2)
    for _ in range(50):
        damaged = record.copy()
        low = int(generator.integers(0, len(record) - 40))
        damaged[low : low + 40] = generator.permutation(damaged[low : low + 40])
        try:
            lookup = RecordLookup(damaged, 300, 5000)
        except ValueError:
            continue
        found = lookup.frequencies(np.arange(5000))
        assert np.count_nonzero(found) <= 300
        assert lookup.largest_frequency(8) >= 1
