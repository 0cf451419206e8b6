"""The quantizer of a sharded build is trained once, on documents of all shards."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.sharded import ENCODER, random_documents, random_queries

from quarry import engine
from quarry.engine import Engine
from quarry.engine.quantization.training import choose_nlist
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import load_newest_shard_set
from quarry.formats.snapshot import Snapshot

DOCUMENTS = random_documents(1100)
QUERIES = random_queries(100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build shards of codes alone; a third of the documents would be too few to train on."""
    path = tmp_path_factory.mktemp("codes") / "idx"
    engine.build(DOCUMENTS, path, encoder=ENCODER, shards=3, centroids="none")
    return path


def snapshots(path):
    return [Snapshot(Directory(path / name)) for name in load_newest_shard_set(Directory(path)).folders]


def test_all_shards_have_one_quantizer(folder):
    shards = snapshots(folder)
    assert len({shard.manifest.quantizers[0].name for shard in shards}) == 1
    n_rows = sum(segment.reader.n_rows for shard in shards for segment in shard.segments)
    for shard in shards:
        (segment,) = shard.segments
        assert segment.quantizer.nlist == choose_nlist(n_rows)
        assert segment.quantizer.fit.n_rows == n_rows
        shard.close()


def test_documents_added_later_are_encoded_with_the_same_quantizer(folder, tmp_path):
    path = tmp_path / "idx"
    engine.build(DOCUMENTS, path, encoder=ENCODER, shards=3, centroids="none")
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        index.add([{"text": f"w{number}"} for number in range(20)])
        index.commit()
    shards = snapshots(path)
    assert len({each.name for shard in shards for each in shard.manifest.quantizers}) == 1
    for shard in shards:
        shard.close()


def recall(path, **options):
    """Return the share of the ten best documents by codes that a search in inverted lists finds."""
    with (
        Engine.open(path, encoder=ENCODER, backend="cpu_faiss") as by_lists,
        Engine.open(path, encoder=ENCODER, backend="exact") as exact,
    ):
        found = by_lists.search(QUERIES, mode="dense", **options)
        best = exact.search(QUERIES, mode="dense")
    return np.mean([hit.score >= each[-1].score for hits, each in zip(found, best, strict=True) for hit in hits])


def test_recall_of_inverted_lists_in_shards(folder, tmp_path):
    """Recall is at most .05 lower than that of one index, also with one list read, and 1 with all of them."""
    engine.build(DOCUMENTS, tmp_path / "one", encoder=ENCODER, centroids="none")
    assert 0.95 < recall(tmp_path / "one") <= recall(folder) + 0.05
    assert recall(tmp_path / "one", nprobe=1) <= recall(folder, nprobe=1) + 0.05 < 1
    assert recall(folder, nprobe=1000) == 1


def test_no_quantizer_is_trained_if_no_shard_needs_one(tmp_path):
    path = tmp_path / "idx"
    engine.build(DOCUMENTS[:50], path, encoder=ENCODER, shards=3, centroids="none")
    assert not list(path.glob("*/*.quant"))
