"""Resources that stay open when an index refreshes to its next generation."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors
from support.indexes.inside import view_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.thresholds import Thresholds

ENCODER = WordEncoder(dim=16)
SMALL = Thresholds(calibration_queries=64, list_rows=100)
TEXTS = [" ".join(f"w{n}" for n in np.random.default_rng(seed).integers(0, 99, 9)) for seed in range(400)]


@pytest.fixture
def path(tmp_path):
    docs = ({"id": str(number), "text": text} for number, text in enumerate(TEXTS))
    engine.build(docs, tmp_path / "ix", encoder=ENCODER, representation=KMeans(3), code_bytes=4, thresholds=SMALL)
    return tmp_path / "ix"


def backends(index):
    return view_of(index).partitions[0].searcher.backends


def best(index, k=20):
    return [(hit.id, hit.score) for hit in index.search("w1 w2 w3", k=k, mode="dense", nprobe=1 << 10)]


@pytest.mark.parametrize("backend", ["cpu_faiss", "scan", "exact"])
def test_a_backend_stays_until_much_is_deleted(path, backend):
    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL, backend=backend) as index:
        before, everything = backends(index), best(index, 400)
        assert before == [None]
        before = backends(index)
        for share, is_same in ((10, True), (9, True), (5, False), (1, True)):
            found = best(index, 400)
            gone = {doc_id for doc_id, _ in found[:share]}
            index.delete(gone)
            index.commit()
            assert best(index, 400) == [each for each in found if each[0] not in gone]
            assert (backends(index) == before) == is_same
            before = backends(index)
        assert len(everything) - len(best(index, 400)) == 25


def test_each_file_is_mapped_once(path):
    with Engine.open(path, encoder=ENCODER) as index:
        best(index)
        n_read_only = n_descriptors()
    n_closed = n_descriptors()
    with Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL) as index:
        best(index)
        assert n_descriptors() - n_closed == n_read_only - n_closed + 1  # the lock
        index.add([{"id": "new", "text": "w1"}])
        index.commit()
        best(index)
        assert n_descriptors() - n_closed == n_read_only - n_closed + 2
    assert n_descriptors() == n_closed


def test_a_reader_shares_what_is_the_same(path):
    with (
        Engine.open(path, encoder=ENCODER) as reader,
        Engine.open(path, writable=True, encoder=ENCODER, thresholds=SMALL) as index,
    ):
        found = best(reader)
        before = backends(reader)
        index.add([{"id": "new", "text": "w1 w2 w3"}])
        index.delete(found[0][0])
        index.commit()
        assert reader.refresh()
        assert best(reader) == best(index)
        assert backends(reader)[0] is before[0]
        found = best(reader)
        index.merge()
        assert best(reader) == found
        assert reader.refresh()
        assert best(reader) == best(index)
        assert reader.stats()["n_segments"] == 1
